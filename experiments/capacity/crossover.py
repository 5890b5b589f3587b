"""The load up to which speculation pays on one replica: by mean TPOT at rates, else by throughput."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.capacity.demand import RATE
from experiments.capacity.load_search import TOLERANCE, exponential, lowest_load, score_by_log_load
from experiments.capacity.replica import FULL, Replica
from simulator.breakeven.root_search import ALWAYS, FOUND, UNREACHABLE, RootSearch

if TYPE_CHECKING:
    from simulator.results.estimate import Estimate

ALL_LOADS, NO_LOAD, BELOW, UNCLEAR = "pays-at-all-loads", "pays-at-no-load", "pays-below", "unclear"
_SCORE_OF_SATURATION = 5.0
"""Score of a rate that saturates only one of the two variants."""


@dataclass(frozen=True)
class Crossover:
    """`load` is that of one replica at which both variants are equal, None unless `outcome` is `pays-below`.

    `idle_pays`: speculation is faster with one request at a time.
    """

    outcome: str
    load: Estimate | None
    highest_load: float
    """The highest load tried: one of the variants saturates there."""
    idle_pays: bool

    @property
    def certain_below(self) -> float:
        """The load below which speculation pays over the whole band; 0 where there is none."""
        if self.outcome == ALL_LOADS:
            return self.highest_load
        if self.load is None:
            return 0.0
        return self.load.band[0] if self.load.band else self.load.value


def find_crossover(plain: Replica, drafting: Replica, kind: str, replications: int, band: float) -> Crossover:
    """The load at which the variants tie. The band scales the decodes of the speculative variant only."""
    requests = max(plain.min_requests, plain.requests_needed(plain.max_running_requests / 4))

    def score(load: float, replication: int, scale: float) -> float:
        before = plain.run_at(kind, load, replication, requests=requests)
        after = drafting.run_at(
            kind, load, replication, requests=requests, step_scale=scale, decodes_only=True
        )
        if before.saturated != after.saturated:
            return _SCORE_OF_SATURATION if after.saturated else -_SCORE_OF_SATURATION
        if kind == RATE and not before.saturated:
            return math.log(after.figures["tpot_s.mean"] / before.figures["tpot_s.mean"])
        path = "throughput_tokens_per_s"
        return math.log(before.figures[path] / after.figures[path])

    max_requests = min(plain.max_running_requests, drafting.max_running_requests)
    saturated_rates = [
        replica.run_at(FULL, max_requests, requests=requests).figures["request_rate_per_s"]
        for replica in (plain, drafting)
    ]
    highest_load = min(saturated_rates) if kind == RATE else float(max_requests)
    lowest_load_searched = lowest_load(plain.run_at(FULL, 1), kind, highest_load)
    idle_tpots_s = [replica.run_at(FULL, 1).figures["tpot_s.mean"] for replica in (plain, drafting)]
    idle_pays = idle_tpots_s[1] < idle_tpots_s[0]
    if highest_load <= lowest_load_searched:
        return Crossover(ALL_LOADS if idle_pays else NO_LOAD, None, highest_load, idle_pays)
    low, high = math.log(lowest_load_searched), math.log(highest_load)
    search = RootSearch(
        score_by_log_load(kind, score), replications, band, low=low, high=high, tolerance=TOLERANCE
    )
    root = search.find((low + 2 * high) / 3)
    if root.outcome == FOUND and root.value is not None:
        return Crossover(BELOW, exponential(root.value), highest_load, idle_pays)
    outcome = {UNREACHABLE: ALL_LOADS, ALWAYS: NO_LOAD}.get(root.outcome, UNCLEAR)
    return Crossover(outcome, None, highest_load, idle_pays)
