"""Costs by rows alone: a table of few knots through many points, lines between them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calibration.fit.points import Errors, Fit, column, intervals_json, nested, noise_percent, shaky, us_of
from calibration.fit.solve import Parameter, far_off, solve
from calibration.measurements import Measurement
from calibration.smoothing import hats, isotonic
from simulator.costs.ops.numeric import Floats
from simulator.costs.ops.rows import RowTable
from simulator.costs.profiles import Part

SPACING = 1.3
"""Least ratio of neighbouring knots."""
_AFFINE = (Parameter("start_us", 20.0, 0.0, 1e6), Parameter("per_row_us", 1.0, 0.0, 1e6))


def fit_rows(
    name: str, points: Sequence[Measurement], rows: Floats, axis: str, width: tuple[str, float], source: str
) -> Fit:
    """A part whose table is µs by `axis` (rows or tokens), of rows of one width (its name, its value)."""
    us = us_of(points)
    knots = knots_of(rows)
    table = table_of(rows, us, knots, us)
    residual = left_out(rows, us, us).summary(f"each count of {axis} from its neighbours")
    solved = solve(_AFFINE, lambda x: x["start_us"] + x["per_row_us"] * rows, us) if len(points) > 2 else None
    residual |= {"noise_percent": noise_percent(points)}
    residual |= {"intervals": intervals_json(solved.intervals)} if solved else {}
    part = Part(
        name=name,
        status="measured",
        source=source,
        coefficients={width[0]: width[1]},
        table={axis: [int(x) for x in knots], "us": nested(table)},
        residual=residual,
        note="start_us and per_row_us of residual.intervals: those of a line through all points",
    )
    predicted = RowTable(knots, table, 1.0).time_us(rows, 1.0)
    far = far_off(np.log(np.maximum(predicted, 1e-9) / us))
    return Fit(part, (*shaky(points), *(p for p, is_far in zip(points, far, strict=True) if is_far)))


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


def table_of(rows: Floats, us: Floats, knots: Floats, scale: Floats) -> Floats:
    """Times at the knots: the lines that come closest to `us` (n,), errors counted relative to `scale` (n,);
    they do not fall.
    """
    basis = hats(rows, knots)
    weight = 1.0 / scale
    found, *_ = np.linalg.lstsq(basis * weight[:, None], us * weight, rcond=None)
    for _ in range(2):  # once more without what lies far off
        far = far_off((us - basis @ found) / scale)
        if not far.any() or (basis[~far].sum(axis=0) == 0).any():
            break
        found, *_ = np.linalg.lstsq(basis[~far] * weight[~far, None], (us * weight)[~far], rcond=None)
    return isotonic(found, basis.T @ weight**2)


def left_out(rows: Floats, us: Floats, scale: Floats, beside: Floats | None = None) -> Errors:
    """Every inner count of rows from a table made without its points; `beside` (n,) is added to both."""
    more = np.zeros(len(us)) if beside is None else beside
    errors = Errors()
    for count in sorted(set(rows.tolist()))[1:-1]:
        out = rows == count
        knots = knots_of(rows[~out])
        table = RowTable(knots, table_of(rows[~out], us[~out], knots, scale[~out]), 1.0)
        errors.add((table.time_us(rows[out], 1.0) + more[out]).tolist(), (us[out] + more[out]).tolist())
    return errors


def fit_sampler(name: str, points: Sequence[Measurement], source: str) -> Fit | None:
    """A part `sampler…` or `draft_sampler…` from points of rows, or batch and draft length; None without."""
    if not points:
        return None
    vocab = max({p.shape["vocab"] for p in points}, key=lambda v: sum(p.shape["vocab"] == v for p in points))
    kept = [p for p in points if p.shape["vocab"] == vocab]
    if "rows" in kept[0].shape:
        rows = column(kept, "rows")
    else:
        rows = column(kept, "batch") * (column(kept, "draft_length") + 1)
    return fit_rows(name, kept, rows, "rows", ("vocab", float(vocab)), source)
