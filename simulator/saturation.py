"""Is an open-loop rate above what the system can serve? A test on when requests arrived and ended.

Above capacity the backlog grows for as long as requests come, and with it the time each one stays. If the
stay of requests grows by b seconds per second, those that arrive within one second leave within 1 + b: the
fraction served is 1 / (1 + b). Arrivals of the second half of the run are cut into slices of equal count;
the test is Student's t on the growth of the mean stay from slice to slice, pooled over replications, after
taking out what the requests' own lengths explain. Steps between slices of a steady system have mean zero and
are negatively correlated, so the test errs towards "not saturated"; and unlike a count of departures it
needs no correction for the requests under way at the end. Clients that give up after mostly waiting keep the
stay from growing; their share is the second criterion.

Left out: a rate that rises towards the end of a trace looks like saturation when the stay grows with it by
more than 2 % of the time that passes: at that moment the rate is indeed more than the system serves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from simulator.estimate import student_t
from simulator.metrics import Floats, Ints
from simulator.step.state import REJECTED, TIMED_OUT

if TYPE_CHECKING:
    from simulator.record import RunRecord

_SLICES = 8
_FEWEST_PER_SLICE = 5
_FEWEST_SLICES = 4
_LEAST_GROWTH = 0.02
"""Growth of the stay, s per s, below which a backlog does not matter: 98 % are served."""
_MOST_GIVING_UP = 0.05
"""Share of clients that may give up after mostly waiting."""
_CONFIDENCE = 0.99
"""One-sided, that the stay grows at all."""


@dataclass(frozen=True)
class Saturation:
    """The answer, and the figures it rests on. `served_fraction` is 1 when nothing speaks against it."""

    saturated: bool
    served_fraction: float
    reason: str | None = None


def saturation(records: Sequence[RunRecord]) -> Saturation:
    """Whether the arrival rate of these replications of one open-loop run is above capacity."""
    late = [_second_half(record) for record in records]
    asked = sum(map(len, late))
    lost = sum(_gave_up_waiting(record, chosen) for record, chosen in zip(records, late, strict=True))
    if asked and lost / asked > _MOST_GIVING_UP:
        reason = (
            f"{lost / asked:.0%} of the clients of the second half gave up, most of their time spent waiting"
        )
        return Saturation(True, 1 - lost / asked, reason)
    growth, errors, count = _growth_of_stay(records, late)
    if count > 1 and growth > _LEAST_GROWTH and errors > student_t(count - 1, _CONFIDENCE):
        served = 1 / (1 + growth)
        reason = (
            f"the backlog grows as long as requests come: each stays {growth:.2g} s longer per second, "
            f"so {served:.0%} of the rate is served"
        )
        return Saturation(True, served, reason)
    return Saturation(False, 1.0)


def _second_half(record: RunRecord) -> Ints:
    """Requests that arrived in the second half of the time in which requests arrived, in order of arrival."""
    here = np.flatnonzero((record.arrival_ns >= 0) & (record.status != REJECTED))
    if not len(here):
        return here
    order = here[np.argsort(record.arrival_ns[here], kind="stable")]
    arrivals = record.arrival_ns[order]
    late: Ints = order[arrivals > (arrivals[0] + arrivals[-1]) // 2]
    return late


def _gave_up_waiting(record: RunRecord, late: Ints) -> int:
    """How many of these requests timed out with more than half of their time spent before admission."""
    arrival, ended = record.arrival_ns[late], record.ended_ns[late]
    admitted = np.where(record.admitted_ns[late] >= 0, record.admitted_ns[late], ended)
    return int(((record.status[late] == TIMED_OUT) & (2 * (admitted - arrival) > ended - arrival)).sum())


def _growth_of_stay(records: Sequence[RunRecord], late: Sequence[Ints]) -> tuple[float, float, int]:
    """Growth of the stay in s per s, in standard errors, and from how many steps between slices."""
    steps: list[float] = []
    spans: list[float] = []
    slope = _stay_per_token(records, late)
    for record, chosen in zip(records, late, strict=True):
        cuts = _cut(chosen)
        if cuts:
            stay = [
                float(np.mean(_stay_ns(record, part) - slope * record.emitted_tokens[part])) for part in cuts
            ]
            when = [float(np.mean(record.arrival_ns[part])) for part in cuts]
            steps.extend(np.diff(stay))
            spans.extend(np.diff(when))
    if len(steps) < 2 or sum(spans) <= 0:
        return 0.0, 0.0, 0
    error = float(np.std(steps, ddof=1)) / len(steps) ** 0.5
    mean = float(np.mean(steps))
    return sum(steps) / sum(spans), mean / error if error > 0 else (np.inf if mean > 0 else 0.0), len(steps)


def _stay_per_token(records: Sequence[RunRecord], late: Sequence[Ints]) -> float:
    """How much longer a request stays per output token, ns: least squares within slices, so that no trend
    enters.
    """
    products = squares = 0.0
    for record, chosen in zip(records, late, strict=True):
        for part in _cut(chosen):
            tokens = record.emitted_tokens[part] - record.emitted_tokens[part].mean()
            products += float(tokens @ _stay_ns(record, part))
            squares += float(tokens @ tokens)
    return products / squares if squares > 0 else 0.0


def _stay_ns(record: RunRecord, chosen: Ints) -> Floats:
    """Time from arrival to end, ns; a request without an end stays to the end of the run."""
    ended = np.where(record.ended_ns[chosen] >= 0, record.ended_ns[chosen], record.makespan_ns)
    return (ended - record.arrival_ns[chosen]).astype(np.float64)


def _cut(late: Ints) -> list[Ints]:
    """Slices of equal count, in order of arrival; none when there are too few requests to tell."""
    slices = min(_SLICES, len(late) // _FEWEST_PER_SLICE)
    return list(np.array_split(late, slices)) if slices >= _FEWEST_SLICES else []
