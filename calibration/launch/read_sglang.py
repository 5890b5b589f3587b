"""An SGLang launch line as scenario data, with its adaptive configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibration.launch.launch import Launch
from calibration.launch.line import LaunchLine, parse_line
from calibration.launch.names import drafter_name, model_name
from calibration.launch.numbers import fraction, whole_number
from calibration.launch.schedule import rows_from_bounds
from calibration.launch.sglang import ENGINE, METHODS
from simulator.document import parse_yaml
from simulator.errors import InputError, Problem
from simulator.scenario.load import read_text
from simulator.speculation import methods

ORIGIN = "--from-sglang"
SWITCHES = frozenset(
    "--trust-remote-code --disable-cuda-graph --disable-radix-cache --enable-dp-attention "
    "--speculative-adaptive --disable-overlap-schedule --enable-mixed-chunk --enable-metrics "
    "--enable-torch-compile --speculative-use-rejection-sampling --speculative-use-block-verification "
    "--skip-server-warmup --log-requests --enable-ep-moe --disable-custom-all-reduce".split()
)
_SIMULATED = frozenset(
    "--model-path --model --tp-size --tensor-parallel-size --tp --dp-size --data-parallel-size --dp "
    "--ep-size --expert-parallel-size --ep --enable-dp-attention --quantization --kv-cache-dtype "
    "--max-running-requests --chunked-prefill-size --mem-fraction-static --disable-radix-cache".split()
)
_NO_EFFECT = frozenset(
    "--host --port --api-key --served-model-name --trust-remote-code --random-seed --dtype "
    "--tokenizer-path --chat-template --log-level --enable-metrics --context-length "
    "--skip-server-warmup --load-format".split()
)
_QUANTIZATION = {
    "fp8": "fp8",
    "awq": "int4",
    "gptq": "int4",
    "gptq_marlin": "int4",
    "awq_marlin": "int4",
    "mxfp4": "mxfp4",
}
_MORE_LLAMA = ("llama", "grok", "vicuna")
_DEFAULT_SHAPE, _LLAMA_SHAPE = (3, 1, 4), (5, 4, 8)
"""(steps, topk, draft tokens) where a line sets none of the three (`server_args.py`)."""


def read(text: str, origin: str = ORIGIN, base_dir: Path = Path(".")) -> Launch:
    """The launch in a line of `sglang.launch_server`, or in its options alone. Raises InputError.

    An adaptive configuration that the line names is read relative to `base_dir`.
    """
    line = parse_line(text, origin, SWITCHES)
    if line.engine not in (None, ENGINE):
        raise InputError(Problem(origin, message=f"starts {line.engine}", allowed=f"--from-{line.engine}"))
    served = line.value("--model-path", "--model") or next(iter(line.arguments), None)
    if served is None:
        raise InputError(
            Problem(origin, field="--model-path", message="is missing", allowed="the served model")
        )
    speculation = {
        flag.name.removeprefix("--speculative-").replace("-", "_"): flag.value
        for flag in line.flags
        if flag.name.startswith("--speculative-")
    }
    notes: list[str] = []
    scenario: dict[str, Any] = {
        "target": {"model": model_name(served)},
        "hardware": _hardware(line),
        "engine": _engine(line),
    }
    quantization = line.value("--quantization")
    if quantization in _QUANTIZATION:
        scenario["target"]["weights"] = _QUANTIZATION[quantization]
    elif quantization is not None:
        notes.append(f"--quantization {quantization} is not read: the weights are those of the name")
    if (line.value("--kv-cache-dtype") or "").startswith("fp8"):
        scenario["target"]["kv_cache"] = "fp8"
    if speculation.get("algorithm"):
        scenario["speculation"] = [_variant(line, served, base_dir, notes)]
    known = _SIMULATED | _NO_EFFECT
    others = dict.fromkeys(
        flag.name
        for flag in line.flags
        if flag.name not in known and not flag.name.startswith("--speculative-")
    )
    if others:
        notes.append(f"not simulated: {', '.join(others)}")
    settings = {flag.name: flag.value for flag in line.flags}
    return Launch(ENGINE, line.version, scenario, settings, speculation, tuple(notes))


def _hardware(line: LaunchLine) -> dict[str, Any]:
    hardware = {"tensor_parallel": whole_number(line, "--tp-size", "--tensor-parallel-size", "--tp") or 1}
    groups = whole_number(line, "--dp-size", "--data-parallel-size", "--dp") or 1
    if groups > 1:
        hardware["attention_dp" if line.has("--enable-dp-attention") else "replicas"] = groups
    experts = whole_number(line, "--ep-size", "--expert-parallel-size", "--ep") or 1
    if experts > 1:
        hardware["expert_parallel"] = experts
    return hardware


def _engine(line: LaunchLine) -> dict[str, Any]:
    engine: dict[str, Any] = {"preset": f"{ENGINE}-{line.version or '0.5'}"}
    chunk = whole_number(line, "--chunked-prefill-size")
    numbers = {
        "max_num_seqs": whole_number(line, "--max-running-requests"),
        "max_num_batched_tokens": chunk if chunk is not None and chunk > 0 else None,
        "gpu_memory_utilization": fraction(line, "--mem-fraction-static"),
    }
    engine |= {name: value for name, value in numbers.items() if value is not None}
    if chunk is not None and chunk <= 0:
        engine["chunked_prefill"] = False
    if line.has("--disable-radix-cache"):
        engine["prefix_caching"] = False
    return engine


def _variant(line: LaunchLine, served: str, base_dir: Path, notes: list[str]) -> dict[str, Any]:
    algorithm = line.value("--speculative-algorithm") or ""
    method = next(
        (own_name for own_name, engine_name in METHODS.items() if engine_name == algorithm.upper()),
        algorithm.lower(),
    )
    known = methods().get(method)
    variant: dict[str, Any] = {"method": method}
    drafter = line.value("--speculative-draft-model-path", "--speculative-draft-model")
    if drafter is not None and (known is None or known.drafter is not None):
        variant["draft"] = drafter_name(drafter, known.drafter if known and known.drafter else method)
    shape = [
        whole_number(line, f"--speculative-{name}")
        for name in ("num-steps", "eagle-topk", "num-draft-tokens")
    ]
    if all(part is None for part in shape):
        shape = [*(_LLAMA_SHAPE if any(name in served.lower() for name in _MORE_LLAMA) else _DEFAULT_SHAPE)]
        notes.append(
            f"SGLang chooses steps, topk and draft tokens by itself: {', '.join(map(str, shape))} taken"
        )
    steps, top_k, tokens = shape
    if tokens is not None and steps is None:
        steps = tokens - 1
    variant["draft_length"] = steps if steps is not None else _DEFAULT_SHAPE[0]
    if top_k is not None and top_k > 1 and tokens is not None:
        variant["tree"] = {"depth": variant["draft_length"], "top_k": top_k, "nodes": tokens, "dynamic": True}
    file = line.value("--speculative-adaptive-config")
    if line.has("--speculative-adaptive") or file is not None:
        if file is None:
            notes.append("SGLang's own adaptive schedule is not read: K is that of --speculative-num-steps")
        else:
            variant["draft_length"] = _adaptive(base_dir / file, notes)
    return variant


def _adaptive(path: Path, notes: list[str]) -> list[list[int | None]]:
    """The table of an adaptive configuration; where it has several candidates, the longest."""
    document = parse_yaml(read_text(path), str(path))
    bounds: dict[int, int] = {}
    several = False
    entries: Mapping[str, Any] = document.data if isinstance(document.data, dict) else {}
    for bound, entry in entries.items():
        candidates = entry.get("candidate_steps") if isinstance(entry, dict) else None
        is_list = isinstance(candidates, list) and candidates and all(type(k) is int for k in candidates)
        if not bound.isdecimal() or not is_list:
            allowed = '{"1": {"candidate_steps": [1, 3]}, "32": {"candidate_steps": [0]}}'
            raise InputError(
                document.problem((bound,), None, "is no entry of an adaptive configuration", allowed)
            )
        assert candidates is not None
        bounds[int(bound)] = max(candidates)
        several |= len(candidates) > 1
    if not bounds:
        raise InputError(
            document.problem((), None, "is no adaptive configuration", "an object by batch size")
        )
    if several:
        notes.append(f"{path}: of several candidates for K the longest is taken")
    return rows_from_bounds(bounds)
