"""The ONE verdict: does speculation pay, by the band, and the strongest reason in one sentence.

Every command, page, gate and validation asks here. A speedup *pays* when its whole band lies above
the target, *loses* when all of it lies below, and is *undecided* in between: then the model does not know,
and says so. The same holds turned round for an acceptance against its break-even. Where there is too little
to judge by, there is no verdict at all: `NO_VERDICT`. The reason
is the largest of the effects that a speedup is made of: throughput = batch × tokens per round ÷ step time
(G = E / (1 + o) of `breakeven/theory.py`, with the batch).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from simulator.results.estimate import Estimate

PAYS, LOSES, UNDECIDED = "pays", "loses", "undecided"
UNREACHABLE, DOES_NOT_FIT, SATURATED = "unreachable", "does-not-fit", "saturated"
NO_VERDICT = None
"""The outcome where the runs are too short, nothing was verified, or no acceptance was given."""


@dataclass(frozen=True)
class Verdict:
    """`outcome` is one of the words above; `sentence` says it in full, with the strongest reason."""

    outcome: str | None
    sentence: str

    @staticmethod
    def none(variant: str, reason: str) -> Verdict:
        """No verdict, and why."""
        return Verdict(NO_VERDICT, f"{variant}: no verdict: {reason}")


def judge_speedup(speedup: Estimate | None, target: float = 1.0) -> str:
    """pays, loses or undecided: where the band of a speedup (> 1 is better) lies against the target."""
    if speedup is None or speedup.band is None:
        return UNDECIDED
    low, high = speedup.band
    return PAYS if low > target else LOSES if high < target else UNDECIDED


def judge_acceptance(acceptance: float, break_even: Estimate | None) -> str:
    """pays, loses or undecided: an acceptance above, below or within the band of the break-even."""
    if break_even is None or break_even.band is None:
        return UNDECIDED
    low, high = break_even.band
    return PAYS if acceptance > high else LOSES if acceptance < low else UNDECIDED


def explain(
    variant: str,
    metric: str,
    speedup: Estimate | None,
    plain: Mapping[str, float],
    speculative: Mapping[str, float],
) -> Verdict:
    """The verdict on one variant and its sentence.

    `metric` is the word for what was sped up; `plain` and `speculative` map the paths
    of `measure.py` to values of both variants: `tokens_per_round`, `mean_batch` and `step_s.…`
    are used, and what is missing is left out.
    """
    outcome = judge_speedup(speedup)
    if speedup is None:
        return Verdict(outcome, f"{variant}: {outcome}: {metric} is not available for both variants")
    words = f"{metric} × {speedup.value:.2f}"
    if speedup.band is None:
        return Verdict(outcome, f"{variant}: {outcome}: {words}, from one replication, which has no interval")
    words += f" ({speedup.band[0]:.2f} to {speedup.band[1]:.2f})"
    effects = effects_of(plain, speculative)
    if outcome == UNDECIDED:
        sampling = judge_speedup(_without_sampling(speedup)) != UNDECIDED
        why = (
            "the spread between replications is too wide: simulate more requests or replications"
            if sampling
            else "the effect is smaller than the error of the cost model: measure to decide"
        )
    elif effects:
        why = _reason(outcome, effects, plain, speculative)
    else:
        why = "the variants differ by more than the band"
    return Verdict(outcome, f"{variant}: {outcome}: {words}: {why}")


def _without_sampling(speedup: Estimate) -> Estimate:
    """The speedup if only the cost model's error were left: what more replications would lead to."""
    if speedup.ci95 is None or speedup.band is None:
        return speedup
    value = speedup.value
    below = math.sqrt(max(0.0, (value - speedup.band[0]) ** 2 - (value - speedup.ci95[0]) ** 2))
    above = math.sqrt(max(0.0, (speedup.band[1] - value) ** 2 - (speedup.ci95[1] - value) ** 2))
    return Estimate(value, (value, value), (value - below, value + above))


def effects_of(plain: Mapping[str, float], speculative: Mapping[str, float]) -> dict[str, float]:
    """What the speedup is made of, as ln(factor): tokens, batch,
    and each part of the step. Empty without the figures.
    """

    def both_values(path: str) -> tuple[float, float] | None:
        pair = plain.get(path, math.nan), speculative.get(path, math.nan)
        return pair if all(map(math.isfinite, pair)) else None

    step, tokens, batch = (
        both_values("step_s.mean"),
        both_values("tokens_per_round"),
        both_values("mean_batch"),
    )
    if step is None or tokens is None or min(*step, *tokens) <= 0:
        return {}
    effects = {"tokens": math.log(tokens[1] / tokens[0])}
    if batch is not None and min(batch) > 0:
        effects["batch"] = math.log(batch[1] / batch[0])
    for name in _COSTS:
        part = both_values(f"step_s.{name}")
        if part is not None and part[1] - part[0] > -step[0]:
            effects[name] = -math.log1p((part[1] - part[0]) / step[0])
    return effects


_COSTS = {
    "draft": "drafting",
    "verify": "verifying the drafts",
    "sampling": "accepting and sampling",
    "host": "work on the host",
}


def _reason(
    outcome: str, effects: Mapping[str, float], plain: Mapping[str, float], speculative: Mapping[str, float]
) -> str:
    tokens = speculative["tokens_per_round"]
    step_ratio = speculative["step_s.mean"] / plain["step_s.mean"]
    balance = f"each round yields {tokens:.2f} tokens for a step {step_ratio:.2f} × as long"
    strongest = (max if outcome == PAYS else min)(effects, key=lambda name: effects[name])
    if strongest == "tokens":
        return balance
    if strongest == "batch":
        rose = "more" if outcome == PAYS else "fewer"
        return (
            f"{rose} requests decode together ({speculative['mean_batch']:.0f} in place of "
            f"{plain['mean_batch']:.0f}), and {balance}"
        )
    growth_s = speculative[f"step_s.{strongest}"] - plain[f"step_s.{strongest}"]
    share = growth_s / plain["step_s.mean"]
    return f"{balance}, most of it by {_COSTS[strongest]} ({share:+.0%} of a plain step)"
