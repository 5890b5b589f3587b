"""What output tokens cost: GPU-hours, or money at the price of a GPU hour."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from simulator.errors import Problem
from simulator.results.estimate import Estimate, Interval, estimate_from_json

if TYPE_CHECKING:
    from simulator.scenario import Scenario

SECONDS_PER_HOUR = 3600.0


def gpu_hours(gpus: float, tokens_per_s: float) -> float:
    """GPU-hours per million tokens."""
    return gpus / (tokens_per_s * SECONDS_PER_HOUR) * 1e6


def price_problem(gpu_hour_cost: float | None) -> Problem | None:
    """What is wrong with the price of a GPU hour; None where nothing is."""
    if gpu_hour_cost is None or 0 < gpu_hour_cost < math.inf:
        return None
    message, allowed = "is out of range", "a number above 0"
    return Problem(file="--gpu-hour-cost", value=gpu_hour_cost, message=message, allowed=allowed)


def with_costs(document: Mapping[str, Any], scenario: Scenario, gpu_hour_cost: float) -> dict[str, Any]:
    """A document of `simulate` with `cost_per_million_tokens` of every variant, at the throughput that the
    GPUs of all replicas reach.
    """
    gpus = scenario.hardware.tensor_parallel * scenario.hardware.replicas
    arms = {}
    for name, variant in document["arms"].items():
        throughput = variant.get("throughput_tokens_per_s")
        cost = None if throughput is None else _cost(estimate_from_json(throughput), gpus * gpu_hour_cost)
        arms[name] = {**variant, "cost_per_million_tokens": cost and cost.to_json()}
    return {**document, "arms": arms}


def _cost(tokens_per_s: Estimate, gpu_price_per_hour: float) -> Estimate | None:
    """The cost per million tokens; an interval of the throughput that reaches 0 has none."""
    if tokens_per_s.value <= 0:
        return None

    def turned(interval: Interval | None) -> Interval | None:
        if interval is None or interval[0] <= 0:
            return None
        low, high = (gpu_hours(gpu_price_per_hour, bound) for bound in reversed(interval))
        return low, high

    value = gpu_hours(gpu_price_per_hour, tokens_per_s.value)
    return Estimate(value, turned(tokens_per_s.ci95), turned(tokens_per_s.band))
