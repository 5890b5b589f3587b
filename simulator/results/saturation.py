"""Is an open-loop rate above what the system can serve? A test on when requests arrived, started and ended.

Above capacity the backlog grows for as long as requests come, and with it the time that each one waits
for its start, or, where all are let in at once, stays. If that time grows by b seconds per second,
those that arrive within one second leave within 1 + b: the fraction served is 1 / (1 + b). Arrivals
of the second half of the run are cut into slices of equal count; the test is Student's t on the growth
from slice to slice of the mean wait, and of the mean stay less what the requests' own lengths explain,
pooled over replications. Steps between slices of a steady system have mean zero and are negatively
correlated, so the test errs towards "not saturated"; unlike a count of departures it needs no correction
for the requests under way at the end.

There are two more criteria. Clients that time out after mostly waiting keep both times from growing, so their
share is judged. A run may end before the backlog shows: by Little's law, rate × service time is the number of
requests that would run at once; more than the engine can run is above capacity.

Left out: a rate that rises towards the end of a trace looks like saturation when the delay grows with it by
more than 2 % of the time that passes: at that moment the rate is indeed more than the system serves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from simulator.numerics.arrays import Floats, Ints
from simulator.results.estimate import student_t
from simulator.step.state import REJECTED, TIMED_OUT

if TYPE_CHECKING:
    from simulator.results.record import RunRecord

_SLICES = 8
_FEWEST_PER_SLICE = 5
_FEWEST_SLICES = 4
_LEAST_GROWTH = 0.02
"""Growth of the delay, s per s, below which a backlog does not matter: 98 % are served."""
_MOST_TIMING_OUT = 0.05
"""Share of clients that may time out after mostly waiting."""
_CONFIDENCE = 0.99
"""One-sided, that the delay grows at all."""
_RUNNING_MARGIN = 1.2
"""Little's law is judged with this much room, since rates and stays of a stretch fluctuate."""


@dataclass(frozen=True)
class Saturation:
    """The answer, and the figures it rests on. `served_fraction` is 1 when nothing speaks against it."""

    saturated: bool
    served_fraction: float
    reason: str | None = None


class Trend(NamedTuple):
    """How a delay of the requests of one run develops: means over slices in order of arrival, ns and tokens.

    `products` ÷ `squares` is the least-squares delay per output token within slices, so that no trend enters.
    """

    delay_ns: tuple[float, ...]
    tokens: tuple[float, ...]
    arrival_ns: tuple[float, ...]
    products: float
    squares: float


class SaturationEvidence(NamedTuple):
    """What one run of an open loop shows about saturation, without its record."""

    asked: int
    """Clients of the second half of the time in which requests arrived."""
    timed_out: int
    """Of them, those that timed out after mostly waiting."""
    wait: Trend
    stay: Trend
    requests_at_once: float
    """Requests that would be served at once if the second half lasted."""


def evidence(record: RunRecord) -> SaturationEvidence:
    """The evidence of one run."""
    late = _second_half(record)
    return SaturationEvidence(
        asked=len(late),
        timed_out=_timed_out_waiting(record, late),
        wait=_trend(record, late, _wait_ns(record, late)),
        stay=_trend(record, late, _stay_ns(record, late)),
        requests_at_once=_requests_at_once(record, late),
    )


def saturation(records: Sequence[RunRecord], running_limit: int | None = None) -> Saturation:
    """Whether the arrival rate of these replications of one open-loop run is above capacity.

    `running_limit`: requests that all replicas together can serve at once; None leaves Little's law out.
    """
    return judge([evidence(record) for record in records], running_limit)


def judge(runs: Sequence[SaturationEvidence], running_limit: int | None = None) -> Saturation:
    """As `saturation`, from what was seen of the runs."""
    asked, lost = sum(run.asked for run in runs), sum(run.timed_out for run in runs)
    if asked and lost / asked > _MOST_TIMING_OUT:
        reason = f"{lost / asked:.0%} of the clients of the second half timed out, mostly while they waited"
        return Saturation(True, 1 - lost / asked, reason)
    growth = max(_growth([run.wait for run in runs]), _growth([run.stay for run in runs]))
    if growth > _LEAST_GROWTH:
        served = 1 / (1 + growth)
        reason = f"the backlog grows as long as requests come: by {growth:.2g} s of delay a second, "
        return Saturation(True, served, f"{reason}so that {served:.0%} of the rate is served")
    needed = sum(run.requests_at_once for run in runs) / max(len(runs), 1)
    if running_limit is not None and needed > _RUNNING_MARGIN * running_limit:
        reason = f"this rate needs {needed:,.0f} running requests, and the limit is {running_limit:,}"
        return Saturation(True, running_limit / needed, reason)
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


def _timed_out_waiting(record: RunRecord, late: Ints) -> int:
    """How many of these requests timed out with more than half of their time spent before admission."""
    wait = _admitted_ns(record, late) - record.arrival_ns[late]
    return int(((record.status[late] == TIMED_OUT) & (2 * wait > _stay_ns(record, late))).sum())


def _trend(record: RunRecord, late: Ints, delay_ns: Floats) -> Trend:
    """The trend of a delay (len(late),) over slices of equal count;
    no slices when there are too few requests to tell.
    """
    slices = min(_SLICES, len(late) // _FEWEST_PER_SLICE)
    means: list[tuple[float, float, float]] = []
    products = squares = 0.0
    for part in np.array_split(np.arange(len(late)), slices) if slices >= _FEWEST_SLICES else ():
        tokens, delays = record.emitted_tokens[late[part]], delay_ns[part]
        spread = tokens - tokens.mean()
        products += float(spread @ delays)
        squares += float(spread @ spread)
        means.append(
            (float(delays.mean()), float(tokens.mean()), float(record.arrival_ns[late[part]].mean()))
        )
    delay, length, arrival = zip(*means, strict=True) if means else ((), (), ())
    return Trend(delay, length, arrival, products, squares)


def _growth(trends: Sequence[Trend]) -> float:
    """By how much a delay of requests grows, s per s, where that is significant; else 0.

    Longer outputs stay longer: the delay is taken at equal length.
    """
    squares = sum(trend.squares for trend in trends)
    slope = sum(trend.products for trend in trends) / squares if squares > 0 else 0.0
    steps: list[float] = []
    spans: list[float] = []
    for trend in trends:
        steps.extend(np.diff(np.array(trend.delay_ns) - slope * np.array(trend.tokens)))
        spans.extend(np.diff(trend.arrival_ns))
    if len(steps) < 2 or sum(spans) <= 0:
        return 0.0
    error = float(np.std(steps, ddof=1)) / len(steps) ** 0.5
    significant = float(np.mean(steps)) > student_t(len(steps) - 1, _CONFIDENCE) * error
    return sum(steps) / sum(spans) if significant else 0.0


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


def _requests_at_once(record: RunRecord, late: Ints) -> float:
    """Requests served at once if the rate and service times of the second half lasted: Little's law."""
    if len(late) < _FEWEST_PER_SLICE:
        return 0.0
    span_ns = float(record.arrival_ns[late[-1]] - record.arrival_ns[late[0]])
    service_ns = float((_ended_ns(record, late) - _admitted_ns(record, late)).mean())
    return (len(late) - 1) * service_ns / span_ns if span_ns > 0 else 0.0
