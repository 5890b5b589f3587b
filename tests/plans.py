"""A scenario so small that a whole plan takes seconds: SmolLM2-135M with n-gram lookups, on one GPU only.

Without a front end, which such an engine would wait for.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from experiments.capacity.answer import CapacityPlan
from experiments.capacity.candidates import Candidates
from experiments.capacity.demand import RATE, Demand, demand_of
from experiments.capacity.plan import plan
from experiments.capacity.slo import slo_of
from simulator.results.summary import STEP_BAND
from simulator.scenario import Scenario
from tests.runs import NO_FRONT_END, small_scenario

TINY: dict[str, Any] = {
    "target": {"model": "smollm2-135m-instruct"},
    "hardware": {"gpu": "h100-sxm"},
    "engine": {"max_num_seqs": 16, "host": NO_FRONT_END["engine.host"]},
    "speculation": [
        {
            "name": "lookup",
            "method": "ngram",
            "draft_length": 2,
            "acceptance": {"model": "geometric", "alpha": 0.5},
        }
    ],
    "workload": {
        "arrivals": {"kind": "poisson", "rate_per_s": 100.0},
        "requests": 1600,
        "prompt_tokens": {"kind": "fixed", "tokens": 50},
        "output_tokens": {"kind": "uniform", "low": 30, "high": 50},
    },
    "slo": {"tpot_p99_s": 0.0017},
}
REPLICATIONS = 5


def tiny(changes: dict[str, Any] | None = None) -> Scenario:
    """`TINY` with changes by dotted path."""
    return small_scenario(changes, TINY)


def candidates(scenario: Scenario, slo: str | None = None, demand: Demand | None = None) -> Candidates:
    """What a plan searches among."""
    asked = demand_of(scenario) if demand is None else demand
    return Candidates(scenario, slo_of(scenario, slo), asked, REPLICATIONS, STEP_BAND, lambda _: None)


def rate(rate_per_s: float) -> Demand:
    """A demand of one figure."""
    return Demand(RATE, rate_per_s, rate_per_s, 0.0)


@cache
def tiny_plan() -> CapacityPlan:
    """The plan of `TINY`."""
    return plan(tiny(), gpu_hour_cost=3.0)
