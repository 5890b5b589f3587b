"""Up to which load speculation pays, on one replica: mean TPOT at rates, throughput for users who wait."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.capacity.demand import RATE
from experiments.capacity.load_search import TOLERANCE, exponential, lowest_load, over_loads
from experiments.capacity.replica import FULL, Replica
from simulator.breakeven.root_search import ALWAYS, FOUND, UNREACHABLE, RootSearch

if TYPE_CHECKING:
    from simulator.results.estimate import Estimate

ALL_LOADS, NO_LOAD, BELOW, UNCLEAR = "pays-at-all-loads", "pays-at-no-load", "pays-below", "unclear"
_ONE_SERVES = 5.0
"""Score of a rate that only one of the two variants serves."""


@dataclass(frozen=True)
class Crossover:
    """`load` of one replica at which both variants are equal, None unless `outcome` is `pays-below`.
    `idle_pays`:
    speculation is ahead with one request at a time.
    """

    outcome: str
    load: Estimate | None
    highest: float
    """The highest load looked at: where one of the variants saturates."""
    idle_pays: bool

    @property
    def surely_below(self) -> float:
        """The load below which it pays even at the unlucky end of the band; 0: none."""
        if self.outcome == ALL_LOADS:
            return self.highest
        if self.load is None:
            return 0.0
        return self.load.band[0] if self.load.band else self.load.value


def crossover(plain: Replica, drafting: Replica, kind: str, replications: int, band: float) -> Crossover:
    """Where the variants tie. The band holds plain decoding still and scales the decodes of the other."""
    requests = max(plain.fewest_requests, plain.enough_requests(plain.seats / 4))

    def score(load: float, replication: int, scale: float) -> float:
        before = plain.seen(kind, load, replication, requests=requests)
        after = drafting.seen(kind, load, replication, requests=requests, step_scale=scale, decodes_only=True)
        if before.saturated != after.saturated:
            return _ONE_SERVES if after.saturated else -_ONE_SERVES
        if kind == RATE and not before.saturated:
            return math.log(after.figures["tpot_s.mean"] / before.figures["tpot_s.mean"])
        path = "throughput_tokens_per_s"
        return math.log(before.figures[path] / after.figures[path])

    seats = min(plain.seats, drafting.seats)
    full = [
        one.seen(FULL, seats, requests=requests).figures["request_rate_per_s"] for one in (plain, drafting)
    ]
    highest = min(full) if kind == RATE else float(seats)
    lowest = lowest_load(plain.seen(FULL, 1), kind, highest)
    idle = [one.seen(FULL, 1).figures["tpot_s.mean"] for one in (plain, drafting)]
    idle_pays = idle[1] < idle[0]
    if highest <= lowest:
        return Crossover(ALL_LOADS if idle_pays else NO_LOAD, None, highest, idle_pays)
    low, high = math.log(lowest), math.log(highest)
    search = RootSearch(over_loads(kind, score), replications, band, low=low, high=high, tolerance=TOLERANCE)
    root = search.find((low + 2 * high) / 3)
    if root.outcome == FOUND and root.value is not None:
        return Crossover(BELOW, exponential(root.value), highest, idle_pays)
    outcome = {UNREACHABLE: ALL_LOADS, ALWAYS: NO_LOAD}.get(root.outcome, UNCLEAR)
    return Crossover(outcome, None, highest, idle_pays)
