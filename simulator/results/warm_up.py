"""Which requests are measured: from the end of the warm-up, found in the runs, to the start of the drain.

The warm-up is never shorter than a rule by the kind of arrivals. Where arrivals keep their rate it is also
looked for in the runs. MSER-5 (White 1997) proposes as many leading requests as make the standard error of
the mean of what remains smallest; its series is the stay of each request, less what the request's own length
explains, in the mean over replications and in batches of five. As it also proposes to leave out busy periods
that only chance put first, which would bias what remains, a proposal beyond the rule counts when the
replications agree on it (Student t at 95 %). All variants of a scenario share one range, the latest that any
of them asks for, so that they stay comparable request by request. Left out: rates that change by themselves
(profiles, traces) have no steady stretch to look for, and a burst is measured whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from simulator.numerics.arrays import Floats
from simulator.results.estimate import mean_estimate
from simulator.units import NS_PER_S

if TYPE_CHECKING:
    from simulator.results.record import RunRecord
    from simulator.scenario import Scenario

STEADY_KINDS = ("closed", "poisson", "gamma")
"""Arrivals that keep their rate."""
MOST_CORRELATION = 0.2
"""Largest correlation of neighbouring stretches, each a twentieth of the measured requests. M/M/1 queues
above it give intervals that cover the true mean waiting in fewer than 90 of 100 cases (docs/statistics.md).
"""

BATCH_REQUESTS = 5
_FEWEST_BATCHES = 20
_STRETCHES = 20
_NEGLIGIBLE = 1e-6
"""Relative differences of stays so small do not matter: runs in lock step have none but rounding."""


def measured_requests(scenario: Scenario, count: int, warm_up: int = 0) -> tuple[int, int]:
    """Return the range of requests that are measured: after the warm-up, before the drain.

    Closed loop: not the first two rounds of all clients or 10 %, nor the last round, in which clients fall
    idle. Open loop: not the first 10 % and the last 5 %. A burst is measured whole. `warm_up`: at least so
    many requests are left out at the start, up to half of all.
    """
    arrivals = scenario.workload.arrivals
    if arrivals.kind == "burst":
        return 0, count
    if arrivals.kind == "closed":
        clients = min(arrivals.concurrency, count)
        first, end = min(max(2 * clients, count // 10), count // 3), count - clients
    else:
        first, end = count // 10, count - count // 20
    first = max(first, min(warm_up, count // 2))
    return first, max(first + 1, end)


class Steadiness(NamedTuple):
    """Where the replications of a variant become steady, and whether they are long enough."""

    warm_up: int
    """Requests to leave out; 0: the usual ones are enough."""
    too_short: str | None
    """Why the runs are too short for the intervals of means, in words; None where they are not."""


def steadiness(stays: Sequence[Floats], measured: tuple[int, int]) -> Steadiness:
    """Judge the replications of one variant: `stays` are those of `stays_s`, each (n,); `measured` is the
    usual range of requests.
    """
    first, end = (-(-bound // BATCH_REQUESTS) for bound in measured)
    if end < _FEWEST_BATCHES:
        return Steadiness(0, f"{measured[1]:,} requests do not show where their warm-up ends")
    runs = [run[:end] for run in stays]
    cut = mser_cut(_mean(runs))
    if cut is None and _differ(runs, slice(first, (first + end) // 2), slice((first + end) // 2, end)):
        return Steadiness(0, "runs are not steady when they end")
    if cut is None or cut <= first or not _differ(runs, slice(first, cut), slice(cut, end)):
        cut = 0
    return Steadiness(cut * BATCH_REQUESTS, _memory([run[max(first, cut) :] for run in runs]))


def stays_s(record: RunRecord) -> Floats:
    """Time from arrival to end less what a request's own length explains, s: means of batches of five
    requests in order (n // 5,), NaN where none of them ended.
    """
    ended = (record.ended_ns >= 0) & (record.arrival_ns >= 0)
    stay = np.where(ended, (record.ended_ns - record.arrival_ns) / NS_PER_S, 0.0)
    tokens = record.emitted_tokens - (record.emitted_tokens[ended].mean() if ended.any() else 0.0)
    squares = float((tokens[ended] ** 2).sum())
    slope = float(tokens[ended] @ stay[ended]) / squares if squares > 0 else 0.0
    count = len(stay) // BATCH_REQUESTS
    in_batches = (slice(0, count * BATCH_REQUESTS), (count, BATCH_REQUESTS))
    total, known = (
        values[in_batches[0]].reshape(in_batches[1]).sum(axis=1)
        for values in (np.where(ended, stay - slope * tokens, 0.0), ended)
    )
    return np.where(known > 0, total / np.maximum(known, 1), np.nan)


def mser_cut(series: Floats) -> int | None:
    """How many leading entries of a series (n,) to leave out, so that the standard error of the mean of the
    others is smallest; None where that cut lies in its second half: then no steady stretch is known.

    Entries that are NaN count as the mean of the others. Raises ValueError for an empty series.
    """
    known = np.isfinite(series)
    centre = float(series[known].mean()) if known.any() else 0.0
    apart = np.where(known, series - centre, 0.0)
    left = np.arange(len(series), 0, -1)
    sums, squares = (np.cumsum(values[::-1])[::-1] for values in (apart, apart**2))
    error = (squares - sums**2 / left) / left**2 + (_NEGLIGIBLE * centre) ** 2 / left
    cut = int(np.argmin(error[: max(1, len(series) - BATCH_REQUESTS)]))
    return cut if 2 * cut < len(series) else None


def _mean(runs: Sequence[Floats]) -> Floats:
    """The mean over runs (n,) of what is known at each place; NaN where nothing is."""
    values = np.stack(runs)
    known = np.isfinite(values)
    counts = known.sum(axis=0)
    return np.where(counts > 0, np.where(known, values, 0.0).sum(axis=0) / np.maximum(counts, 1), np.nan)


def _differ(runs: Sequence[Floats], first: slice, second: slice) -> bool:
    """Whether the mean stays in two parts of the runs differ, in all runs alike. One or two runs cannot
    agree: then the parts count as different.
    """
    gaps = mean_estimate([_known_mean(run[first]) - _known_mean(run[second]) for run in runs])
    if len(runs) < 3 or gaps is None or gaps.ci95 is None:
        return True
    return not gaps.ci95[0] <= 0 <= gaps.ci95[1]


def _known_mean(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")


def _memory(runs: Sequence[Floats]) -> str | None:
    """A note where neighbouring stretches of the runs (n,) correlate, pooled over runs."""
    products = squares = 0.0
    for run in runs:
        known = run[np.isfinite(run)]
        if len(known) < _STRETCHES:
            continue
        means = np.array([stretch.mean() for stretch in np.array_split(known, _STRETCHES)])
        apart = means - means.mean()
        products += float(apart[1:] @ apart[:-1]) / (_STRETCHES - 1)
        squares += float(apart @ apart) / _STRETCHES + (_NEGLIGIBLE * float(means.mean())) ** 2
    correlation = products / squares if squares > 0 else 0.0
    if correlation <= MOST_CORRELATION:
        return None
    return f"busy periods are long relative to a run (its twentieths correlate by {correlation:.2f})"
