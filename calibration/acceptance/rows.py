"""Samples summed up: one row per drafter, domain and setting, every figure with its interval.

Requests are the independent units: rounds of one request resemble each other, so that intervals come from
the spread of requests (linearised ratio, Student's t), never from counting rounds as independent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from calibration.acceptance.samples import Level, Sample, Setting
from simulator.results.estimate import Estimate, student_t95

Group = tuple[str, str, Setting]
"""Draft, domain, setting."""


@dataclass(frozen=True)
class Row:
    """Acceptance under one setting.

    mean_acceptance_length: tokens per round, rounds without a draft included, as a text meets them.
    acceptance_rate_at: share of rounds that accepted at least j. conditional: of those with at least j - 1.
    alpha_from_distributions: mean probability that a tried draft is accepted, 1 - TV of the two laws;
    alpha_from_counts: share that was. Where drafts are a tree both speak of the first candidate.
    agreement: their difference in standard errors of the luck between them; None at temperature 0, where
    probabilities are 0 and 1 and the two are one.
    """

    draft: str
    domain: str
    setting: Setting
    requests: int
    rounds: int
    drafted_tokens: int
    coverage: float
    mean_acceptance_length: Estimate
    acceptance_rate_at: tuple[Estimate, ...]
    conditional: tuple[Estimate | None, ...]
    alpha_from_distributions: Estimate | None
    alpha_from_counts: Estimate | None
    agreement: float | None

    def to_json(self) -> dict[str, Any]:
        """The row as `decodesim accept` writes it."""
        return {
            "draft": self.draft,
            "domain": self.domain,
            "temperature": self.setting.temperature,
            "draft_length": self.setting.draft_length,
            "draft_sampling": self.setting.draft_sampling,
            "requests": self.requests,
            "verify_steps": self.rounds,
            "drafted_tokens": self.drafted_tokens,
            "draft_coverage": self.coverage,
            "mean_acceptance_length": estimate_json(self.mean_acceptance_length),
            "acceptance_rate_at": [estimate_json(one) for one in self.acceptance_rate_at],
            "conditional_acceptance": [estimate_json(one) for one in self.conditional],
            "alpha_from_distributions": estimate_json(self.alpha_from_distributions),
            "alpha_from_counts": estimate_json(self.alpha_from_counts),
            "alphas_differ_by_standard_errors": self.agreement and round(self.agreement, 3),
        }


def rows_of(samples: Iterable[Sample]) -> list[Row]:
    """Return one row per group of samples, in the order in which the groups first come."""
    groups: dict[Group, list[Sample]] = {}
    for sample in samples:
        groups.setdefault((sample.draft, sample.domain, sample.setting), []).append(sample)
    return [row_of(group) for group in groups.values() if any(sample.accepted for sample in group)]


def row_of(samples: Sequence[Sample]) -> Row:
    """Return the row of samples that share draft, domain and setting."""
    first = samples[0]
    rounds = [len(sample.accepted) for sample in samples]
    at_least = [
        [sum(accepted >= j for accepted in sample.accepted) for sample in samples]
        for j in range(first.setting.draft_length + 1)
    ]
    total = ratio([sum(sample.accepted) + len(sample.accepted) for sample in samples], rounds)
    assert total is not None
    survival = [ratio(at_least[j], rounds) for j in range(1, len(at_least))]
    levels = [sum(sample.levels, Level(0, 0, 0, 0.0, 0.0)) for sample in samples]
    drafted = [sum(sample.drafted) for sample in samples]
    tried = [level.tried for level in levels]
    variance = math.fsum(level.variance for level in levels)
    surplus = math.fsum(level.first_accepted - level.chance for level in levels)
    return Row(
        draft=first.draft,
        domain=first.domain,
        setting=first.setting,
        requests=len(samples),
        rounds=sum(rounds),
        drafted_tokens=sum(drafted),
        coverage=sum(sum(one > 0 for one in sample.drafted) for sample in samples) / sum(rounds),
        mean_acceptance_length=total.clipped(1.0, first.setting.draft_length + 1.0),
        acceptance_rate_at=tuple(one.clipped(0.0, 1.0) for one in survival if one is not None),
        conditional=tuple(_rate(at_least[j], at_least[j - 1]) for j in range(1, len(at_least))),
        alpha_from_distributions=_rate([level.chance for level in levels], tried),
        alpha_from_counts=_rate([level.first_accepted for level in levels], tried),
        agreement=surplus / math.sqrt(variance) if variance > 0.0 else None,
    )


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Estimate | None:
    """Return sum ÷ sum over requests with the interval of the linearised ratio (Cochran 1977, §2.11).

    One request, or none that counts: no interval. None where the denominators add to nothing.
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
    found = ratio(numerators, denominators)
    return found and found.clipped(0.0, 1.0)


def estimate_json(estimate: Estimate | None) -> dict[str, Any] | None:
    """The estimate as JSON, to six places; None where there is none."""
    if estimate is None:
        return None
    ci95 = estimate.ci95 and [round(one, 6) for one in estimate.ci95]
    return {"value": round(estimate.value, 6), "ci95": ci95, "band": ci95}
