"""The one root search on common random numbers: the x at which two simulated systems tie.

Both systems meet the same requests and the same random numbers of every token. The score is therefore a
nearly smooth, rising function of x, and few runs are enough. One replication is searched; then all
replications are run a little below and above its root, and each replication's own root follows from the
common slope: their spread is the sampling interval. The band comes from searching the first replication again
with the step times at either end of the cost model's error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from simulator.numerics.roots import bracketed_root
from simulator.results.estimate import Estimate, mean_estimate

FOUND, UNREACHABLE, ALWAYS, UNDETERMINED = "found", "unreachable", "always", "undetermined"
"""A root; the upper end is not enough; the lower end is already enough; the score does not rise with x."""

_LARGEST_SCORE = 5.0
"""Scores are cut here: a system that collapses scores −∞, and interpolation needs a number."""
_FIRST_STEP = 0.08
_MOST_ROUNDS = 10
"""Where looking for the mean root of all replications ends; two or three rounds are usual."""
_MOST_FLAT_ROUNDS = 3
_WIDENING_ROUNDS = 2
"""In the first rounds a root further away widens the window, and replications may be added."""


class ScoredRun(NamedTuple):
    """The outcome of one pair of runs: `score` > 0 where x is more than enough, and a companion figure to
    report at the root.
    """

    score: float
    companion: float = math.nan


Evaluate = Callable[[float, int, float], ScoredRun]
"""(x, replication, scale of the step times) → run.
Replications count from 0 without end; the same arguments, the same run.
"""


@dataclass(frozen=True)
class Root:
    """Where the score crosses zero. `value` and `companion` are None
    when there is no such place (see `outcome`).
    """

    outcome: str
    value: Estimate | None = None
    companion: Estimate | None = None
    note: str | None = None


@dataclass
class RootSearch:
    """The search over x in [low, high]; `tolerance` is the half-width aimed at, in x.

    `replications` runs are made first; as many again are added, up to `most_replications`, while the
    interval is wider than `tolerance`. `band` is the relative error of the step times; 0 leaves it out.
    """

    evaluate: Evaluate
    replications: int
    band: float
    low: float = 0.0
    high: float = 1.0
    tolerance: float = 0.01
    most_replications: int | None = None

    def find(self, guess: float) -> Root:
        """The root, starting at a guess (a closed form's answer)."""
        single = self._single(guess, 1.0)
        if isinstance(single, str):
            return self._end(single)
        root = self._all_replications(single)
        if root is None:
            return Root(
                UNDETERMINED, note="the metric does not change with acceptance by more than its noise"
            )
        return root

    def _end(self, outcome: str) -> Root:
        """The answer where no root lies inside."""
        if outcome == UNREACHABLE:
            return Root(UNREACHABLE)
        run = self.evaluate(self.low, 0, 1.0)
        slower = self._single(self.low + _FIRST_STEP, 1.0 + self.band)
        top = self.low if slower == ALWAYS else self.high if isinstance(slower, str) else slower
        has_companion = math.isfinite(run.companion)
        at_top = self.evaluate(top, 0, 1.0).companion if has_companion else math.nan
        companion = _with_band(run.companion, run.companion, at_top) if has_companion else None
        return Root(ALWAYS, _with_band(self.low, self.low, top), companion)

    def _single(self, guess: float, scale: float) -> float | str:
        """The root of the first replication alone, or the end that it lies beyond."""
        seen: dict[float, float] = {}

        def score(x: float) -> float:
            if x not in seen:
                seen[x] = _cut(self.evaluate(x, 0, scale).score)
            return seen[x]

        span = self.high - self.low
        x = min(max(guess, self.low + 0.02 * span), self.high - 0.02 * span)
        rising = score(x) < 0
        step = _FIRST_STEP * span
        while True:
            other = min(x + step, self.high) if rising else max(x - step, self.low)
            if (score(other) >= 0) if rising else (score(other) < 0):
                low, high = (x, other) if rising else (other, x)
                return bracketed_root(score, low, high, tolerance=self.tolerance / 4)
            if other in (self.low, self.high):
                return UNREACHABLE if rising else ALWAYS
            x, step = other, 2 * step

    def _all_replications(self, centre: float) -> Root | None:
        """Each replication's root by the common slope around `centre`, and the band by new searches."""
        count = self.replications
        most = max(count, self.most_replications or count)
        half = self.tolerance
        centre = round(centre, 2)  # so that questions with nearly the same root share their runs
        flat = 0
        for attempt in range(_MOST_ROUNDS):
            below, above = max(self.low, centre - half), min(self.high, centre + half)
            runs = [(self.evaluate(below, i, 1.0), self.evaluate(above, i, 1.0)) for i in range(count)]
            slope = sum(_cut(b.score) - _cut(a.score) for a, b in runs) / count / (above - below)
            if not slope > 0:
                half, flat = 4 * half, flat + 1
                if flat == _MOST_FLAT_ROUNDS:
                    return None
                continue
            middle = (below + above) / 2
            roots = [middle - (_cut(a.score) + _cut(b.score)) / 2 / slope for a, b in runs]
            mean = sum(roots) / count
            next_centre = min(max(mean, self.low), self.high)
            # A line from far away does not meet the score at its root: search again around the new place.
            if abs(mean - middle) > 2 * half and next_centre != centre:
                centre = next_centre
                half = 2 * half if attempt < _WIDENING_ROUNDS else 2 * self.tolerance
                continue
            value = mean_estimate(roots)
            if value is None:
                return None
            if value.half_width > self.tolerance and count < most and attempt < _WIDENING_ROUNDS:
                centre, count = next_centre, min(most, 2 * count)
                continue
            rise = sum(b.companion - a.companion for a, b in runs) / count / (above - below)
            levels = [
                (a.companion + b.companion) / 2 + rise * (x - middle)
                for (a, b), x in zip(runs, roots, strict=True)
            ]
            return self._with_model_range(value, mean_estimate(levels), roots[0], rise, slope)
        return None

    def _with_model_range(
        self, value: Estimate, companion: Estimate | None, first: float, rise: float, slope: float
    ) -> Root:
        """The root with what the cost model's error does to it,
        found on the first replication, whose root is `first`.
        """
        if not self.band:
            return Root(FOUND, value.clipped(self.low, self.high), companion)
        ends, levels, beyond = [], [], []
        for scale in (1 - self.band, 1 + self.band):
            guess = first + math.log(scale) / slope
            single = self._single(guess, scale)
            if isinstance(single, str):
                beyond.append(scale)
                single = self.low if single == ALWAYS else self.high
            ends.append(value.value + single - first)
            levels.append(self.evaluate(single, 0, scale).companion)
        value = value.with_model_range(*ends)
        if companion is not None:
            level_at_root = companion.value
            finite = [level for level in levels if math.isfinite(level)] or [level_at_root]
            companion = companion.with_model_range(min(finite), max(finite))
        note = "the band reaches an end of what is possible" if beyond else None
        return Root(FOUND, value.clipped(self.low, self.high), companion, note)


def _cut(score: float) -> float:
    return -_LARGEST_SCORE if math.isnan(score) else min(max(score, -_LARGEST_SCORE), _LARGEST_SCORE)


def _with_band(value: float, low: float, high: float) -> Estimate:
    return Estimate(value, (value, value), (min(low, value), max(high, value)))
