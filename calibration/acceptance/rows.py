"""Summarises samples: one row per drafter, domain and setting, every figure with its interval.

Requests are the independent units, because rounds of one request are correlated. So intervals come from the
variance between requests (linearised ratio, Student's t), never from counting rounds as independent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from calibration.acceptance.samples import DecodingSetting, Level, RequestSample
from simulator.acceptance import Gated
from simulator.results.estimate import Estimate, student_t95


@dataclass(frozen=True)
class AcceptanceRow:
    """Acceptance under one setting.

    Over rounds with a draft, as engines count; None and empty if no round drafted: mean_acceptance_length is
    1 + accepted ÷ rounds, acceptance_rate_at is the share of rounds that accepted at least j drafts, and
    conditional is that share of the rounds that accepted at least j - 1.

    tokens_per_round also counts rounds without a draft; coverage is the share of rounds with one.

    alpha_from_distributions is the mean probability that a tried draft is accepted, 1 - TV of the two
    distributions; alpha_from_counts is the share of tried drafts that were accepted. For a tree both are
    about the first candidate. agreement is their difference in standard errors of the sampling noise; None at
    temperature 0, where probabilities are 0 or 1 and both are equal.
    """

    draft: str
    domain: str
    setting: DecodingSetting
    requests: int
    rounds: int
    drafted_levels: int
    drafted_tokens: int
    coverage: float
    tokens_per_round: Estimate
    mean_acceptance_length: Estimate | None
    acceptance_rate_at: tuple[Estimate, ...]
    conditional: tuple[Estimate | None, ...]
    alpha_from_distributions: Estimate | None
    alpha_from_counts: Estimate | None
    agreement: float | None
    gate: Gated | None

    def to_json(self) -> dict[str, Any]:
        """The row as `decodesim accept` writes it; with `gated` if some rounds had no draft."""
        return {
            "draft": self.draft,
            "domain": self.domain,
            "temperature": self.setting.temperature,
            "draft_length": self.setting.draft_length,
            "draft_sampling": self.setting.draft_sampling,
            "requests": self.requests,
            "verify_steps": self.rounds,
            "drafted_levels": self.drafted_levels,
            "drafted_tokens": self.drafted_tokens,
            "draft_coverage": round(self.coverage, 6),
            "tokens_per_round": estimate_json(self.tokens_per_round),
            "mean_acceptance_length": estimate_json(self.mean_acceptance_length),
            "acceptance_rate_at": [estimate_json(rate) for rate in self.acceptance_rate_at],
            "conditional_acceptance": [estimate_json(rate) for rate in self.conditional],
            "alpha_from_distributions": estimate_json(self.alpha_from_distributions),
            "alpha_from_counts": estimate_json(self.alpha_from_counts),
            "alphas_differ_by_standard_errors": self.agreement and round(self.agreement, 3),
            **({} if self.gate is None else {"gated": gated_json(self.gate)}),
        }


def row_of(samples: Sequence[RequestSample]) -> AcceptanceRow:
    """Return the row of samples that share draft, domain and setting; at least one sample has a round."""
    first = samples[0]
    rounds = [len(sample.accepted) for sample in samples]
    with_draft = [
        [a for a, d in zip(sample.accepted, sample.drafted, strict=True) if d > 0] for sample in samples
    ]
    at_least = [
        [sum(accepted >= j for accepted in request) for request in with_draft]
        for j in range(first.setting.draft_length + 1)
    ]
    emitted = ratio([sum(sample.accepted) + len(sample.accepted) for sample in samples], rounds)
    assert emitted is not None
    drafting = [len(request) for request in with_draft]
    mean = ratio([sum(request) + len(request) for request in with_draft], drafting)
    survival = [ratio(at_least[j], drafting) for j in range(1, len(at_least))]
    levels = [sum(sample.levels, Level(0, 0, 0, 0.0, 0.0)) for sample in samples]
    tried = [level.tried for level in levels]
    variance = math.fsum(level.variance for level in levels)
    surplus = math.fsum(level.first_accepted - level.chance for level in levels)
    return AcceptanceRow(
        draft=first.draft,
        domain=first.domain,
        setting=first.setting,
        requests=len(samples),
        rounds=sum(rounds),
        drafted_levels=sum(sum(sample.drafted) for sample in samples),
        drafted_tokens=sum(sum(sample.nodes) for sample in samples),
        coverage=sum(drafting) / sum(rounds),
        tokens_per_round=emitted.clipped(1.0, first.setting.draft_length + 1.0),
        mean_acceptance_length=mean and mean.clipped(1.0, first.setting.draft_length + 1.0),
        acceptance_rate_at=tuple(rate.clipped(0.0, 1.0) for rate in survival if rate is not None),
        conditional=tuple(_rate(at_least[j], at_least[j - 1]) for j in range(1, len(at_least))),
        alpha_from_distributions=_rate([level.chance for level in levels], tried),
        alpha_from_counts=_rate([level.first_accepted for level in levels], tried),
        agreement=surplus / math.sqrt(variance) if variance > 0.0 else None,
        gate=None if sum(drafting) == sum(rounds) else gate_of(samples),
    )


def gate_of(samples: Sequence[RequestSample]) -> Gated:
    """Return the gated model: how successive rounds find a match, and the acceptance of rounds with one."""
    matched = [[drafted > 0 for drafted in sample.drafted] for sample in samples]
    match = sum(map(sum, matched)) / sum(map(len, matched))
    after_match = [now for request in matched for before, now in pairwise(request) if before]
    match_after_match = sum(after_match) / len(after_match) if after_match else match
    stickiness = min(max((match_after_match - match) / (1.0 - match), 0.0), 1.0) if match < 1.0 else 0.0
    pairs = [(a, d) for s in samples for a, d in zip(s.accepted, s.drafted, strict=True) if d > 0]
    first = sum(a > 0 for a, _ in pairs) / max(len(pairs), 1)
    later_trials = sum(
        min(a, d - 1) for a, d in pairs if a > 0
    )  # drafts tried after the first, of which the last may have been rejected
    run = sum(a - 1 for a, _ in pairs if a > 0) / later_trials if later_trials else 0.0
    return Gated(match, stickiness, first, run)


def gated_json(gate: Gated) -> dict[str, float]:
    """The gated model as in a scenario's acceptance section."""
    values = {
        "match": gate.match_probability,
        "stickiness": gate.stickiness,
        "first": gate.first,
        "run": gate.run,
    }
    return {key: round(value, 6) for key, value in values.items()}


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Estimate | None:
    """Return the ratio of sums over requests with the interval of the linearised ratio (Cochran 1977, §2.11).

    A single request has no interval. None if the denominators sum to 0.
    """
    total, count = math.fsum(denominators), len(denominators)
    if total <= 0.0:
        return None
    value = math.fsum(numerators) / total
    if count < 2:
        return Estimate(value)
    squares = math.fsum((y - value * x) ** 2 for y, x in zip(numerators, denominators, strict=True))
    half = student_t95(count - 1) * math.sqrt(count / (count - 1) * squares) / total
    return Estimate(value, (value - half, value + half), (value - half, value + half))


def _rate(numerators: Sequence[float], denominators: Sequence[float]) -> Estimate | None:
    estimate = ratio(numerators, denominators)
    return estimate and estimate.clipped(0.0, 1.0)


def estimate_json(estimate: Estimate | None) -> dict[str, Any] | None:
    """The estimate as JSON, to six decimal places; None without an estimate."""
    if estimate is None:
        return None
    ci95 = estimate.ci95 and [round(end, 6) for end in estimate.ci95]
    return {"value": round(estimate.value, 6), "ci95": ci95, "band": ci95}
