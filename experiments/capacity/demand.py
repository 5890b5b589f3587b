"""The demand on the whole service, in requests per second or users: its peak, mean and minimum.

A single rate or number of users is taken as a peak that the traffic also falls below. A profile states its
lower rates itself. The last row of a profile lasts to the end of its day or, in a profile shorter than an
hour, as long as the row before it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulator.errors import InputError, Problem
from simulator.units import format_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simulator.results.estimate import Estimate
    from simulator.scenario import Scenario

RATE, USERS = "rate_per_s", "concurrency"
"""The two kinds of load, under the names of `breakeven.evaluator.Load`."""

MAX_RATE_PER_S = 1e6
_DAY_S, _HOUR_S = 86_400.0, 3_600.0


@dataclass(frozen=True)
class Demand:
    """The load of all replicas together, in the unit of `kind`. `rows`: (duration in s, load) of a profile.

    `low` is the lowest load, 0 where the scenario states one figure only.
    """

    kind: str
    peak: float
    mean: float
    low: float
    rows: tuple[tuple[float, float], ...] = ()

    @property
    def unit(self) -> str:
        """The unit as text."""
        return "requests/s" if self.kind == RATE else "concurrent requests"

    def replica_load(self, replicas: int, amount: float | None = None) -> float:
        """The load of the busiest of `replicas` at the peak (or at `amount`).

        Numbers of users are integers.
        """
        total = self.peak if amount is None else amount
        return total / replicas if self.kind == RATE else math.ceil(total / replicas)

    def replicas(self, capacity: float, amount: float | None = None) -> int:
        """The fewest replicas of this capacity that serve the peak (or `amount`)."""
        if self.kind == USERS:
            capacity = max(1, whole_users(capacity))
        total = self.peak if amount is None else amount
        return max(1, math.ceil(total / capacity * (1 - 1e-12)))

    def safe_replicas(self, capacity: Estimate, amount: float | None = None) -> int:
        """The fewest replicas at the lower end of the capacity's sampling interval."""
        return self.replicas(capacity.ci95[0] if capacity.ci95 else capacity.value, amount)

    def possible_replicas(self, capacity: Estimate) -> tuple[int, int]:
        """The fewest and the most replicas that may be needed within the capacity's band."""
        low, high = capacity.band or (capacity.value, capacity.value)
        return self.replicas(high), self.replicas(low)

    def words(self, amount: float) -> str:
        """`12.3 requests/s`, `64 concurrent requests`."""
        return load_text(amount, self.unit)


def load_text(amount: float, unit: str) -> str:
    """A load with its unit: `12.3 requests/s`, `1 concurrent request`."""
    return f"{amount_text(amount)} {unit.removesuffix('s') if amount == 1 and unit.endswith('sts') else unit}"


def amount_text(amount: float) -> str:
    """A load with three digits; integers in full."""
    return f"{amount:,.0f}" if amount == int(amount) else format_number(amount)


def gpus_text(count: int) -> str:
    """`1 GPU`, `2 GPUs`."""
    return f"{count:,} GPU{'' if count == 1 else 's'}"


def whole_users(users: float) -> int:
    """The integer number of users in a capacity that the search found between two integers."""
    return math.floor(users + 1e-6)


def demand_of(scenario: Scenario, rate_per_s: float | None = None) -> Demand:
    """The demand of a scenario, or of Poisson arrivals at `rate_per_s`.

    Raises InputError for traffic without a rate to plan for, and for a rate out of range.
    """
    arrivals = scenario.workload.arrivals
    if rate_per_s is not None and not 0 < rate_per_s <= MAX_RATE_PER_S:
        problem = Problem(
            file="--rate", value=rate_per_s, message="is out of range", allowed="above 0, to 1,000,000"
        )
        raise InputError(problem)
    if rate_per_s is not None and arrivals.kind != "trace":
        return Demand(RATE, rate_per_s, rate_per_s, 0.0)
    match arrivals.kind:
        case "closed":
            users = float(arrivals.concurrency)
            return Demand(USERS, users, users, 0.0)
        case "profile":
            return _profile_demand(arrivals.rates_per_s)
        case "burst":
            message, allowed = (
                "arrives all at once, so there is no rate to plan for",
                "--rate, or arrivals with one",
            )
        case "trace":
            message = "replays recorded times and lengths, which cannot be scaled to another load"
            allowed = "poisson, gamma, profile or closed, with lengths of their own ({kind: empirical, file})"
        case _:
            return Demand(RATE, arrivals.rate_per_s, arrivals.rate_per_s, 0.0)
    problem = Problem(field="workload.arrivals", value=arrivals.kind, message=message, allowed=allowed)
    raise InputError(problem)


def _profile_demand(rows: Sequence[tuple[float, float]]) -> Demand:
    starts = [start for start, _ in rows]
    if len(rows) == 1:
        return Demand(RATE, rows[0][1], rows[0][1], 0.0)
    last_start_s = starts[-1]
    end = (
        math.ceil((last_start_s + 1) / _DAY_S) * _DAY_S
        if last_start_s >= _HOUR_S
        else 2 * last_start_s - starts[-2]
    )
    lengths = [b - a for a, b in zip(starts, [*starts[1:], end], strict=True)]
    loads = [rate for _, rate in rows]
    mean = sum(length * load for length, load in zip(lengths, loads, strict=True)) / end
    low = min(load for load in loads if load > 0)
    return Demand(RATE, max(loads), mean, low, tuple(zip(lengths, loads, strict=True)))
