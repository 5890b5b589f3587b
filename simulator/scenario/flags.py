"""A scenario from a few flags, for a first answer without a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from simulator.document import DataPath, parse_yaml
from simulator.errors import InputError, Problem
from simulator.scenario.load import scenario_from_data
from simulator.scenario.schema import Scenario

EXAMPLE: Mapping[str, Any] = {
    "model": "llama-3.3-70b-instruct",
    "weights": "fp8",
    "kv_cache": "fp8",
    "gpu": "h100-sxm",
    "tensor_parallel": 4,
    "method": "eagle3",
    "draft": "eagle3-llama-3.3-70b",
    "draft_length": 3,
    "alpha": 0.7,
    "concurrency": 64,
}
"""The flags that `init` uses when it gets none."""

_VARIANT_FLAGS = ("draft", "draft_length", "alpha")

_PLACES: Mapping[str, DataPath] = {
    "model": ("target", "model"),
    "weights": ("target", "weights"),
    "kv_cache": ("target", "kv_cache"),
    "gpu": ("hardware", "gpu"),
    "tensor_parallel": ("hardware", "tensor_parallel"),
    "preset": ("engine", "preset"),
    "method": ("speculation", 0, "method"),
    "draft": ("speculation", 0, "draft"),
    "draft_length": ("speculation", 0, "draft_length"),
    "alpha": ("speculation", 0, "acceptance", "alpha"),
    "concurrency": ("workload", "arrivals", "concurrency"),
}
"""Flag → the field that it sets."""

_ORIGINS: Mapping[DataPath, str] = {
    path: "--tp" if name == "tensor_parallel" else f"--{name.replace('_', '-')}"
    for name, path in _PLACES.items()
}


def scenario_from_flags(
    flags: Mapping[str, Any], overrides: Sequence[str] = (), base_dir: Path = Path(".")
) -> Scenario:
    """The scenario that the flags describe; a flag that is None was not given.

    Keys: model, weights, kv_cache, gpu, tensor_parallel, preset, method, draft, draft_length, alpha,
    concurrency. Not given: GPU h100-sxm, one GPU, 64 clients, no speculation. Raises InputError.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    problems = []
    if "model" not in given:
        problems.append(
            Problem(
                field="--model",
                message="is missing",
                allowed=("a catalogue name or the path of a config.json; or give a scenario file"),
            )
        )
    if "method" not in given or given["method"] == "none":
        problems += [
            Problem(
                field=f"--{name.replace('_', '-')}",
                message="has no meaning without a method",
                allowed="--method, see the methods known in --help",
            )
            for name in _VARIANT_FLAGS
            if name in given
        ]
    if problems:
        raise InputError(problems)
    data: dict[str, Any] = {
        "target": _some(model=given["model"], weights=given.get("weights"), kv_cache=given.get("kv_cache")),
        "hardware": _some(gpu=given.get("gpu", "h100-sxm"), tensor_parallel=given.get("tensor_parallel")),
        "speculation": [],
        "workload": {"arrivals": {"kind": "closed", "concurrency": given.get("concurrency", 64)}},
    }
    if "preset" in given:
        data["engine"] = {"preset": given["preset"]}
    if given.get("method", "none") != "none":
        data["speculation"] = [_variant(given)]
    return scenario_from_data(data, base_dir, overrides, "command line", _ORIGINS)


def _variant(given: Mapping[str, Any]) -> dict[str, Any]:
    variant = _some(method=given["method"], draft=given.get("draft"))
    if "draft_length" in given:
        length = given["draft_length"]
        variant["draft_length"] = (
            parse_yaml(length, "--draft-length").data if isinstance(length, str) else length
        )
    if "alpha" in given:
        variant["acceptance"] = {"model": "geometric", "alpha": given["alpha"]}
    return variant


def _some(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def with_flags(data: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scenario's plain data with flags in the place of what it states; None: a flag was not given.

    Flags of a variant change the first; another method replaces it. Raises InputError for those without one.
    """
    changed = deepcopy(dict(data))
    for name, value in flags.items():
        if value is None:
            continue
        path = _PLACES[name]
        if path[0] == "speculation":
            _set_of_variant(changed, name, value)
            continue
        holder: Any = changed
        for key in path[:-1]:
            holder = holder.setdefault(key, {})
        holder[path[-1]] = int(value) if name == "concurrency" and str(value).isdecimal() else value
    return changed


def _set_of_variant(data: dict[str, Any], name: str, value: Any) -> None:
    variants = data.setdefault("speculation", [])
    if name == "method" and (not variants or variants[0].get("method") != value):
        variants[:] = [] if value == "none" else [{"method": value}]
    elif not variants:
        flag = f"--{name.replace('_', '-')}"
        raise InputError(Problem(field=flag, message="has no meaning without a method", allowed="--method"))
    else:
        variants[0] |= {
            key: part for key, part in _variant({"method": variants[0]["method"], name: value}).items()
        }
