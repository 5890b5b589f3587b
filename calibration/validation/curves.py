"""Curves of speedup over batch: points of one case that differ in nothing but their load."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from calibration.validation.quantities import SPEEDUP

if TYPE_CHECKING:
    from calibration.validation.trials.trial import Trial

_SETTINGS = (
    *("k", "topk", "num_draft_tokens", "task", "dataset", "domain", "input_len_tokens", "output_len_tokens"),
    *("isl", "osl", "tp", "precision", "variant", "method", "model", "head", "draft_params_b"),
)
"""What a point says besides its load; points of one curve agree in all of it."""


@dataclass(frozen=True)
class Curve:
    """Trials in the order of their batch, each with a published speedup."""

    trials: tuple[Trial, ...]
    batches: tuple[float, ...]
    published: tuple[float, ...]

    @property
    def crossing(self) -> float | None:
        """The batch at which the published speedup crosses 1; None where it does not."""
        return crossing_of(self.batches, self.published)


def curves_of(trials: Iterable[Trial]) -> tuple[Curve, ...]:
    """The curves of two batches or more, both variants of which can be simulated in a closed loop."""
    groups: dict[tuple[str, ...], dict[float, tuple[Trial, float]]] = {}
    for trial in trials:
        published = [one.value for one in trial.published if one.quantity == SPEEDUP and one.value > 0]
        if trial.plain is None or trial.spec is None or trial.batch is None or not published:
            continue
        if trial.plain.workload.arrivals.kind != "closed":
            continue
        point = trial.case.points[trial.point]
        settings = [str(point.get(name)) for name in _SETTINGS]
        key = (trial.case.source_id, trial.case.case_id, str(trial.dataset), *settings)
        groups.setdefault(key, {})[trial.batch] = (trial, published[0])
    return tuple(_curve(group) for group in groups.values() if len(group) > 1)


def _curve(group: dict[float, tuple[Trial, float]]) -> Curve:
    batches = tuple(sorted(group))
    return Curve(
        tuple(group[batch][0] for batch in batches), batches, tuple(group[batch][1] for batch in batches)
    )


def crossing_of(batches: Sequence[float], speedups: Sequence[float]) -> float | None:
    """Where ln(speedup), linear in ln(batch) between points, first crosses 0; None: it ends as it began."""
    points = [(math.log(b), math.log(s)) for b, s in zip(batches, speedups, strict=True) if s > 0]
    found = [
        math.exp(x0 + (x1 - x0) * y0 / (y0 - y1))
        for (x0, y0), (x1, y1) in pairwise(points)
        if (y0 > 0) != (y1 > 0)
    ]
    return found[0] if len(found) % 2 else None
