"""A vLLM launch line as scenario data: today's options and those before 0.8, which had one per field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calibration.launch.launch import Launch
from calibration.launch.line import LaunchLine, parse_line
from calibration.launch.names import drafter_name, model_name
from calibration.launch.numbers import fraction, whole_number
from calibration.launch.schedule import rows_from_triples
from calibration.launch.vllm import ENGINE, METHODS
from simulator.document import parse_yaml
from simulator.engines.presets import release_of
from simulator.errors import InputError, Problem
from simulator.speculation import methods

ORIGIN = "--from-vllm"
SWITCHES = frozenset(
    f"--{no}{name}"
    for name in (
        "enforce-eager enable-prefix-caching enable-chunked-prefill enable-expert-parallel trust-remote-code "
        "async-scheduling disable-log-requests disable-log-stats enable-log-requests enable-lora "
        "enable-auto-tool-choice headless enable-sleep-mode disable-custom-all-reduce enable-dbo"
    ).split()
    for no in ("", "no-")
)
_LEGACY: Mapping[str, str] = {
    "--speculative-model": "model",
    "--num-speculative-tokens": "num_speculative_tokens",
    "--speculative-draft-tensor-parallel-size": "draft_tensor_parallel_size",
    "--speculative-max-model-len": "max_model_len",
    "--speculative-disable-by-batch-size": "disable_by_batch_size",
    "--ngram-prompt-lookup-max": "prompt_lookup_max",
    "--ngram-prompt-lookup-min": "prompt_lookup_min",
    "--spec-method": "method",
    "--spec-model": "model",
    "--spec-tokens": "num_speculative_tokens",
}
"""Options that set one key of the configuration: those before 0.8, and today's short ones."""
_CONFIG = ("--speculative-config", "-sc")
_SIMULATED = frozenset(
    "--model --tensor-parallel-size -tp --data-parallel-size -dp --enable-expert-parallel -ep "
    "--no-enable-expert-parallel --quantization -q --kv-cache-dtype --max-num-seqs "
    "--max-num-batched-tokens --gpu-memory-utilization --enable-prefix-caching "
    "--no-enable-prefix-caching --enable-chunked-prefill --no-enable-chunked-prefill --async-scheduling "
    "--no-async-scheduling".split()
)
_NO_EFFECT = frozenset(
    "--host --port --api-key --served-model-name --trust-remote-code --seed --dtype --tokenizer "
    "--revision --chat-template --download-dir --disable-log-requests --enable-log-requests "
    "--disable-log-stats --uvicorn-log-level --enable-auto-tool-choice --tool-call-parser "
    "--reasoning-parser --generation-config --max-model-len --no-enable-log-requests --load-format "
    "--tokenizer-mode".split()
)
_QUANTIZATION = {
    "fp8": "fp8",
    "awq": "int4",
    "awq_marlin": "int4",
    "gptq": "int4",
    "gptq_marlin": "int4",
    "mxfp4": "mxfp4",
}
_FP8_CACHE = ("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc")
_MODEL_WORDS = (("eagle3", "eagle3"), ("eagle-", "eagle"), ("[ngram]", "ngram"))
"""What vLLM infers the method from where none is given: words of the drafter's name."""


def read(text: str, origin: str = ORIGIN) -> Launch:
    """The launch in a line of `vllm serve`, of the older module, or of a container. Raises InputError."""
    line = parse_line(text, origin, SWITCHES)
    if line.engine not in (None, ENGINE):
        raise InputError(Problem(origin, message=f"starts {line.engine}", allowed=f"--from-{line.engine}"))
    config = _speculation(line, origin)
    notes: list[str] = []
    served = line.value("--model") or next(iter(line.arguments), None)
    if served is None:
        raise InputError(Problem(origin, field="model", message="is missing", allowed="vllm serve MODEL …"))
    scenario: dict[str, Any] = {
        "target": {"model": model_name(served)},
        "hardware": _hardware(line),
        "engine": _engine(line, config),
    }
    quantization = line.value("--quantization", "-q")
    if quantization in _QUANTIZATION:
        scenario["target"]["weights"] = _QUANTIZATION[quantization]
    elif quantization is not None:
        notes.append(f"--quantization {quantization} is not read: the weights are those of the name")
    if line.value("--kv-cache-dtype") in _FP8_CACHE:
        scenario["target"]["kv_cache"] = "fp8"
    if config:
        scenario["speculation"] = [_variant(config, notes)]
    notes += _left_out(line)
    return Launch(ENGINE, line.version, scenario, _settings(line), config, tuple(notes))


def read_config(text: str, origin: str) -> Launch:
    """The launch in a speculative configuration alone, which states no model. Raises InputError."""
    config = parse_config(text, origin)
    notes: list[str] = []
    scenario = {
        "target": {},
        "hardware": {"tensor_parallel": 1},
        "engine": {},
        "speculation": [_variant(config, notes)],
    }
    return Launch(ENGINE, None, scenario, {}, config, tuple(notes))


def _settings(line: LaunchLine) -> dict[str, Any]:
    return {flag.name: flag.value for flag in line.flags} | {
        f"${name}": value for name, value in line.variables.items()
    }


def _hardware(line: LaunchLine) -> dict[str, Any]:
    ranks = whole_number(line, "--tensor-parallel-size", "-tp") or 1
    groups = whole_number(line, "--data-parallel-size", "-dp") or 1
    hardware = {"tensor_parallel": ranks * groups}
    if groups > 1:
        hardware["attention_dp"] = groups
    if line.has("--enable-expert-parallel", "-ep"):
        hardware["expert_parallel"] = ranks * groups
    return hardware


def _engine(line: LaunchLine, config: Mapping[str, Any]) -> dict[str, Any]:
    synchronous = line.has("--no-async-scheduling") or config.get("method") in ("ngram", "[ngram]")
    engine: dict[str, Any] = {}
    if line.version is not None:
        engine["preset"] = f"{ENGINE}-{line.version}"
    if synchronous and not (line.version and release_of(line.version) < (0, 14)):
        engine["preset"] = f"{engine.get('preset', 'vllm-0.33')}-sync"
    numbers = {
        "max_num_seqs": whole_number(line, "--max-num-seqs"),
        "max_num_batched_tokens": whole_number(line, "--max-num-batched-tokens"),
        "gpu_memory_utilization": fraction(line, "--gpu-memory-utilization"),
    }
    engine |= {name: value for name, value in numbers.items() if value is not None}
    for name in ("chunked_prefill", "prefix_caching"):
        option = name.replace("_", "-")
        switched_off = line.has(f"--no-enable-{option}") or line.value(f"--enable-{option}") in (
            "False",
            "false",
        )
        if switched_off:
            engine[name] = False
    return engine


def _speculation(line: LaunchLine, origin: str) -> dict[str, Any]:
    """The speculative configuration from all options that set it, under its names of today."""
    config: dict[str, Any] = {}
    for flag in line.flags:
        option, dot, key = flag.name.partition(".")
        if option in _CONFIG and dot:
            config[key] = _scalar(flag.value)
        elif option in _CONFIG:
            config |= parse_config(flag.value or "", f"{origin}: {flag.written}")
        elif option in _LEGACY:
            config[_LEGACY[option]] = _scalar(flag.value)
    if config.get("model") == "[ngram]":
        config["method"] = "ngram"
        del config["model"]
    return config


def parse_config(text: str, origin: str) -> dict[str, Any]:
    """The JSON of a speculative configuration, or a Python dictionary as people paste it.

    Raises InputError.
    """
    document = parse_yaml(text, origin)
    if document.problems:
        raise InputError(document.problems)
    if not isinstance(document.data, dict):
        allowed = """a JSON object in single quotes: '{"method": …}'"""
        raise InputError(Problem(origin, value=text, message="is no JSON object", allowed=allowed))
    return document.data


def _scalar(value: str | None) -> Any:
    if value is None:
        return True
    return int(value) if value.isdecimal() else {"true": True, "false": False}.get(value.lower(), value)


def method_of(config: Mapping[str, Any]) -> str:
    """The method of a configuration, inferred as vLLM infers it where none is named."""
    named = config.get("method")
    if isinstance(named, str):
        return "mtp" if named.endswith("_mtp") else named
    model = str(config.get("model", "")).lower()
    return next((method for word, method in _MODEL_WORDS if word in model), "draft_model" if model else "mtp")


def _variant(config: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    named = method_of(config)
    method = next((own_name for own_name, engine_name in METHODS.items() if engine_name == named), None)
    method = "ngram" if named == "ngram_gpu" else method or named
    variant: dict[str, Any] = {"method": method}
    known = methods().get(method)
    if isinstance(config.get("model"), str) and (known is None or known.drafter is not None):
        variant["draft"] = drafter_name(config["model"], known.drafter if known and known.drafter else method)
    length, triples = (
        config.get("num_speculative_tokens"),
        config.get("num_speculative_tokens_per_batch_size"),
    )
    if length is not None:
        variant["draft_length"] = length
    if triples is not None:
        variant["draft_length"] = _table(triples, length)
    if config.get("draft_tensor_parallel_size") is not None:
        variant["draft_tensor_parallel"] = config["draft_tensor_parallel_size"]
    if config.get("max_model_len") is not None:
        variant["max_context_tokens"] = config["max_model_len"]
    if config.get("draft_sample_method") == "probabilistic":
        variant["draft_sampling"] = "sampled"
    if config.get("rejection_sample_method") == "synthetic" and config.get("synthetic_acceptance_rates"):
        variant["acceptance"] = {"model": "positional", "survival": config["synthetic_acceptance_rates"]}
        notes.append("acceptance is that of rejection_sample_method synthetic, not of your prompts")
    if config.get("parallel_drafting"):
        notes.append("parallel_drafting is not simulated: the draft passes are priced one after another")
    return variant


def _table(triples: Any, length: Any) -> Any:
    """The schedule as a table; something else is passed on, and refused with the scenario."""
    is_schedule = isinstance(triples, list) and all(
        isinstance(row, list) and len(row) == 3 and all(isinstance(part, int) for part in row)
        for row in triples
    )
    if not triples or not is_schedule:
        return triples
    most = length if isinstance(length, int) else None
    return rows_from_triples([[low, high, k if most is None else min(k, most)] for low, high, k in triples])


def _left_out(line: LaunchLine) -> list[str]:
    known = _SIMULATED | _NO_EFFECT | frozenset(_LEGACY) | frozenset(_CONFIG)
    names = dict.fromkeys(flag.name for flag in line.flags if flag.name.partition(".")[0] not in known)
    return [f"not simulated: {', '.join(names)}"] if names else []
