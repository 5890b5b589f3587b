"""Arrival times in integer nanoseconds, for the arrival processes of docs/scenario.md.

A rate counts requests. With sessions of several turns only the first turn of each has an arrival time, as
later ones follow their predecessor. Sessions therefore start at rate ÷ turns, and the requests still arrive
at the rate asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simulator.errors import InputError, Problem
from simulator.traffic.streams import stream
from simulator.units import LATEST_S, NS_PER_S

if TYPE_CHECKING:
    from simulator.scenario.arrivals import (
        ArrivalsBurst,
        ArrivalsClosed,
        ArrivalsGamma,
        ArrivalsPoisson,
        ArrivalsProfile,
    )

    DrawnArrivals = ArrivalsClosed | ArrivalsBurst | ArrivalsPoisson | ArrivalsGamma | ArrivalsProfile

UNKNOWN_NS = -1
"""Arrival of a request that is issued when another request ends."""

_SMALLEST_CV = 1e-9


def draw_arrivals(
    arrivals: DrawnArrivals, seed: int, n: int, turns: int = 1, gap_s: float = 0.0
) -> NDArray[np.int64]:
    """Arrival times in ns of `n` requests, or of `n` sessions of `turns`, `gap_s` apart; shape (n,).

    Closed loop: the first `concurrency` arrive at 0, or spread over the ramp. Where clients pause, they are
    spread at least over the pauses of one round, because clients that start together would stay in step for
    many rounds. The others are -1: clients issue them as they become free. The n-th arrival does not depend
    on how many there are. Raises InputError when the arrivals last longer than the clock runs.
    """
    if arrivals.kind == "closed":
        times_ns = np.full(n, UNKNOWN_NS, dtype=np.int64)
        started = np.arange(min(arrivals.concurrency, n)) / arrivals.concurrency
        pauses_s = min(arrivals.think_time_s + (turns - 1) * gap_s, LATEST_S)
        times_ns[: len(started)] = np.rint(started * max(arrivals.ramp_s, pauses_s) * NS_PER_S)
        return times_ns
    if arrivals.kind == "burst":
        return np.zeros(n, dtype=np.int64)
    generator = stream(seed, "arrivals")
    if arrivals.kind == "gamma":
        shape = max(arrivals.cv, _SMALLEST_CV) ** -2.0
        unit_s = np.cumsum(generator.standard_gamma(shape, n)) / shape
    else:
        unit_s = np.cumsum(generator.standard_exponential(n))
    with np.errstate(over="ignore"):  # an infinite time is refused below
        if arrivals.kind == "profile":
            times_s = rescale(unit_s * turns, arrivals.rates_per_s)
        else:
            times_s = unit_s * turns / arrivals.rate_per_s
    if n:
        check_clock(float(times_s[-1]), f"the last of {n} arrivals comes", "workload.arrivals")
    return np.rint(times_s * NS_PER_S).astype(np.int64)


def check_clock(latest_s: float, what: str, field: str) -> None:
    """Raises InputError when `what` happens later than the clock runs."""
    if not latest_s <= LATEST_S:
        message = f"{what} after {latest_s:.3g} s"
        raise InputError(Problem(field=field, message=message, allowed=f"must be within {LATEST_S:.0e} s"))


def rescale(unit_s: NDArray[np.float64], rates_per_s: Sequence[tuple[float, float]]) -> NDArray[np.float64]:
    """Return the exact event times of a Poisson process with a piecewise constant rate, in s, shape (n,).

    `unit_s` (n,) are the event times of a process of rate 1, ascending; `rates_per_s` are (start, rate) in
    order of start, and the last rate lasts for ever. The n-th event falls where the integral of the rate
    reaches `unit_s[n]` (time-rescaling theorem; Brown et al., Neural Computation 14, 2002). Raises
    InputError when the last rate is 0.
    """
    start_s = np.array([start for start, _ in rates_per_s], dtype=np.float64)
    rate = np.array([rate for _, rate in rates_per_s], dtype=np.float64)
    if not rate[-1] > 0:
        raise InputError(
            Problem(
                field="workload.arrivals.rates_per_s",
                value=float(rate[-1]),
                message="the last rate lasts for ever",
                allowed="must be above 0",
            )
        )
    reached = np.concatenate(([0.0], np.cumsum(np.diff(start_s) * rate[:-1])))
    segment = np.searchsorted(reached, unit_s, side="right") - 1  # the last of equals: never one of rate 0
    times_s: NDArray[np.float64] = start_s[segment] + (unit_s - reached[segment]) / rate[segment]
    return times_s
