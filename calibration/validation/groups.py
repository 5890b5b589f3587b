"""How rows are grouped in tables: GPU, serving engine, method, batch band, source, seen by a fit or not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Any, TypeVar

from calibration.validation.row import Row

Key = TypeVar("Key", bound=Hashable)

SPEC_BUNDLE = "specforge:spec_bundle"
"""One source that is most of the points, at batch 1 and 8 alone: it is reported apart."""

_GPUS = ("H100", "H200", "A100", "B200")
_ENGINES: Mapping[str, str] = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "trt": "TensorRT-LLM",
    "tensorrt": "TensorRT-LLM",
}
RESEARCH = "research code"

KNOWN_ACCEPTANCE = ("given", "joined", "none")
"""Where the acceptance of rows is from that count: priors are reported, and plain decoding needs none."""
MEASURED_GPUS = ("H100", "H200")
"""Families with kernel tables of their own: elsewhere what the kernels leave over is not the host."""

_BANDS = (1, 8, 32, 128)
"""Largest batch of each band but the last."""


def gpu_of(row: Row) -> str:
    """The GPU's family."""
    return next((name for name in _GPUS if name.lower() in row.gpu.lower()), "other")


def engine_of(row: Row) -> str:
    """The serving engine without its version."""
    if row.research:
        return RESEARCH
    said = re.sub(r"[^a-z]", "", row.engine.lower())
    return next((name for key, name in _ENGINES.items() if key in said), RESEARCH)


def method_of(row: Row) -> str:
    """The speculation method; plain decoding has none."""
    return "plain" if row.variant == "plain" else row.method or "not said"


def band_of(row: Row) -> str:
    """`9–32`: the batch, in half a dozen bands; rates and bursts by their name."""
    if row.batch is None:
        return row.load or "not said"
    first = 1
    for last in _BANDS:
        if row.batch <= last:
            return str(last) if first == last else f"{first}–{last}"
        first = last + 1
    return f"{first} and more"


BY: Mapping[str, Callable[[Row], str]] = {
    "GPU": gpu_of,
    "engine": engine_of,
    "method": method_of,
    "batch": band_of,
}
"""Name of a grouping → the group of a row."""


def grouped(rows: Iterable[Row], by: Callable[[Row], Key]) -> dict[Key, list[Row]]:
    """Group → its rows, in order of appearance."""
    found: dict[Key, list[Row]] = {}
    for row in rows:
        found.setdefault(by(row), []).append(row)
    return found


@cache
def fit_record() -> Mapping[str, Any]:
    """What the fit of the presets' free parameters left; empty where there was none."""
    file = resources.files("calibration").joinpath("published", "fit.json")
    found: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return found


@cache
def fit_sources() -> frozenset[str]:
    """Sources that the presets' free parameters were fitted on."""
    return frozenset(fit_record().get("fit_sources", ()))


def held_out(row: Row) -> bool:
    """Whether no parameter was fitted on this row's source."""
    return row.source not in fit_sources()


def set_a_constant(row: Row) -> bool:
    """Whether rows of this quantity and source set a constant of a preset outside the fit."""
    return row.quantity in fit_record().get("also_used", {}).get(row.source, ())
