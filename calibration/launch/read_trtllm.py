"""A configuration file of TensorRT-LLM as scenario data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from calibration.launch.launch import Launch
from calibration.launch.names import drafter_name, model_name
from calibration.launch.schedule import rows_from_thresholds
from calibration.launch.trtllm import ENGINE, METHODS
from simulator.document import Document, parse_yaml
from simulator.errors import InputError
from simulator.speculation import methods

_COMMAND = re.compile(r"trtllm-(?:serve|bench)(?:\s+serve)?\s+(?!-)(\S+)")
_ALIASES = {"Eagle": "Eagle3", "DraftTarget": "Draft_Target"}
_READ = frozenset(
    "model tensor_parallel_size moe_expert_parallel_size enable_attention_dp max_batch_size max_num_tokens "
    "enable_chunked_prefill kv_cache_config cuda_graph_config speculative_config".split()
)
_LENGTH_KEYS = ("max_draft_len", "num_nextn_predict_layers")
"""The draft length, and its older name for MTP."""


def read(text: str, origin: str) -> Launch:
    """The launch in a YAML configuration. Raises InputError.

    The file does not name the served model: a comment with the command does, or the key `model`.
    """
    document = parse_yaml(text, origin)
    if not isinstance(document.data, dict):
        allowed = "a mapping as trtllm-serve --config takes it"
        raise InputError(document.problem((), None, "is no TensorRT-LLM configuration", allowed))
    if document.problems:
        raise InputError(document.problems)
    data: dict[str, Any] = document.data
    notes: list[str] = []
    command = _COMMAND.search(text)
    served = data.get("model") or (command[1] if command else None)
    cache = _section(document, "kv_cache_config")
    speculation = _section(document, "speculative_config")
    target: dict[str, Any] = {}
    if isinstance(served, str):
        target["model"] = model_name(served)
    if str(cache.get("dtype", "")).startswith("fp8"):
        target["kv_cache"] = "fp8"
    scenario: dict[str, Any] = {"target": target, "hardware": _hardware(data), "engine": _engine(data, cache)}
    if speculation:
        scenario["speculation"] = [_variant(document, speculation, notes)]
    others = [name for name in data if name not in _READ]
    if others:
        notes.append(f"not simulated: {', '.join(others)}")
    return Launch(ENGINE, None, scenario, data, speculation, tuple(notes))


def _section(document: Document, name: str) -> Mapping[str, Any]:
    section = document.data.get(name)
    if section is not None and not isinstance(section, dict):
        raise InputError(document.problem((name,), section, "is no mapping", "keys and values"))
    return section or {}


def _hardware(data: Mapping[str, Any]) -> dict[str, Any]:
    hardware = {"tensor_parallel": data.get("tensor_parallel_size", 1)}
    if data.get("moe_expert_parallel_size", 1) not in (1, None):
        hardware["expert_parallel"] = data["moe_expert_parallel_size"]
    if data.get("enable_attention_dp"):
        hardware["attention_dp"] = hardware["tensor_parallel"]
    return hardware


def _engine(data: Mapping[str, Any], cache: Mapping[str, Any]) -> dict[str, Any]:
    values = {
        "max_num_seqs": data.get("max_batch_size"),
        "max_num_batched_tokens": data.get("max_num_tokens"),
        "chunked_prefill": data.get("enable_chunked_prefill"),
        "prefix_caching": cache.get("enable_block_reuse"),
        "gpu_memory_utilization": cache.get("free_gpu_memory_fraction"),
    }
    return {"preset": "trtllm-1"} | {name: value for name, value in values.items() if value is not None}


def _variant(document: Document, config: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    kind = str(config.get("decoding_type", ""))
    kind = _ALIASES.get(kind, kind)
    method = next(
        (own_name for own_name, engine_name in METHODS.items() if engine_name.lower() == kind.lower()),
        kind.lower(),
    )
    known = methods().get(method)
    variant: dict[str, Any] = {"method": method}
    drafter = config.get("speculative_model") or config.get("speculative_model_dir")
    if isinstance(drafter, str) and (known is None or known.drafter is not None):
        variant["draft"] = drafter_name(drafter, known.drafter if known and known.drafter else method)
    length = next((config[key] for key in _LENGTH_KEYS if config.get(key) is not None), None)
    if length is not None:
        variant["draft_length"] = length
    schedule = config.get("draft_len_schedule")
    if schedule is not None:
        variant["draft_length"] = _schedule(document, schedule)
    elif config.get("max_concurrency") is not None and isinstance(length, int):
        variant["draft_length"] = [
            [1, config["max_concurrency"], length],
            [config["max_concurrency"] + 1, None, 0],
        ]
    if config.get("use_dynamic_tree"):
        variant["tree"] = {
            "depth": length,
            "top_k": config.get("dynamic_tree_max_topK"),
            "nodes": config.get("max_total_draft_tokens", 0) + 1,
            "dynamic": True,
        }
    if config.get("acceptance_rate_threshold") is not None:
        notes.append(
            "acceptance_rate_threshold is not simulated: speculation never switches off by itself here"
        )
    return variant


def _schedule(document: Document, schedule: Any) -> list[list[int | None]]:
    entries = schedule.items() if isinstance(schedule, dict) else ()
    valid = {int(high): k for high, k in entries if high.isdecimal() and int(high) > 0 and type(k) is int}
    if not valid or len(valid) != len(schedule):
        path = ("speculative_config", "draft_len_schedule")
        raise InputError(document.problem(path, None, "is no schedule", "largest batch: draft length"))
    return rows_from_thresholds(valid)
