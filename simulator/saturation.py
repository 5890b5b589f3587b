"""Is an open-loop rate above what the system can serve? A test on when requests arrived, started and ended.

Above capacity the backlog grows for as long as requests come, and with it the time that each one waits for
its start, or, where all are let in at once, stays. If that time grows by b seconds per second, those that
arrive within one second leave within 1 + b: the fraction served is 1 / (1 + b). Arrivals of the second half
of the run are cut into slices of equal count; the test is Student's t on the growth from slice to slice of
the mean wait, and of the mean stay less what the requests' own lengths explain, pooled over replications.
Steps between slices of a steady system have mean zero and are negatively correlated, so the test errs
towards "not saturated"; unlike a count of departures it needs no correction for the requests under way at
the end.

Two more criteria. Clients that give up after mostly waiting keep both times from growing: their share. And a
run that ends before the backlog shows: by Little's law rate × service time is the number that would be
served at once; more than the engine has seats for is above capacity.

Left out: a rate that rises towards the end of a trace looks like saturation when the delay grows with it by
more than 2 % of the time that passes: at that moment the rate is indeed more than the system serves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
"""Growth of the delay, s per s, below which a backlog does not matter: 98 % are served."""
_MOST_GIVING_UP = 0.05
"""Share of clients that may give up after mostly waiting."""
_CONFIDENCE = 0.99
"""One-sided, that the delay grows at all."""
_SEATS_MARGIN = 1.2
"""Little's law is judged with this much room, since rates and stays of a stretch fluctuate."""

Delay = Callable[["RunRecord", Ints], Floats]
"""A delay of some requests of a run, ns."""


@dataclass(frozen=True)
class Saturation:
    """The answer, and the figures it rests on. `served_fraction` is 1 when nothing speaks against it."""

    saturated: bool
    served_fraction: float
    reason: str | None = None


def saturation(records: Sequence[RunRecord], seats: int | None = None) -> Saturation:
    """Whether the arrival rate of these replications of one open-loop run is above capacity.

    `seats`: requests that all replicas together can serve at once; None leaves Little's law out.
    """
    late = [_second_half(record) for record in records]
    asked = sum(map(len, late))
    lost = sum(_gave_up_waiting(record, chosen) for record, chosen in zip(records, late, strict=True))
    if asked and lost / asked > _MOST_GIVING_UP:
        reason = f"{lost / asked:.0%} of the clients of the second half gave up, mostly while they waited"
        return Saturation(True, 1 - lost / asked, reason)
    growth = max(_growth(records, late, _wait_ns), _growth(records, late, _stay_ns))
    if growth > _LEAST_GROWTH:
        served = 1 / (1 + growth)
        reason = f"the backlog grows as long as requests come: by {growth:.2g} s of delay a second, "
        return Saturation(True, served, f"{reason}so that {served:.0%} of the rate is served")
    at_once = [_needed_seats(record, chosen) for record, chosen in zip(records, late, strict=True)]
    needed = sum(at_once) / max(len(at_once), 1)
    if seats is not None and needed > _SEATS_MARGIN * seats:
        reason = f"at this rate {needed:,.0f} requests would have to be served at once, and {seats:,} can be"
        return Saturation(True, seats / needed, reason)
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
    wait = _admitted_ns(record, late) - record.arrival_ns[late]
    return int(((record.status[late] == TIMED_OUT) & (2 * wait > _stay_ns(record, late))).sum())


def _growth(records: Sequence[RunRecord], late: Sequence[Ints], delay_ns: Delay) -> float:
    """By how much a delay of requests grows, s per s, where that is significant; else 0."""
    steps: list[float] = []
    spans: list[float] = []
    slope = _delay_per_token(records, late, delay_ns)
    for record, chosen in zip(records, late, strict=True):
        cuts = _cut(chosen)
        if cuts:
            means = [
                float(np.mean(delay_ns(record, part) - slope * record.emitted_tokens[part])) for part in cuts
            ]
            steps.extend(np.diff(means))
            spans.extend(np.diff([float(np.mean(record.arrival_ns[part])) for part in cuts]))
    if len(steps) < 2 or sum(spans) <= 0:
        return 0.0
    error = float(np.std(steps, ddof=1)) / len(steps) ** 0.5
    significant = float(np.mean(steps)) > student_t(len(steps) - 1, _CONFIDENCE) * error
    return sum(steps) / sum(spans) if significant else 0.0


def _delay_per_token(records: Sequence[RunRecord], late: Sequence[Ints], delay_ns: Delay) -> float:
    """How much longer the delay is per output token, ns: least squares within slices, so that no trend
    enters.
    """
    products = squares = 0.0
    for record, chosen in zip(records, late, strict=True):
        for part in _cut(chosen):
            tokens = record.emitted_tokens[part] - record.emitted_tokens[part].mean()
            products += float(tokens @ delay_ns(record, part))
            squares += float(tokens @ tokens)
    return products / squares if squares > 0 else 0.0


def _ended_ns(record: RunRecord, chosen: Ints) -> Ints:
    """When requests ended; one without an end stays to the end of the run."""
    return np.where(record.ended_ns[chosen] >= 0, record.ended_ns[chosen], record.makespan_ns)


def _admitted_ns(record: RunRecord, chosen: Ints) -> Ints:
    """When requests were first admitted; one that never was waits to its end."""
    return np.where(record.admitted_ns[chosen] >= 0, record.admitted_ns[chosen], _ended_ns(record, chosen))


def _stay_ns(record: RunRecord, chosen: Ints) -> Floats:
    """Time from arrival to end, ns."""
    return (_ended_ns(record, chosen) - record.arrival_ns[chosen]).astype(np.float64)


def _wait_ns(record: RunRecord, chosen: Ints) -> Floats:
    """Time from arrival to admission, ns."""
    return (_admitted_ns(record, chosen) - record.arrival_ns[chosen]).astype(np.float64)


def _needed_seats(record: RunRecord, late: Ints) -> float:
    """Requests served at once if the rate and service times of the second half lasted: Little's law."""
    if len(late) < _FEWEST_PER_SLICE:
        return 0.0
    span_ns = float(record.arrival_ns[late[-1]] - record.arrival_ns[late[0]])
    service_ns = float((_ended_ns(record, late) - _admitted_ns(record, late)).mean())
    return (len(late) - 1) * service_ns / span_ns if span_ns > 0 else 0.0


def _cut(late: Ints) -> list[Ints]:
    """Slices of equal count, in order of arrival; none when there are too few requests to tell."""
    slices = min(_SLICES, len(late) // _FEWEST_PER_SLICE)
    return list(np.array_split(late, slices)) if slices >= _FEWEST_SLICES else []
