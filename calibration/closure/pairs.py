"""One point measured: plain steps and speculative cycles in turn, kept as pairs."""

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
"""Pairs before those that count; on the first visit they say which acceptances to dial."""
_ANY_ALPHA = 0.5
_GOLDEN = 0.6180339887498949


class PointRun:
    """A point's two decodings, set up once and visited round by round."""

    def __init__(self, target: Decoder, prompts: PromptCache, point: LoopPoint, seed: int) -> None:
        self.point = point
        drafter = target.first_layers(point.draft_layers)
        where = (prompts, point.batch, point.context)
        room = GROWTH_TOKENS + point.draft_length + 1
        self._plain = PlainDecoding(target, *where, room, point.temperature, seed)
        self._speculative = SpeculativeDecoding(
            target, drafter, *where, room, point.draft_length, point.temperature, seed
        )
        self._luck: dict[float, Iterator[int]] = {}
        self._clock = Clock(target.device)
        self.pairs: list[StepPair] = []

    def visit(self, tokens: int, seconds: float) -> list[StepPair]:
        """Pairs at every acceptance in turn, until each has met so many outcomes, for so many seconds.

        The first visit finds out which acceptances to dial.
        """
        first = [self._pair(_ANY_ALPHA) for _ in range(_WARM_UPS if self.pairs else _FIRST)]
        alphas = wider(self.measured) if self.pairs else bracket(self.point, first[_WARM_UPS:])
        least = -(-tokens // self.point.batch)
        begun, found = perf_counter(), list[StepPair]()
        while len(found) < least * len(alphas) or perf_counter() - begun < seconds:
            found += [self._pair(alpha) for alpha in alphas]
        return found

    @property
    def measured(self) -> MeasuredPoint:
        """What all kept pairs say."""
        return MeasuredPoint(self.point, tuple(self.pairs))

    def _pair(self, alpha: float) -> StepPair:
        plain, speculative, clock = self._plain, self._speculative, self._clock
        plain.look()
        speculative.look()
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
        luck = self._luck.setdefault(alpha, outcomes(alpha, self.point.draft_length))
        return torch.tensor([next(luck) for _ in range(self.point.batch)], device=self._plain.device)


def outcomes(alpha: float, draft_length: int) -> Iterator[int]:
    """Accepted drafts of one cycle after the other: at least j of them with probability alpha^j.

    Drawn by multiples of the golden ratio modulo 1, whose means settle faster than those of random numbers.
    """
    uniform = 0.5
    while True:
        yield sum(uniform < alpha**j for j in range(1, draft_length + 1))
        uniform = (uniform + _GOLDEN) % 1.0
