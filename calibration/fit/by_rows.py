"""Costs that depend only on rows: a line through many points, and a table of few knots on it."""

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
from simulator.costs.ops.rows import RowTable
from simulator.costs.profiles import Part
from simulator.numerics.arrays import Floats

SPACING = 1.3
"""Smallest ratio of neighbouring knots."""
_MIN_RATIO = 1e-3
"""Smallest ratio of table to line, for total times below the known part of them."""
_LINE = (FormParameter("start_us", 20.0, 1e-3, 1e6), FormParameter("per_row_us", 1.0, 1e-4, 1e6))
_SEQUENCE = FormParameter("per_sequence_us", 1.0, 0.0, 1e6)


@dataclass(frozen=True)
class ByRows:
    """A line through all points, and µs at the knots, fitted to the measured times.

    `solved` is the line; `us` excludes its cost per sequence.
    """

    solved: Solved
    knots: Floats
    us: Floats

    @property
    def operator(self) -> RowTable:
        values = rounded_values(self.solved.values)
        return RowTable(self.knots, self.us, 1.0, values["start_us"], values["per_row_us"])


def by_rows(rows: Floats, us: Floats, total_us: Floats, sequences: Floats | None = None) -> ByRows:
    """The table through `us` (n,), with errors relative to the total times `total_us` (n,), of which `us` is
    a part.

    `sequences` (n,): adds a cost per sequence to the line. Times do not fall with rows.
    """
    remainder = total_us - us
    sequence_counts = np.zeros(len(us)) if sequences is None else sequences
    parameters = _LINE if sequences is None else (*_LINE, _SEQUENCE)

    def predict(x: Mapping[str, float]) -> Floats:
        line = x["start_us"] + x["per_row_us"] * rows + x.get("per_sequence_us", 0.0) * sequence_counts
        return np.asarray(line + remainder)

    solved = solve(parameters, predict, total_us)
    row_us = us - solved.values.get("per_sequence_us", 0.0) * sequence_counts
    line = solved.values["start_us"] + solved.values["per_row_us"] * rows
    knots = knots_of(rows)
    ratio = _through(rows, row_us / line, knots, line / total_us)
    at_knots = solved.values["start_us"] + solved.values["per_row_us"] * knots
    return ByRows(solved, knots, isotonic(ratio * at_knots, np.ones(len(knots))))


def knots_of(rows: Floats) -> Floats:
    """Counts that occur, at least `SPACING` apart, including both ends."""
    knots: list[float] = []
    for count in sorted(set(rows.tolist())):
        if not knots or count >= SPACING * knots[-1]:
            knots.append(count)
    last = float(rows.max())
    if last > knots[-1]:
        knots = [*(count for count in knots if last >= SPACING * count), last]
    return np.array(knots)


def _through(rows: Floats, ratio: Floats, knots: Floats, weight: Floats) -> Floats:
    """Ratios to the line at the knots by least squares, repeated without outliers."""
    basis = hats(np.log(rows), np.log(knots))
    included = np.ones(len(rows), dtype=np.bool_)
    for _ in range(2):
        fitted, *_ = np.linalg.lstsq(
            basis[included] * weight[included, None], (ratio * weight)[included], rcond=None
        )
        inliers = ~far_off((ratio - basis @ fitted) * weight)
        if (basis[inliers].sum(axis=0) == 0).any():
            break
        included = inliers
    return np.asarray(np.maximum(fitted, _MIN_RATIO))


def held_out_errors(
    rows: Floats, us: Floats, total_us: Floats, sequences: Floats | None = None
) -> HeldOutErrors:
    """Errors at every inner count of rows, predicted from a table without its points."""
    errors = HeldOutErrors()
    sequence_counts = np.zeros(len(us)) if sequences is None else sequences
    for count in sorted(set(rows.tolist()))[1:-1]:
        held_out = rows == count
        if len(set(rows[~held_out].tolist())) < len(_LINE) + 1:
            continue
        table = by_rows(
            rows[~held_out],
            us[~held_out],
            total_us[~held_out],
            None if sequences is None else sequence_counts[~held_out],
        )
        predicted = table.operator.time_us(rows[held_out], 1.0)
        predicted = predicted + table.solved.values.get("per_sequence_us", 0.0) * sequence_counts[held_out]
        errors.add((predicted + (total_us - us)[held_out]).tolist(), total_us[held_out].tolist())
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
    """A part whose table is µs by `axis` (rows or tokens), for rows of one width (name, value)."""
    us = us_of(points)
    table = by_rows(rows, us, us, sequences)
    residual = held_out_errors(rows, us, us, sequences).summary(f"each count of {axis} from the others")
    residual |= {"noise_percent": noise_percent(points), "intervals": intervals_json(table.solved.intervals)}
    part = Part(
        name=name,
        status="measured",
        source=source,
        coefficients={width[0]: width[1]} | rounded_values(table.solved.values),
        table={axis: [int(x) for x in table.knots], "us": nested(table.us)},
        residual=residual,
    )
    predicted = table.operator.time_us(rows, 1.0)
    if sequences is not None:
        predicted = predicted + table.solved.values["per_sequence_us"] * sequences
    far = far_off(np.log(np.maximum(predicted, 1e-9) / us))
    return FittedPart(part, tuple(p for p, is_far in zip(points, far, strict=True) if is_far))


def fit_sampler(name: str, points: Sequence[Measurement], source: str) -> FittedPart | None:
    """A part `sampler…` or `draft_sampler…` from points by rows, or by batch and draft length; None without
    points.
    """
    if not points:
        return None
    vocab = max({p.shape["vocab"] for p in points}, key=lambda v: sum(p.shape["vocab"] == v for p in points))
    used = [p for p in points if p.shape["vocab"] == vocab]
    width = ("vocab", float(vocab))
    if "rows" in used[0].shape:
        return fit_rows(name, used, column(used, "rows"), "rows", width, source)
    batch, drafts = column(used, "batch"), column(used, "draft_length")
    sequences = batch if drafts.any() else None  # in plain rounds, rows equal sequences
    return fit_rows(name, used, batch * (drafts + 1), "rows", width, source, sequences)
