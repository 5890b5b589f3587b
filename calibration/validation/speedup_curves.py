"""Curves of speedup over batch: points of one case that differ only in their load."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from calibration.validation.quantities import SPEEDUP

if TYPE_CHECKING:
    from calibration.validation.reconstruction.published_run import PublishedRun

_SETTINGS = (
    *("k", "topk", "num_draft_tokens", "task", "dataset", "domain", "input_len_tokens", "output_len_tokens"),
    *("isl", "osl", "tp", "precision", "variant", "method", "model", "head", "draft_params_b"),
)
"""Keys of a point besides its load: points of one curve agree in all of them."""


@dataclass(frozen=True)
class SpeedupCurve:
    """Published runs sorted by batch, each with a published speedup."""

    runs: tuple[PublishedRun, ...]
    batches: tuple[float, ...]
    published: tuple[float, ...]

    @property
    def crossing(self) -> float | None:
        """The batch at which the published speedup crosses 1; None where it does not cross."""
        return crossing_of(self.batches, self.published)


def curves_of(runs: Iterable[PublishedRun]) -> tuple[SpeedupCurve, ...]:
    """The curves with at least two batches whose two variants can be simulated in a closed loop."""
    groups: dict[tuple[str, ...], dict[float, tuple[PublishedRun, float]]] = {}
    for run in runs:
        published = [
            figure.value for figure in run.published if figure.quantity == SPEEDUP and figure.value > 0
        ]
        if run.plain is None or run.spec is None or run.batch is None or not published:
            continue
        if run.plain.workload.arrivals.kind != "closed":
            continue
        point = run.case.points[run.point]
        settings = [str(point.get(name)) for name in _SETTINGS]
        key = (run.case.source_id, run.case.case_id, str(run.dataset), *settings)
        groups.setdefault(key, {})[run.batch] = (run, published[0])
    return tuple(_curve(group) for group in groups.values() if len(group) > 1)


def _curve(group: dict[float, tuple[PublishedRun, float]]) -> SpeedupCurve:
    batches = tuple(sorted(group))
    return SpeedupCurve(
        tuple(group[batch][0] for batch in batches), batches, tuple(group[batch][1] for batch in batches)
    )


def crossing_of(batches: Sequence[float], speedups: Sequence[float]) -> float | None:
    """The batch where ln(speedup), linear in ln(batch) between points, first crosses 0.

    None where the curve ends on the side of 1 where it began.
    """
    points = [(math.log(b), math.log(s)) for b, s in zip(batches, speedups, strict=True) if s > 0]
    crossings = [
        math.exp(x0 + (x1 - x0) * y0 / (y0 - y1))
        for (x0, y0), (x1, y1) in pairwise(points)
        if (y0 > 0) != (y1 > 0)
    ]
    return crossings[0] if len(crossings) % 2 else None
