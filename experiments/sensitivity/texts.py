"""Texts for the inputs and answers of a sensitivity study, and the study as one JSON document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from experiments.sensitivity.inputs import UncertainInput
from experiments.sensitivity.runs import BREAK_EVEN, SPEEDUP
from simulator.results.catalogue import COMPARED
from simulator.units import format_seconds

if TYPE_CHECKING:
    from experiments.sensitivity.sobol import Sobol
    from experiments.sensitivity.tornado import Tornado


def answer_text(of: str) -> str:
    """The name of an answer: `speedup`, `break-even α`, `ITL P99 ratio`."""
    if of == BREAK_EVEN:
        return "break-even α"
    if of == SPEEDUP:
        return "speedup"
    return COMPARED[of].title


def value_text(uncertain_input: UncertainInput, value: float) -> str:
    """A value of an input with its unit: `× 0.9`, `130 µs`, `0.65`."""
    if uncertain_input.factor:
        return f"× {value:.2f}"
    return format_seconds(value) if uncertain_input.unit == "s" else f"{value:.4g}"


def range_text(uncertain_input: UncertainInput) -> str:
    """The name of an input, its range, and the source of the range."""
    low, high = (value_text(uncertain_input, end) for end in (uncertain_input.low, uncertain_input.high))
    return f"{uncertain_input.name}, {low} to {high}: {uncertain_input.source}"


def study_json(tornado: Tornado, sobol: Sobol | None) -> dict[str, Any]:
    """The document of `decodesim sensitivity --json`: one uncertain_input per input, with its indices where
    they were asked for.
    """
    indices = {} if sobol is None else {index.input.parameter: index for index in sobol.indices}
    inputs = []
    for bar in tornado.bars:
        uncertain_input, index = bar.input, indices.get(bar.input.parameter)
        inputs.append(
            {
                "name": uncertain_input.name,
                "knob": uncertain_input.parameter,
                "low": uncertain_input.low,
                "nominal": uncertain_input.nominal,
                "high": uncertain_input.high,
                "unit": uncertain_input.unit,
                "source": uncertain_input.source,
                "at_low": bar.at_low and bar.at_low.to_json(),
                "at_high": bar.at_high and bar.at_high.to_json(),
                "first_order": index and index.first_order.to_json(),
                "total_order": index and index.total_order.to_json(),
            }
        )
    spread = sobol and {
        "samples": sobol.samples,
        "mean": sobol.mean,
        "sd": sobol.sd,
        **sobol.quantiles,
        "pays_share": sobol.pays_share,
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
