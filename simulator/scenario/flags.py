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
    flagged = {name: value for name, value in flags.items() if value is not None}
    problems = []
    if "model" not in flagged:
        problems.append(
            Problem(
                field="--model",
                message="is missing",
                allowed=("a catalogue name or the path of a config.json; or give a scenario file"),
            )
        )
    if "method" not in flagged or flagged["method"] == "none":
        problems += [
            Problem(
                field=flag_of(name),
                message="has no meaning without a method",
                allowed="--method, see the methods known in --help",
            )
            for name in VARIANT_FLAGS
            if name in flagged
        ]
    if problems:
        raise InputError(problems)
    data: dict[str, Any] = {
        "target": _some(
            model=flagged["model"], weights=flagged.get("weights"), kv_cache=flagged.get("kv_cache")
        ),
        "hardware": _some(gpu=flagged.get("gpu", "h100-sxm"), tensor_parallel=flagged.get("tensor_parallel")),
        "speculation": [],
        "workload": {"arrivals": {"kind": "closed", "concurrency": flagged.get("concurrency", 64)}},
    }
    if "preset" in flagged:
        data["engine"] = {"preset": flagged["preset"]}
    if flagged.get("method", "none") != "none":
        data["speculation"] = [_variant(flagged)]
    return scenario_from_data(data, base_dir, overrides, "command line", _ORIGINS)


def _variant(flagged: Mapping[str, Any]) -> dict[str, Any]:
    variant = _some(method=flagged["method"], draft=flagged.get("draft"))
    if "draft_length" in flagged:
        variant["draft_length"] = draft_length_of(flagged["draft_length"])
    if "alpha" in flagged:
        variant["acceptance"] = {"model": "geometric", "alpha": flagged["alpha"]}
    return variant


def _some(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
