"""What acceptance depends on besides its setting: the request, the place in it, the length of its prompt."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, variance
from typing import Any

from calibration.acceptance.rows import estimate_json, ratio
from calibration.acceptance.samples import Sample
from simulator.results.estimate import Estimate, student_t95

_MOST_LENGTHS = 6
_FEWEST_ROUNDS = 4
"""Requests of fewer rounds say nothing of what happens along them."""


@dataclass(frozen=True)
class Effects:
    """Of the samples of one row, in accepted drafts per round.

    between_requests_sd: spread of the requests' own means beyond what the luck of their rounds explains.
    neighbours: correlation of one round with the next in its request, whose mean is taken out (so that
    rounds without memory show about -1 / rounds). late_minus_early: second half of a request against its
    first. by_prompt_tokens: mean acceptance length by length of the prompt.
    """

    between_requests_sd: float | None
    neighbours: Estimate | None
    late_minus_early: Estimate | None
    by_prompt_tokens: dict[str, Estimate]

    def to_json(self) -> dict[str, Any]:
        """As `decodesim accept` writes it, beside the figures of the row."""
        sd = self.between_requests_sd
        return {
            "between_requests_sd": None if sd is None else round(sd, 6),
            "neighbours_correlation": estimate_json(self.neighbours),
            "late_minus_early": estimate_json(self.late_minus_early),
            "mean_acceptance_length_by_prompt_tokens": {
                tokens: estimate_json(one) for tokens, one in self.by_prompt_tokens.items()
            },
        }


def effects_of(samples: Sequence[Sample]) -> Effects:
    """Return the effects in samples of one row."""
    requests = [sample for sample in samples if len(sample.accepted) >= _FEWEST_ROUNDS]
    by_tokens = {name: _length(own) for name, own in _by_prompt_length(samples).items()}
    return Effects(
        between_requests_sd=_between([sample.accepted for sample in requests]),
        neighbours=_neighbours([sample.accepted for sample in requests]),
        late_minus_early=_late_minus_early(requests),
        by_prompt_tokens={name: one for name, one in by_tokens.items() if one is not None},
    )


def _by_prompt_length(samples: Sequence[Sample]) -> dict[str, list[Sample]]:
    """Samples by length of the prompt, in tokens: as they are where lengths are few, else quarters."""
    lengths = sorted(sample.prompt_tokens for sample in samples)
    if len(set(lengths)) <= _MOST_LENGTHS:
        edges = sorted(set(lengths))
    else:
        edges = sorted({lengths[(quarter * len(lengths) - 1) // 4] for quarter in (1, 2, 3, 4)})
    found: dict[str, list[Sample]] = {}
    low = lengths[0] if lengths else 0
    for edge in edges:
        own = [one for one in samples if low <= one.prompt_tokens <= edge]
        if own:
            found[str(edge) if low == edge or len(edges) == len(set(lengths)) else f"{low}-{edge}"] = own
        low = edge + 1
    return found


def _length(samples: Sequence[Sample]) -> Estimate | None:
    """Mean acceptance length of some samples."""
    rounds = [len(one.accepted) for one in samples]
    return ratio([sum(one.accepted) + count for one, count in zip(samples, rounds, strict=True)], rounds)


def _between(requests: Sequence[tuple[int, ...]]) -> float | None:
    """Variance of means less the mean variance of a mean, as in an analysis of variance."""
    if len(requests) < 2:
        return None
    luck = fmean(variance(one) / len(one) for one in requests)
    return math.sqrt(max(variance([fmean(one) for one in requests]) - luck, 0.0))


def _neighbours(requests: Sequence[tuple[int, ...]]) -> Estimate | None:
    products, squares = [], []
    for one in requests:
        mean = fmean(one)
        apart = [accepted - mean for accepted in one]
        products.append(math.fsum(a * b for a, b in pairwise(apart)))
        squares.append(math.fsum(a * a for a in apart))
    found = ratio(products, squares) if requests else None
    return found and found.clipped(-1.0, 1.0)


def _late_minus_early(requests: Sequence[Sample]) -> Estimate | None:
    """Rounds that start in the second half of the output against those in the first. (By place, not by
    number: the last round of an output is long because it is the one that meets the end.)
    """
    halves = []
    for sample in requests:
        early = [
            a for a, at in zip(sample.accepted, sample.positions, strict=True) if at < sample.max_tokens / 2
        ]
        late = sample.accepted[len(early) :]
        halves.append((sum(early), len(early), sum(late), len(late)))
    early_rounds, late_rounds = sum(one[1] for one in halves), sum(one[3] for one in halves)
    if len(halves) < 2 or not early_rounds or not late_rounds:
        return None
    early_mean = sum(one[0] for one in halves) / early_rounds
    late_mean = sum(one[2] for one in halves) / late_rounds
    # Both ratios are linearised request by request: the two halves of one request move together.
    apart = [
        (late - late_mean * n_late) / late_rounds - (early - early_mean * n_early) / early_rounds
        for early, n_early, late, n_late in halves
    ]
    count = len(halves)
    half = student_t95(count - 1) * math.sqrt(count / (count - 1) * math.fsum(one * one for one in apart))
    value = late_mean - early_mean
    return Estimate(value, (value - half, value + half), (value - half, value + half))
