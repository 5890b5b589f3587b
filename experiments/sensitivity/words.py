"""Inputs and answers of a sensitivity study in words, and the study as one JSON document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from experiments.sensitivity.inputs import UncertainInput
from experiments.sensitivity.runs import BREAK_EVEN, SPEEDUP
from simulator.results.catalogue import COMPARED
from simulator.units import format_seconds

if TYPE_CHECKING:
    from experiments.sensitivity.sobol import Sobol
    from experiments.sensitivity.tornado import Tornado


def answer_words(of: str) -> str:
    """What was asked for: `speedup`, `break-even α`, `ITL P99 ratio`."""
    if of == BREAK_EVEN:
        return "break-even α"
    if of == SPEEDUP:
        return "speedup"
    return COMPARED[of].title


def bound(one: UncertainInput, value: float) -> str:
    """A value of an input with its unit: `× 0.9`, `130 µs`, `0.65`."""
    if one.factor:
        return f"× {value:.2f}"
    return format_seconds(value) if one.unit == "s" else f"{value:.4g}"


def study_json(tornado: Tornado, found: Sobol | None) -> dict[str, Any]:
    """The document of `decodesim sensitivity --json`: one entry per input, with its indices where they were
    asked for.
    """
    indices = {} if found is None else {index.input.knob: index for index in found.indices}
    inputs = []
    for bar in tornado.bars:
        one, index = bar.input, indices.get(bar.input.knob)
        inputs.append(
            {
                "name": one.name,
                "knob": one.knob,
                "low": one.low,
                "nominal": one.nominal,
                "high": one.high,
                "unit": one.unit,
                "source": one.source,
                "at_low": bar.at_low and bar.at_low.to_json(),
                "at_high": bar.at_high and bar.at_high.to_json(),
                "first_order": index and index.first_order.to_json(),
                "total_order": index and index.total_order.to_json(),
            }
        )
    spread = found and {
        "samples": found.samples,
        "mean": found.mean,
        "sd": found.sd,
        **found.quantiles,
        "pays_share": found.pays_share,
    }
    return {
        "schema": "decodesim/sensitivity-1",
        "arm": tornado.variant,
        "of": tornado.of,
        "base": tornado.base.to_json(),
        "inputs": inputs,
        "together": spread,
        "notes": list(tornado.notes),
    }
