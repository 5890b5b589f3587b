"""Costs by rows alone: a line, and a table of few knots on it through many points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from calibration.fit.parts import (
    FittedPart,
    HeldOutErrors,
    column,
    intervals_json,
    nested,
    noise_percent,
    rounded_values,
    us_of,
)
from calibration.fit.robust import far_off
from calibration.fit.solve import FormParameter, Solved, solve
from calibration.measurements import Measurement
from calibration.smoothing import hats, isotonic
from simulator.costs.ops.numeric import Floats
from simulator.costs.ops.rows import RowTable
from simulator.costs.profiles import Part

SPACING = 1.3
"""Least ratio of neighbouring knots."""
_LEAST = 1e-3
"""Of the line: what is left for a table where whole times are shorter than what is known of them."""
_LINE = (FormParameter("start_us", 20.0, 1e-3, 1e6), FormParameter("per_row_us", 1.0, 1e-4, 1e6))
_SEQUENCE = FormParameter("per_sequence_us", 1.0, 0.0, 1e6)


@dataclass(frozen=True)
class ByRows:
    """A line through all points, and µs at the knots that come closest to what was measured.

    `errors` are those of the line; a cost per sequence is no part of `us`.
    """

    solved: Solved
    knots: Floats
    us: Floats

    @property
    def operator(self) -> RowTable:
        values = rounded_values(self.solved.values)
        return RowTable(self.knots, self.us, 1.0, values["start_us"], values["per_row_us"])


def by_rows(rows: Floats, us: Floats, whole: Floats, sequences: Floats | None = None) -> ByRows:
    """(n,) each: the table through `us`, errors counted relative to `whole`, of which it is a part.

    `sequences`: a cost for each of them is told apart from that of rows. Times do not fall with rows.
    """
    beside = whole - us
    many = np.zeros(len(us)) if sequences is None else sequences
    parameters = _LINE if sequences is None else (*_LINE, _SEQUENCE)

    def predict(x: Mapping[str, float]) -> Floats:
        line = x["start_us"] + x["per_row_us"] * rows + x.get("per_sequence_us", 0.0) * many
        return np.asarray(line + beside)

    solved = solve(parameters, predict, whole)
    left = us - solved.values.get("per_sequence_us", 0.0) * many
    line = solved.values["start_us"] + solved.values["per_row_us"] * rows
    knots = knots_of(rows)
    ratio = _through(rows, left / line, knots, line / whole)
    at_knots = solved.values["start_us"] + solved.values["per_row_us"] * knots
    return ByRows(solved, knots, isotonic(ratio * at_knots, np.ones(len(knots))))


def knots_of(rows: Floats) -> Floats:
    """Counts that occur, not too close to each other, both ends among them."""
    found: list[float] = []
    for count in sorted(set(rows.tolist())):
        if not found or count >= SPACING * found[-1]:
            found.append(count)
    last = float(rows.max())
    if last > found[-1]:
        found = [*(count for count in found if last >= SPACING * count), last]
    return np.array(found)


def _through(rows: Floats, ratio: Floats, knots: Floats, weight: Floats) -> Floats:
    """Ratios to the line at the knots: least squares, once more without what lies far off."""
    basis = hats(np.log(rows), np.log(knots))
    kept = np.ones(len(rows), dtype=np.bool_)
    for _ in range(2):
        found, *_ = np.linalg.lstsq(basis[kept] * weight[kept, None], (ratio * weight)[kept], rcond=None)
        near = ~far_off((ratio - basis @ found) * weight)
        if (basis[near].sum(axis=0) == 0).any():
            break
        kept = near
    return np.asarray(np.maximum(found, _LEAST))


def left_out(rows: Floats, us: Floats, whole: Floats, sequences: Floats | None = None) -> HeldOutErrors:
    """Every inner count of rows, from a table made without its points."""
    errors = HeldOutErrors()
    many = np.zeros(len(us)) if sequences is None else sequences
    for count in sorted(set(rows.tolist()))[1:-1]:
        out = rows == count
        if len(set(rows[~out].tolist())) < len(_LINE) + 1:
            continue
        made = by_rows(rows[~out], us[~out], whole[~out], None if sequences is None else many[~out])
        own = made.operator.time_us(rows[out], 1.0)
        own = own + made.solved.values.get("per_sequence_us", 0.0) * many[out]
        errors.add((own + (whole - us)[out]).tolist(), whole[out].tolist())
    return errors


def fit_rows(
    name: str,
    points: Sequence[Measurement],
    rows: Floats,
    axis: str,
    width: tuple[str, float],
    source: str,
    sequences: Floats | None = None,
) -> FittedPart:
    """A part whose table is µs by `axis` (rows or tokens), of rows of one width (its name, its value)."""
    us = us_of(points)
    made = by_rows(rows, us, us, sequences)
    residual = left_out(rows, us, us, sequences).summary(f"each count of {axis} from the others")
    residual |= {"noise_percent": noise_percent(points), "intervals": intervals_json(made.solved.intervals)}
    part = Part(
        name=name,
        status="measured",
        source=source,
        coefficients={width[0]: width[1]} | rounded_values(made.solved.values),
        table={axis: [int(x) for x in made.knots], "us": nested(made.us)},
        residual=residual,
    )
    predicted = made.operator.time_us(rows, 1.0)
    if sequences is not None:
        predicted = predicted + made.solved.values["per_sequence_us"] * sequences
    far = far_off(np.log(np.maximum(predicted, 1e-9) / us))
    return FittedPart(part, tuple(p for p, is_far in zip(points, far, strict=True) if is_far))


def fit_sampler(name: str, points: Sequence[Measurement], source: str) -> FittedPart | None:
    """A part `sampler…` or `draft_sampler…` from points of rows, or batch and draft length; None without."""
    if not points:
        return None
    vocab = max({p.shape["vocab"] for p in points}, key=lambda v: sum(p.shape["vocab"] == v for p in points))
    kept = [p for p in points if p.shape["vocab"] == vocab]
    width = ("vocab", float(vocab))
    if "rows" in kept[0].shape:
        return fit_rows(name, kept, column(kept, "rows"), "rows", width, source)
    batch, drafts = column(kept, "batch"), column(kept, "draft_length")
    sequences = batch if drafts.any() else None  # rows of plain rounds are their sequences
    return fit_rows(name, kept, batch * (drafts + 1), "rows", width, source, sequences)
