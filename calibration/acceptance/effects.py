"""What acceptance depends on besides the setting: request, output position and prompt length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, variance
from typing import Any

from calibration.acceptance.rows import estimate_json, ratio
from calibration.acceptance.samples import RequestSample
from simulator.results.estimate import Estimate, student_t95

_MAX_LENGTHS = 6
_MIN_ROUNDS = 4
"""Requests with fewer rounds are left out, because they do not show a trend along the output."""


@dataclass(frozen=True)
class MeasuredEffects:
    """Effects in the samples of one row, in accepted drafts per round.

    between_requests_sd: standard deviation of the requests' means beyond the sampling noise of their rounds.
    neighbours: correlation of one round with the next in its request, less the request's mean (so that
    independent rounds give about -1 / rounds). late_minus_early: second half of a request less the first.
    by_prompt_tokens: mean acceptance length by prompt length.
    """

    between_requests_sd: float | None
    neighbours: Estimate | None
    late_minus_early: Estimate | None
    by_prompt_tokens: dict[str, Estimate]

    def to_json(self) -> dict[str, Any]:
        """The effects as `decodesim accept` writes them, next to the figures of the row."""
        sd = self.between_requests_sd
        return {
            "between_requests_sd": None if sd is None else round(sd, 6),
            "neighbours_correlation": estimate_json(self.neighbours),
            "late_minus_early": estimate_json(self.late_minus_early),
            "mean_acceptance_length_by_prompt_tokens": {
                tokens: estimate_json(length) for tokens, length in self.by_prompt_tokens.items()
            },
        }


def effects_of(samples: Sequence[RequestSample]) -> MeasuredEffects:
    """Return the effects in the samples of one row."""
    requests = [sample for sample in samples if len(sample.accepted) >= _MIN_ROUNDS]
    lengths = {name: _length(group) for name, group in _by_prompt_length(samples).items()}
    return MeasuredEffects(
        between_requests_sd=_between([sample.accepted for sample in requests]),
        neighbours=_neighbours([sample.accepted for sample in requests]),
        late_minus_early=_late_minus_early(requests),
        by_prompt_tokens={name: length for name, length in lengths.items() if length is not None},
    )


def _by_prompt_length(samples: Sequence[RequestSample]) -> dict[str, list[RequestSample]]:
    """Samples by prompt length in tokens: by exact length if there are few, else by quartile."""
    lengths = sorted(sample.prompt_tokens for sample in samples)
    if len(set(lengths)) <= _MAX_LENGTHS:
        edges = sorted(set(lengths))
    else:
        edges = sorted({lengths[(quarter * len(lengths) - 1) // 4] for quarter in (1, 2, 3, 4)})
    groups: dict[str, list[RequestSample]] = {}
    low = lengths[0] if lengths else 0
    for edge in edges:
        group = [sample for sample in samples if low <= sample.prompt_tokens <= edge]
        if group:
            groups[str(edge) if low == edge or len(edges) == len(set(lengths)) else f"{low}-{edge}"] = group
        low = edge + 1
    return groups


def _length(samples: Sequence[RequestSample]) -> Estimate | None:
    """Mean acceptance length of some samples."""
    rounds = [len(sample.accepted) for sample in samples]
    return ratio([sum(s.accepted) + count for s, count in zip(samples, rounds, strict=True)], rounds)


def _between(requests: Sequence[tuple[int, ...]]) -> float | None:
    """Standard deviation between requests: variance of means less their sampling variance (ANOVA)."""
    if len(requests) < 2:
        return None
    noise = fmean(variance(request) / len(request) for request in requests)
    return math.sqrt(max(variance([fmean(request) for request in requests]) - noise, 0.0))


def _neighbours(requests: Sequence[tuple[int, ...]]) -> Estimate | None:
    products, squares = [], []
    for request in requests:
        mean = fmean(request)
        deviations = [accepted - mean for accepted in request]
        products.append(math.fsum(a * b for a, b in pairwise(deviations)))
        squares.append(math.fsum(a * a for a in deviations))
    correlation = ratio(products, squares) if requests else None
    return correlation and correlation.clipped(-1.0, 1.0)


def _late_minus_early(requests: Sequence[RequestSample]) -> Estimate | None:
    """Rounds that start in the second half of the output less those that start in the first.

    Halves are by output position, not by round number: the round that reaches the end of an output tends to
    be long.
    """
    half_widths = []
    for sample in requests:
        early = [
            a for a, at in zip(sample.accepted, sample.positions, strict=True) if at < sample.max_tokens / 2
        ]
        late = sample.accepted[len(early) :]
        half_widths.append((sum(early), len(early), sum(late), len(late)))
    early_rounds, late_rounds = sum(half[1] for half in half_widths), sum(half[3] for half in half_widths)
    if len(half_widths) < 2 or not early_rounds or not late_rounds:
        return None
    early_mean = sum(half[0] for half in half_widths) / early_rounds
    late_mean = sum(half[2] for half in half_widths) / late_rounds
    # Both ratios are linearised request by request, because the two half_widths of a request are correlated.
    differences = [
        (late - late_mean * n_late) / late_rounds - (early - early_mean * n_early) / early_rounds
        for early, n_early, late, n_late in half_widths
    ]
    count = len(half_widths)
    squares = math.fsum(difference * difference for difference in differences)
    half_width = student_t95(count - 1) * math.sqrt(count / (count - 1) * squares)
    value = late_mean - early_mean
    interval = (value - half_width, value + half_width)
    return Estimate(value, interval, interval)
