"""A scenario from a few flags, for a first answer without a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simulator.document import DataPath
from simulator.errors import InputError, Problem
from simulator.scenario.flag_overrides import FIELDS, VARIANT_FLAGS, draft_length_of, flag_of
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

_ORIGINS: Mapping[DataPath, str] = {path: flag_of(name) for name, path in FIELDS.items()}


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
                field=flag_of(name),
                message="has no meaning without a method",
                allowed="--method, see the methods known in --help",
            )
            for name in VARIANT_FLAGS
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
        variant["draft_length"] = draft_length_of(given["draft_length"])
    if "alpha" in given:
        variant["acceptance"] = {"model": "geometric", "alpha": given["alpha"]}
    return variant


def _some(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
