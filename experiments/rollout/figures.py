"""The numbers of a rollout: the acceptance it needs, the rounds that show it, and limits of latencies."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simulator.breakeven.theory import tokens_per_verify

if TYPE_CHECKING:
    from experiments.capacity.answer import CapacityPlan
    from experiments.capacity.deployment import Deployment

_Z95 = 1.96
_ROOM = 0.1
"""A latency may exceed the simulated one by this share, the cost model's error."""
GUARDED = {f"{latency}_s.p99": f"P99 {latency.upper()}" for latency in ("ttft", "itl", "tpot")}
"""Path of a result → name of the guard."""


@dataclass(frozen=True)
class AcceptanceGate:
    """Mean acceptance lengths: `expected` by the scenario, and the band of the break-even.

    `rounds`: draft rounds of a run whose 95 % interval tells the expected length from the break-even.
    """

    draft_length: int
    expected: float
    low: float
    high: float
    rounds: int


@dataclass(frozen=True)
class LatencyGuard:
    """A P99 latency, s: of plain decoding, as simulated with speculation, and the most that is accepted.

    `from_slo`: the limit is the SLO's. `plain_s` is None where plain decoding does not meet the SLO.
    """

    path: str
    plain_s: float | None
    speculative_s: float
    limit_s: float
    from_slo: bool

    @property
    def name(self) -> str:
        """`P99 TTFT`."""
        return GUARDED[self.path]


def acceptance_gate(plan: CapacityPlan) -> AcceptanceGate | None:
    """The acceptance that decides at the planned load; None where the plan has no break-even."""
    length, break_even = plan.best.setting.draft_length, plan.break_even
    if break_even is None or break_even.alpha is None or not isinstance(length, int) or length < 1:
        return None
    low, high = break_even.alpha.band or (break_even.alpha.value, break_even.alpha.value)
    alpha = break_even.scenario_alpha if break_even.scenario_alpha is not None else high
    expected, least, most = (
        tokens_per_verify(min(max(value, 0.0), 1.0), length) for value in (alpha, low, high)
    )
    margin = max(abs(expected - most), 0.02 * expected)
    rounds = math.ceil((_Z95 * _spread(alpha, length) / margin) ** 2)
    return AcceptanceGate(length, expected, least, most, max(rounds, 100))


def _spread(alpha: float, draft_length: int) -> float:
    """Standard deviation of the tokens of a round, each draft accepted with probability α if those before it
    were.
    """
    chances = [alpha**tokens * (1 - alpha) for tokens in range(draft_length)] + [alpha**draft_length]
    mean = sum(tokens * chance for tokens, chance in enumerate(chances))
    return math.sqrt(sum((tokens - mean) ** 2 * chance for tokens, chance in enumerate(chances)))


def latency_guards(plan: CapacityPlan) -> tuple[LatencyGuard, ...]:
    """The P99 latencies of the speculative deployment at its share of the peak."""
    if plan.speculative is None:
        return ()
    limits = {limit.path: limit.maximum for limit in plan.slo.limits}
    guards = []
    for path in GUARDED:
        speculative_s, plain_s = _value(plan.speculative, path), _value(plan.plain, path)
        if speculative_s is None:
            continue
        limit_s = limits.get(path, speculative_s * (1 + _ROOM))
        guards.append(LatencyGuard(path, plain_s, speculative_s, limit_s, path in limits))
    return tuple(guards)


def _value(deployment: Deployment | None, path: str) -> float | None:
    estimate: Any = None if deployment is None else deployment.summary.estimates.get(path)
    return None if estimate is None else float(estimate.value)


def requests_for(gate: AcceptanceGate, output_tokens: float) -> int:
    """Requests that make the rounds of a gate, but not fewer than a P99 needs."""
    return max(1000, math.ceil(gate.rounds * gate.expected / max(output_tokens, 1.0)))
