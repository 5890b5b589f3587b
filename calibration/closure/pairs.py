"""Measures one point: plain steps and speculative cycles in turn, kept as pairs."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

import torch

from calibration.closure.clock import Clock
from calibration.closure.engine import PlainDecoding, SpeculativeDecoding
from calibration.closure.measured_point import MeasuredPoint, StepPair, bracket, wider
from calibration.closure.points import GROWTH_TOKENS, LoopPoint
from calibration.closure.prompt_cache import PromptCache
from calibration.decoder.decoder import Decoder

_WARM_UPS, _FIRST = 1, 4
"""Pairs before those that count; on the first visit they determine which acceptances to dial."""
_ANY_ALPHA = 0.5
_GOLDEN = 0.6180339887498949


class PointRun:
    """The two decodings of a point, set up once and visited round by round."""

    def __init__(self, target: Decoder, prompts: PromptCache, point: LoopPoint, seed: int) -> None:
        self.point = point
        drafter = target.first_layers(point.draft_layers)
        start = (prompts, point.batch, point.context)
        room = GROWTH_TOKENS + point.draft_length + 1
        self._plain = PlainDecoding(target, *start, room, point.temperature, seed)
        self._speculative = SpeculativeDecoding(
            target, drafter, *start, room, point.draft_length, point.temperature, seed
        )
        self._outcome_series: dict[float, Iterator[int]] = {}
        self._clock = Clock(target.device)
        self.pairs: list[StepPair] = []

    def visit(self, tokens: int, seconds: float) -> list[StepPair]:
        """Measure pairs at every acceptance in turn, for at least `tokens` outcomes each and `seconds`
        seconds.

        The first visit determines which acceptances to dial.
        """
        first_pairs = [self._pair(_ANY_ALPHA) for _ in range(_WARM_UPS if self.pairs else _FIRST)]
        alphas = wider(self.measured) if self.pairs else bracket(self.point, first_pairs[_WARM_UPS:])
        min_pairs = -(-tokens // self.point.batch)
        started_s, pairs = perf_counter(), list[StepPair]()
        while len(pairs) < min_pairs * len(alphas) or perf_counter() - started_s < seconds:
            pairs += [self._pair(alpha) for alpha in alphas]
        return pairs

    @property
    def measured(self) -> MeasuredPoint:
        """The point with all kept pairs."""
        return MeasuredPoint(self.point, tuple(self.pairs))

    def _pair(self, alpha: float) -> StepPair:
        plain, speculative, clock = self._plain, self._speculative, self._clock
        plain.update_longest()
        speculative.update_longest()
        if max(plain.longest, speculative.longest) - self.point.context >= GROWTH_TOKENS:
            plain.restart()
            speculative.restart()
        plain_context, context = plain.span(0), speculative.span(0)
        accepted = self._outcomes(alpha)
        clock.restart()
        plain.step(clock)
        plain_pass_s, plain_accept_s = clock.laps_s()
        clock.restart()
        speculative.cycle(clock, accepted)
        verify_s, accept_s, *drafts_s = clock.laps_s()
        return StepPair(
            alpha=alpha,
            tokens=1.0 + float(accepted.double().mean()),
            plain_pass_s=plain_pass_s,
            plain_accept_s=plain_accept_s,
            verify_s=verify_s,
            accept_s=accept_s,
            drafts_s=tuple(drafts_s),
            plain_context=plain_context,
            context=context,
        )

    def _outcomes(self, alpha: float) -> torch.Tensor:
        """Accepted drafts of each sequence in the next cycle."""
        series = self._outcome_series.setdefault(alpha, outcomes(alpha, self.point.draft_length))
        return torch.tensor([next(series) for _ in range(self.point.batch)], device=self._plain.device)


def outcomes(alpha: float, draft_length: int) -> Iterator[int]:
    """Yield the accepted drafts of successive cycles: at least j with probability alpha^j.

    The uniforms are multiples of the golden ratio modulo 1, whose means converge faster than those of random
    numbers.
    """
    uniform = 0.5
    while True:
        yield sum(uniform < alpha**j for j in range(1, draft_length + 1))
        uniform = (uniform + _GOLDEN) % 1.0
