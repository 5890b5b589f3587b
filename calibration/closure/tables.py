"""Tables of the closed loop from its JSON document, for terminals, pages and docs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

JsonObject = Mapping[str, Any]
_NONE = "–"
_STEPS = {
    "plain": ("measured_plain_step_s", "predicted_plain_step_s"),
    "verify": ("measured_verify_s", "predicted_verify_s"),
    "draft": ("measured_draft_pass_s", "predicted_draft_pass_s"),
    "cycle": ("measured_step_s", "predicted_step_s"),
}


class TitledTable(NamedTuple):
    """A table with its title."""

    title: str
    columns: tuple[str, ...]
    rows: list[list[str]]


def tables_of(document: JsonObject) -> list[TitledTable]:
    """All tables of a run that have rows."""
    makers = (steps, kinds, speedups, break_evens, without, targets)
    tables = [make(document) for make in makers]
    return [table for table in tables if table.rows]


def place(row: JsonObject) -> str:
    """The setting of a point in words."""
    layers = row["draft_layers"]
    drawn = f", T {row['temperature']:g}" if row["temperature"] else ""
    return (
        f"B {row['batch']}, K {row['draft_length']}, {row['context']} tokens, "
        f"{layers} layer{'s' if layers > 1 else ''}{drawn}"
    )


def steps(document: JsonObject) -> TitledTable:
    """Measured and predicted ms of every kind of step, and verify ÷ plain."""
    columns = ("point", "plain, ms", "verify, ms", "draft pass, ms", "cycle, ms", "verify ÷ plain")
    rows = []
    for row in _points(document):
        cells = [_both(row[measured], row[predicted], 1e3) for measured, predicted in _STEPS.values()]
        ratio = _both(row["measured_verify_ratio"], row["predicted_verify_ratio"], 1.0)
        rows.append([place(row), *cells, ratio])
    return TitledTable("Step times: measured, predicted, error", columns, rows)


def kinds(document: JsonObject) -> TitledTable:
    """Errors by kind of step; a cycle consists of a verify pass and the draft passes."""
    errors: dict[str, list[float]] = {}
    for kind, _, measured_s, predicted_s in step_pairs(document):
        errors.setdefault(kind, []).append(abs(math.log(predicted_s / measured_s)))
    for row in _points(document):
        ratio = row["predicted_verify_ratio"] / row["measured_verify_ratio"]
        errors.setdefault("verify ÷ plain", []).append(abs(math.log(ratio)))
    rows = [[kind, f"{median(sizes):.1%}", f"{max(sizes):.1%}"] for kind, sizes in errors.items()]
    return TitledTable("Errors by kind of step", ("kind", "median", "largest"), rows)


def speedups(document: JsonObject) -> TitledTable:
    """Measured and predicted speedup at each dialled acceptance."""
    columns = ("point", "α dialled", "tokens a cycle", "speedup")
    rows = [
        [
            place(row),
            f"{row['alpha']:.3g}",
            f"{row['measured_tokens_per_cycle']:.2f}",
            _both(row["measured_speedup"], row["predicted_speedup"], 1.0),
        ]
        for row in document["points"]
    ]
    return TitledTable("Speedup in pairs: measured, predicted, error", columns, rows)


def break_evens(document: JsonObject) -> TitledTable:
    """Measured and predicted break-even acceptance."""
    entries = document["summary"]["breakeven"] or ()
    rows = [
        [
            place(row),
            f"{row['measured_alpha']:.3f}",
            f"{row['predicted_alpha']:.3f}",
            f"{row['predicted_alpha'] - row['measured_alpha']:+.3f}",
        ]
        for row in entries
    ]
    return TitledTable("Break-even acceptance", ("point", "measured", "predicted", "difference"), rows)


def without(document: JsonObject) -> TitledTable:
    """Points without a measured or without a predicted break-even."""
    entries = document["summary"]["no_breakeven"] or ()
    rows = [
        [place(row), row["measured"], row["predicted"], "yes" if row["agree"] else "no"] for row in entries
    ]
    return TitledTable("Without a break-even", ("point", "measured", "predicted", "agree"), rows)


def targets(document: JsonObject) -> TitledTable:
    """The targets of the run."""
    entries = document["summary"]["targets"] or ()
    rows = [
        [
            row["name"],
            f"{row['limit']:g}",
            _NONE if row["value"] is None else f"{row['value']:.3g}",
            "yes" if row["met"] else "no",
        ]
        for row in entries
    ]
    return TitledTable("Targets on a quiet machine", ("error |ln|", "limit", "reached", "met"), rows)


def step_pairs(document: JsonObject) -> Iterator[tuple[str, str, float, float]]:
    """(kind of step, point, measured s, predicted s)."""
    for row in _points(document):
        for kind, (measured, predicted) in _STEPS.items():
            yield kind, place(row), row[measured], row[predicted]


def _points(document: JsonObject) -> Sequence[JsonObject]:
    """One row per point, because its dialled acceptances share its times."""
    return list({place(row): row for row in document["points"]}.values())


def _both(measured: float, predicted: float | None, scale: float) -> str:
    if predicted is None:
        return f"{measured * scale:.3g}"
    error = math.expm1(math.log(predicted / measured))
    return f"{measured * scale:.3g} → {predicted * scale:.3g} ({error:+.1%})"
