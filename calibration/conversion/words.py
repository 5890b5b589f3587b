"""The explicit fields that the words of a case state, section by section."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from calibration.conversion.texts import clauses, stated, text_of

_DATA_PARALLEL = re.compile(r"dp[ _-]attention|attention[ _-]dp|data[- ]parallel|\bdp(?:-size)?[ =]?\d")
_DATA_PARALLEL_GROUPS = re.compile(r"(?<![a-z])dp(?:-size)?[ =]?(\d+)\b")
_DECODES_ALONE = re.compile(r"decod(?:e|ing) nodes?\b")
_EXPERT_PARALLEL = re.compile(r"\bep\b|expert[- ]parallel")
_EXPERT_GROUPS = re.compile(r"\bep ?=? ?(\d+)")
_STAGES = re.compile(r"(?<![a-z])pp ?=?-? ?(\d+)\b|pipeline[- ]parallel\w*(?: size| of)? ?=? ?(\d+)\b")
_MOST_STAGES = 16
_FLAGS: tuple[tuple[str, str, type[int] | type[float]], ...] = (
    (r"max[-_]num[-_]seqs", "max_num_seqs", int),
    (r"max[-_]running[-_]requests", "max_num_seqs", int),
    (r"max[-_]batch[-_]size", "max_num_seqs", int),
    (r"max[-_]num[-_]batched[-_]tokens", "max_num_batched_tokens", int),
    (r"max[-_]num[-_]tokens", "max_num_batched_tokens", int),
    (r"kv_cache_free_gpu_mem_fraction", "gpu_memory_utilization", float),
    (r"chunked[-_]prefill[-_]size", "max_num_batched_tokens", int),
    (r"gpu[-_]memory[-_]utilization", "gpu_memory_utilization", float),
    (r"mem[-_]fraction[-_]static", "gpu_memory_utilization", float),
)
_CONTEXT_LIMIT = re.compile(
    r"(?:max[-_]model[-_]len|context[-_]length|max[-_]seq[-_]len)\W{1,3}(\d+(?:,\d{3})*)(k?)\b"
)
"""The limit of a launch line on a prompt and its output together."""
_CHUNKED = re.compile(r"enable[-_]chunked[-_](?:prefill|context)(?!\W{0,3}(?:false|off|0\b))")
_KV_CACHE = re.compile(r"--kv-cache-dtype[ =](\w+)")
_ATTENTION = re.compile(r"attention[-_ ]backend\W{1,3}(\w+)")
_SERIAL = re.compile(
    r"async\w*[- ]scheduling (?:off|disabled)|disables async\w*[- ]scheduling|no-async|disable-overlap"
)
_RAW = re.compile(r"(?:no|without|without a) chat template")
_IGNORES_EOS = re.compile(
    r"(?<!no )(?<!no-)(?<!not )(?<!without )(?<!without --)ignore[-_ ]eos(?!\W{0,3}(?:false|off|0\b))"
)
"""Text that states that outputs never end early, so that each is as long as requested."""
_VOCABULARY = re.compile(r"(?:(\d+(?:\.\d+)?) ?%|(quarter|half)) of (?:the |its )?(?:full )?vocab")
_LENGTH = re.compile(r"accept\w*(?: \(\w+\))? length (?:of |is |was |= ?|at )?(\d(?:\.\d+)?)\b")
_RATE = re.compile(
    r"acceptance(?: rate)? (?:of |is |was |= ?)?"
    r"(\d+(?:\.\d+)?)(?: ?- ?(\d+(?:\.\d+)?))? ?%(?: at k ?= ?(\d+))?"
)
_OTHER_CLIENTS = re.compile(r"vllm bench|benchmark_serving|guidellm|genai-perf|aiperf|evalscope")


def case_fields(case: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Section → field → value; None where the words state nothing."""
    text = text_of(case)
    return {
        "hardware": _hardware(case, text),
        "engine_args": _engine_args(case, text),
        "workload": _workload(case, text),
        "metric_definitions": _metrics(case, text),
        **({"draft": _draft(case, text)} if _field(case, "draft", "method") else {}),
    }


def _field(case: Mapping[str, Any], section: str, name: str) -> Any:
    facts = case.get(section)
    return facts.get(name) if isinstance(facts, Mapping) else None


def _hardware(case: Mapping[str, Any], text: str) -> dict[str, Any]:
    size = _field(case, "hardware", "tp") or _field(case, "hardware", "count")
    data_parallel = stated(_DATA_PARALLEL, text) is not None
    groups = stated(_DATA_PARALLEL_GROUPS, text)
    experts = stated(_EXPERT_GROUPS, text)
    stages = next((int(n) for n in (_stages(text) or ()) if n), 1)
    shared_by_all = data_parallel and groups is not None and size == 1
    all_gpus = int(groups[1]) if shared_by_all and groups is not None else size
    return {
        "attention_dp": (int(groups[1]) if shared_by_all and groups is not None else True)
        if data_parallel
        else None,
        "ep": int(experts[1]) if experts else all_gpus if stated(_EXPERT_PARALLEL, text) else None,
        "pp": stages if 1 < stages <= _MOST_STAGES else None,
        "decodes_alone": True if _DECODES_ALONE.search(text) else None,
    }


def _stages(text: str) -> tuple[str | Any, ...] | None:
    match = stated(_STAGES, text)
    return None if match is None else match.groups()


def _engine_args(case: Mapping[str, Any], text: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for pattern, name, read in _FLAGS:
        match = re.search(rf"--{pattern}[ =](\d+(?:\.\d+)?)", text)
        if match:
            value = read(float(match[1]))
            if (0 < value <= 1) if name == "gpu_memory_utilization" else (1 <= value <= 262_144):
                fields[name] = value
    limit, kv_cache = _CONTEXT_LIMIT.search(text), _KV_CACHE.search(text)
    backends = _ATTENTION.findall(text)
    return fields | {
        "chunked_prefill": True if _CHUNKED.search(text) else None,
        "kv_cache_dtype": kv_cache[1] if kv_cache else None,
        "attention_backend": next((b for b in backends if "flashinfer" in b), next(iter(backends), None)),
        "max_model_len": int(limit[1].replace(",", "")) * (1024 if limit[2] else 1) if limit else None,
        "async_scheduling": _asynchronous(case, text),
    }


def _asynchronous(case: Mapping[str, Any], text: str) -> bool | dict[str, bool] | None:
    """Whether host work overlaps the GPU: of both variants, or by variant."""
    names = [str(_field(case, "framework", name) or "").lower() for name in ("name", "version")]
    words = f"{' '.join(names)} · {text}"
    serial = [plain for clause, plain in clauses(words) if _SERIAL.search(clause)]
    if any(serial):
        return False
    sides = {"spec": False} if serial else {}
    if re.search(r"(?:plain|baseline) without overlap", words):
        sides["baseline"] = False
    if sides:
        return sides
    return True if "--async-scheduling" in text else None


def _workload(case: Mapping[str, Any], text: str) -> dict[str, Any]:
    thinks = re.search(r"thinking|reasoning", f"{_field(case, 'target', 'model')} {text}".lower())
    return {
        "chat_template": False if _RAW.search(text) else None,
        "ends": "max_tokens" if _IGNORES_EOS.search(text) else None,
        "reasoning": True if thinks else None,
        "thinking": True if "thinking" in text else None,
    }


def _metrics(case: Mapping[str, Any], text: str) -> dict[str, Any]:
    flags = case.get("quality_flags")
    with_ttft = isinstance(flags, list) and "tpot_includes_ttft" in flags
    framework = str(_field(case, "framework", "name") or "").lower()
    per_token = re.search(r"sglang|sgl\b", framework) and not _OTHER_CLIENTS.search(f"{framework} {text}")
    return {"tpot": "with_ttft" if with_ttft else None, "itl": "per_token" if per_token else None}


def _draft(case: Mapping[str, Any], text: str) -> dict[str, Any]:
    notes = case.get("notes")
    words = " · ".join(
        note for note in (notes if isinstance(notes, list) else [notes]) if isinstance(note, str)
    )
    length, rate = _LENGTH.search(words.lower()), _RATE.search(words.lower())
    vocabulary = _VOCABULARY.search(f"{_field(case, 'draft', 'model')} · {text}".lower())
    fraction = None
    if vocabulary:
        fraction = (
            float(vocabulary[1]) / 100 if vocabulary[1] else {"quarter": 0.25, "half": 0.5}[vocabulary[2]]
        )
    return {
        "vocab_fraction": fraction if fraction is not None and 0 < fraction < 1 else None,
        "tensor_parallel": 1 if re.search(r"draft tp ?=? ?1\b", text) else None,
        "acceptance_length": float(length[1]) if length else None,
        "acceptance_rate": (float(rate[1]) + float(rate[2] or rate[1])) / 200 if rate else None,
        "acceptance_rate_at_k": int(rate[3]) if rate and rate[3] else None,
    }
