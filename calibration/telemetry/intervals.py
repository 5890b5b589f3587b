"""95 % intervals of acceptance: from counts as if rounds were independent, or by resampling blocks of them.

Rounds of one request resemble each other, so intervals from counts are the narrowest that can be. Where
blocks are known (logging intervals, scrapes, requests), whole blocks are drawn instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from calibration.telemetry.reading import Counts, MeasuredAcceptance, RoundBlock
from simulator.numerics.arrays import Floats
from simulator.results.estimate import Interval, student_t95

FEWEST_BLOCKS = 8
"""Fewer blocks say too little of how much they differ."""
_DRAWS = 2000
_LAGS_IN_A_ROW = 5
"""Lags without a correlation, one after another, that end a series' memory."""
_Z95 = 1.959963984540054


@dataclass(frozen=True)
class Intervals:
    """Intervals of the mean acceptance length, of the rates at each position and of the conditional rates."""

    method: str
    mean_length: Interval
    rates_at: tuple[Interval, ...]
    conditional: tuple[Interval | None, ...]


def intervals_of(acceptance: MeasuredAcceptance) -> Intervals | None:
    """The intervals of a reading's acceptance; None where it is a mean without counts or blocks."""
    blocks = [block.counts for block in acceptance.blocks]
    if len(blocks) >= FEWEST_BLOCKS:
        return bootstrap(acceptance.total, blocks, acceptance.in_order)
    return binomial(acceptance.total, acceptance.draft_length) if acceptance.counted else None


def binomial(counts: Counts, draft_length: int | None) -> Intervals:
    """Intervals of independent rounds: Wilson's for rates, and its like for the mean."""
    before = (counts.rounds, *counts.accepted_at)[: len(counts.accepted_at)]
    return Intervals(
        method="binomial",
        mean_length=_mean_length(counts, draft_length),
        rates_at=tuple(wilson(count, counts.rounds) for count in counts.accepted_at),
        conditional=tuple(
            wilson(count, tried) if tried else None
            for count, tried in zip(counts.accepted_at, before, strict=True)
        ),
    )


def wilson(successes: float, trials: float) -> Interval:
    """Wilson's score interval of a rate (J. Amer. Statist. Assoc. 22, 1927)."""
    share, squared = successes / trials, _Z95 * _Z95
    middle = (share + squared / (2 * trials)) / (1 + squared / trials)
    variance = max(share * (1 - share), 0.0) / trials + squared / (4 * trials * trials)
    half = _Z95 * math.sqrt(variance) / (1 + squared / trials)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def _mean_length(counts: Counts, draft_length: int | None) -> Interval:
    """Of 1 + the mean of accepted drafts: normal, with z² rounds added, half of which accept nothing and half
    everything (Agresti and Coull 1998, for more than two outcomes). Without positions the widest spread is
    taken that the mean allows.
    """
    longest = float(draft_length or max(math.ceil(counts.accepted / counts.rounds), 1))
    mean = counts.accepted / counts.rounds
    if counts.accepted_at:
        squares = math.fsum((2 * place + 1) * count for place, count in enumerate(counts.accepted_at))
    else:
        squares = mean * longest * counts.rounds
    extra = _Z95 * _Z95
    rounds = counts.rounds + extra
    middle = (counts.accepted + longest * extra / 2) / rounds
    variance = max((squares + longest * longest * extra / 2) / rounds - middle * middle, 0.0)
    half = _Z95 * math.sqrt(variance / rounds)
    low, high = max(middle - half, 0.0), min(middle + half, longest)
    return 1.0 + min(low, mean), 1.0 + max(high, mean)


def bootstrap(total: Counts, blocks: Sequence[Counts], in_order: bool) -> Intervals:
    """Intervals from blocks drawn with replacement. Blocks in order of time are drawn several neighbours at a
    time, in a circle (Politis and Romano 1992), as many as their correlation asks for; percentiles are
    widened as Student's t is for few draws (Hesterberg 2015).
    """
    positions = len(total.accepted_at)
    rows = np.array([[block.rounds, block.accepted, *block.accepted_at[:positions]] for block in blocks])
    span = neighbours(rows[:, 1] - (total.mean_length - 1.0) * rows[:, 0]) if in_order else 1
    circle = np.concatenate([rows, rows[: span - 1]])
    sums = np.cumsum(np.concatenate([np.zeros((1, rows.shape[1])), circle]), axis=0)
    stretches = sums[span:] - sums[:-span]
    draws = -(-len(blocks) // span)
    generator = np.random.default_rng(0)
    drawn = np.array(
        [stretches[generator.integers(0, len(stretches), draws)].sum(axis=0) for _ in range(_DRAWS)]
    )
    between = _percentiles(draws)
    rates = [between(drawn[:, 2 + place], drawn[:, 0]) for place in range(positions)]
    reached = [drawn[:, 0], *(drawn[:, 2 + place] for place in range(positions))]
    mean = between(drawn[:, 1], drawn[:, 0]) or (total.mean_length - 1.0,) * 2
    return Intervals(
        method="block-bootstrap",
        mean_length=(1.0 + mean[0], 1.0 + mean[1]),
        rates_at=tuple(rate or (0.0, 1.0) for rate in rates),
        conditional=tuple(between(reached[place + 1], reached[place]) for place in range(positions)),
    )


def neighbours(series: Floats) -> int:
    """How many neighbours of a series (n,) to draw together: the rule of Politis and White (2004, corrected
    by Patton, Politis and White 2009) for the circular block bootstrap.
    """
    count = len(series)
    centred = series - series.mean()
    most = min(math.ceil(math.sqrt(count)) + _LAGS_IN_A_ROW, count - 1)
    covariance = np.array([centred[: count - lag] @ centred[lag:] / count for lag in range(most + 1)])
    if covariance[0] <= 0.0:
        return 1
    small = np.abs(covariance / covariance[0]) < 2.0 * math.sqrt(math.log10(count) / count)
    last = next((lag for lag in range(most) if small[lag + 1 : lag + 1 + _LAGS_IN_A_ROW].all()), most)
    lags = np.arange(1, min(2 * max(last, 1), most) + 1)
    taper = np.clip(2.0 * (1.0 - lags / (2.0 * max(last, 1))), 0.0, 1.0)
    spectrum = covariance[0] + 2.0 * float(taper @ covariance[lags])
    slope = 2.0 * float(taper @ (lags * covariance[lags]))
    if spectrum <= 0.0:
        return 1
    best = (1.5 * slope * slope / (spectrum * spectrum)) ** (1 / 3) * count ** (1 / 3)
    return int(min(max(1, round(best)), max(1, count // 4)))


def _percentiles(draws: int) -> Callable[[Floats, Floats], Interval | None]:
    """The percentiles between which 95 % of a ratio lies, widened for few independent draws."""
    wide = student_t95(draws - 1) * math.sqrt(draws / (draws - 1)) if draws > 1 else math.inf
    tail = NormalDist().cdf(-wide)

    def between(numerators: Floats, denominators: Floats) -> Interval | None:
        known = denominators > 0.0
        if not known.any():
            return None
        low, high = np.quantile(numerators[known] / denominators[known], [tail, 1.0 - tail])
        return float(low), float(high)

    return between


def of_running(blocks: Sequence[RoundBlock]) -> list[RoundBlock]:
    """The blocks whose number of running requests is known, fewest first."""
    return sorted((block for block in blocks if block.running), key=lambda block: block.running or 0.0)
