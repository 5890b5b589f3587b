"""Files that people take for telemetry and that are something else: what they are, and what to do instead."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_TEXTS: tuple[tuple[str, str], ...] = (
    (r"llama_(?:perf|print_timings)|common_perf_print|llama_decode|srv  *update_slots", "a log of llama.cpp"),
    (r"^tgi_\w+|text_generation_(?:router|launcher)", "output of Text Generation Inference"),
    (
        r"^nv_(?:inference|gpu|cpu|cache)_\w+",
        "metrics of Triton Inference Server: scrape the engine behind it",
    ),
    (r"^trtllm_\w+", "metrics of trtllm-serve, which have no acceptance: use the report of trtllm-bench"),
    (r"^DCGM_FI_\w+", "metrics of NVIDIA's DCGM exporter: scrape the serving engine"),
    (
        r"^(?:node|container|kube|go)_\w+(?:\{| )",
        "Prometheus text of another exporter: scrape the serving engine",
    ),
    (r"^lmdeploy[:_]|\[lmdeploy\]|lmdeploy - ", "output of LMDeploy"),
    (r"\bollama\b.*(?:level=|msg=)", "a log of Ollama"),
    (r":::MLLOG|MLPerf Results Summary", "a result of MLPerf"),
    (r"^Type,Name,Request Count|^Name,# requests", "a result of Locust"),
    (r"\bRequests/sec:.*|^Running \d+\w test @", "output of wrk or hey"),
    (
        r"^(?:Timestamp|TIMESTAMP),",
        "a request trace: give it to a scenario, workload.arrivals: {kind: trace, file}",
    ),
    (
        r"^(?:speculative_config|decoding_type|kv_cache_config):",
        "a configuration of TensorRT-LLM, no measurement",
    ),
    (
        r"^--model(?:-path)?[ =]|^(?:python3? -m )?(?:vllm serve|sglang\.launch_server)",
        "a launch line, no measurement",
    ),
    (r"^(?:name|target|hardware|workload):", "a scenario file: `decodesim simulate` takes it"),
)
"""Pattern of a line → what writes it."""

_NO_ENGINE = (
    "an answer of Prometheus's query API without metrics of vLLM or SGLang: "
    'ask for {__name__=~"vllm:.*"} or {__name__=~"sglang:.*"}'
)
_KEYS: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset(("traceEvents",)), "a trace of a profiler: ui.perfetto.dev opens it"),
    (frozenset(("panels", "templating")), "a Grafana dashboard: export the metrics, or scrape /metrics"),
    (frozenset(("status", "data")), _NO_ENGINE),
    (frozenset(("results_inter_token_latency_s_mean",)), "a result of LLMPerf"),
    (frozenset(("architectures", "hidden_size")), "the config.json of a model: `target.model` takes it"),
    (frozenset(("speculators_config",)), "the config.json of a drafter: `speculation.draft` takes it"),
    (frozenset(("method", "num_speculative_tokens")), "a speculative_config of vLLM, no measurement"),
    (frozenset(("conversations",)), "a prompt set: workload.arrivals: {kind: trace, file} takes it"),
    (frozenset(("prompt",)), "a prompt set: workload.arrivals: {kind: trace, file} takes it"),
    (frozenset(("hash_ids",)), "a request trace: workload.arrivals: {kind: trace, file} takes it"),
    (frozenset(("candidate_steps",)), "an adaptive configuration of SGLang, no measurement"),
    (frozenset(("load_summary", "successes")), "a result of inference-perf"),
    (frozenset(("timings",)), "a response of llama.cpp"),
    (frozenset(("choices", "usage")), "a response without per-request metrics: start vLLM with "
     "--per-request-spec-decode-metrics, or give /metrics"),
    (frozenset(("error",)), "an error of a server, no measurement"),
)  # fmt: skip
"""Keys of a JSON object → what writes it."""

_PATTERNS = tuple((re.compile(pattern), title) for pattern, title in _TEXTS)


def tool_of_line(text: str) -> str | None:
    """What a line of text is of, where it is something that is known and not read."""
    return next((title for pattern, title in _PATTERNS if pattern.search(text)), None)


def tool_of_record(record: Mapping[str, Any]) -> str | None:
    """What a JSON object is, where it is something that is known and not read."""
    schema = record.get("schema")
    if isinstance(schema, str) and schema.startswith("decodesim/"):
        return f"a document of decodesim itself ({schema})"
    for keys, title in _KEYS:
        if keys <= record.keys():
            return title
    inner = next((value for value in record.values() if isinstance(value, dict)), None)
    return tool_of_record(inner) if inner is not None and "candidate_steps" in inner else None
