"""A measured point, from pairs of plain steps and speculative cycles: times, ratios, speedups, break-even."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median

from calibration.closure.points import LoopPoint
from simulator.breakeven.root_search import ALWAYS, FOUND, UNREACHABLE
from simulator.breakeven.theory import alpha_from_tokens_per_verify

NOT_BRACKETED = "not bracketed"
"""All dialled acceptances gain or all lose, but others might not."""
_STEP = 0.1
"""Distance of the dialled acceptances from the expected break-even, and step to further ones."""
_MIN_ALPHA, _MAX_ALPHA = 0.02, 0.98


@dataclass(frozen=True)
class StepPair:
    """A plain step and the speculative cycle after it, in s; contexts in tokens before the pass.

    `tokens`: emitted tokens per sequence in the cycle, at the dialled acceptance `alpha`.
    """

    alpha: float
    tokens: float
    plain_pass_s: float
    plain_accept_s: float
    verify_s: float
    accept_s: float
    drafts_s: tuple[float, ...]
    plain_context: int
    context: int

    @property
    def plain_s(self) -> float:
        """The plain step."""
        return self.plain_pass_s + self.plain_accept_s

    @property
    def cycle_s(self) -> float:
        """The whole cycle."""
        return self.verify_s + self.accept_s + sum(self.drafts_s)


@dataclass(frozen=True)
class Dial:
    """Speculation at one imposed ("dialled") acceptance: tokens per cycle, and the speedup in pairs."""

    alpha: float
    tokens: float
    speedup: float


@dataclass(frozen=True)
class MeasuredPoint:
    """All pairs of a point."""

    point: LoopPoint
    pairs: tuple[StepPair, ...]

    @cached_property
    def plain_s(self) -> float:
        """Seconds of a plain step, including its accept stage."""
        return median(pair.plain_s for pair in self.pairs)

    @cached_property
    def verify_s(self) -> float:
        """Seconds of a verify pass of K + 1 rows per sequence."""
        return median(pair.verify_s for pair in self.pairs)

    @cached_property
    def draft_pass_s(self) -> float:
        """Seconds of a draft pass, the mean over the K passes of a cycle."""
        return median(fmean(pair.drafts_s) for pair in self.pairs)

    @cached_property
    def cycle_s(self) -> float:
        """Seconds of a speculative cycle: verify, accept, drafts."""
        return median(pair.cycle_s for pair in self.pairs)

    @cached_property
    def verify_ratio(self) -> float:
        """Verify pass ÷ plain pass, in pairs."""
        return median(pair.verify_s / pair.plain_pass_s for pair in self.pairs)

    @cached_property
    def contexts(self) -> tuple[float, float]:
        """Mean context of plain steps and of cycles, tokens before the pass."""
        return fmean(pair.plain_context for pair in self.pairs), fmean(pair.context for pair in self.pairs)

    @cached_property
    def dials(self) -> tuple[Dial, ...]:
        """One dial per acceptance, ascending."""
        by_alpha: dict[float, list[StepPair]] = {}
        for pair in self.pairs:
            by_alpha.setdefault(pair.alpha, []).append(pair)
        return tuple(_dial(alpha, by_alpha[alpha]) for alpha in sorted(by_alpha))

    @cached_property
    def break_even(self) -> tuple[str, float | None]:
        """Outcome, and the acceptance with speedup 1, interpolated between the logs of speedups."""
        below = [dial for dial in self.dials if dial.speedup < 1]
        above = [dial for dial in self.dials if dial.speedup >= 1]
        if not above:
            return (UNREACHABLE if below[-1].alpha == 1 else NOT_BRACKETED), None
        if not below:
            return (ALWAYS if above[0].alpha == 0 else NOT_BRACKETED), None
        low, high = below[-1], above[0]
        if low.alpha > high.alpha:
            return NOT_BRACKETED, None
        rise = math.log(high.speedup) - math.log(low.speedup)
        return FOUND, low.alpha - math.log(low.speedup) / rise * (high.alpha - low.alpha)


def _dial(alpha: float, pairs: Sequence[StepPair]) -> Dial:
    tokens = fmean(pair.tokens for pair in pairs)
    return Dial(alpha, tokens, tokens / median(pair.cycle_s / pair.plain_s for pair in pairs))


def wider(measured: MeasuredPoint) -> tuple[float, ...]:
    """The dialled acceptances, and one more if they do not bracket a break-even but might."""
    alphas = tuple(dial.alpha for dial in measured.dials)
    if measured.break_even[0] != NOT_BRACKETED:
        return alphas
    gains = measured.dials[0].speedup >= 1
    further = max(alphas[0] - _STEP, 0.0) if gains else min(alphas[-1] + _STEP, 1.0)
    return tuple(sorted({*alphas, round(further, 3)}))


def bracket(point: LoopPoint, pairs: Iterable[StepPair]) -> tuple[float, ...]:
    """Acceptances to dial: on both sides of the break-even expected from the times of some pairs.

    Only 1 if not even K + 1 tokens per cycle break even; only 0 if one token does.
    """
    needed = median(pair.cycle_s / pair.plain_s for pair in pairs)
    if needed >= point.draft_length + 1:
        return (1.0,)
    if needed <= 1:
        return (0.0,)
    alpha = alpha_from_tokens_per_verify(needed, point.draft_length)
    assert alpha is not None
    low, high = max(alpha - _STEP, _MIN_ALPHA), min(alpha + _STEP, _MAX_ALPHA)
    return round(low, 3), round(high, 3)
