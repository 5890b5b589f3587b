"""How tables group rows: by GPU, serving engine, method, batch band, source and use in a fit."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Any, TypeVar

from calibration.validation.row import ComparisonRow

Key = TypeVar("Key", bound=Hashable)

SPEC_BUNDLE = "specforge:spec_bundle"
"""This source has most of the points, all at batch 1 or 8, so it is reported apart."""

_GPUS = ("H100", "H200", "A100", "B200")
_ENGINES: Mapping[str, str] = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "trt": "TensorRT-LLM",
    "tensorrt": "TensorRT-LLM",
}
RESEARCH = "research code"

KNOWN_ACCEPTANCE = ("given", "joined", "none")
"""Origins of acceptance whose rows count for the targets; rows with a prior are only reported."""
MEASURED_GPUS = ("H100", "H200")
"""GPU families with kernel tables of their own. On others the time that the kernels leave unexplained is not
host time.
"""

_BANDS = (1, 8, 32, 128)
"""Largest batch of each band but the last."""


def gpu_of(row: ComparisonRow) -> str:
    """The GPU's family."""
    return next((name for name in _GPUS if name.lower() in row.gpu.lower()), "other")


def engine_of(row: ComparisonRow) -> str:
    """The serving engine without its version."""
    if row.research:
        return RESEARCH
    letters = re.sub(r"[^a-z]", "", row.engine.lower())
    return next((name for key, name in _ENGINES.items() if key in letters), RESEARCH)


def method_of(row: ComparisonRow) -> str:
    """The speculation method; plain decoding has none."""
    return "plain" if row.variant == "plain" else row.method or "not stated"


def band_of(row: ComparisonRow) -> str:
    """The band of the batch, such as `9–32`; rates and bursts by their name."""
    if row.batch is None:
        return row.load or "not stated"
    first = 1
    for last in _BANDS:
        if row.batch <= last:
            return str(last) if first == last else f"{first}–{last}"
        first = last + 1
    return f"{first} and more"


BY: Mapping[str, Callable[[ComparisonRow], str]] = {
    "GPU": gpu_of,
    "engine": engine_of,
    "method": method_of,
    "batch": band_of,
}
"""Name of a grouping → the group of a row."""


def grouped(
    rows: Iterable[ComparisonRow], by: Callable[[ComparisonRow], Key]
) -> dict[Key, list[ComparisonRow]]:
    """Group → its rows, in order of appearance."""
    groups: dict[Key, list[ComparisonRow]] = {}
    for row in rows:
        groups.setdefault(by(row), []).append(row)
    return groups


@cache
def fit_record() -> Mapping[str, Any]:
    """The record of the fit of the presets' free parameters; empty without a fit."""
    file = resources.files("calibration").joinpath("published", "fit.json")
    record: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return record


@cache
def fit_sources() -> frozenset[str]:
    """Sources that the presets' free parameters were fitted on."""
    return frozenset(fit_record().get("fit_sources", ()))


def held_out(row: ComparisonRow) -> bool:
    """Whether no parameter was fitted on this row's source."""
    return row.source not in fit_sources()


def set_a_constant(row: ComparisonRow) -> bool:
    """Whether a constant of a preset outside the fit was set by rows of this quantity and source."""
    return row.quantity in fit_record().get("also_used", {}).get(row.source, ())
