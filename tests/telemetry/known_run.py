"""A run whose every count and latency is known, for writers of formats to print and readers to find again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st


@dataclass(frozen=True)
class KnownRun:
    """`accepted[e][i]` holds the drafts that round i of engine e accepted; every round drafts K tokens.

    All requests are alike: `output_tokens` each, the first after `ttft_s`, one chunk per round every
    `step_s`.
    """

    draft_length: int
    accepted: tuple[tuple[int, ...], ...]
    ttft_s: float = 0.03
    step_s: float = 0.0128
    requests: int = 40
    concurrency: int = 8
    prompt_tokens: int = 512
    model: str = "example-org/Example-8B"

    @property
    def rounds(self) -> int:
        """Draft rounds of all engines."""
        return sum(map(len, self.accepted))

    @property
    def accepted_tokens(self) -> int:
        """Accepted drafts of all engines."""
        return sum(map(sum, self.accepted))

    @property
    def drafted_tokens(self) -> int:
        """Drafts of all engines."""
        return self.rounds * self.draft_length

    @property
    def accepted_at(self) -> list[int]:
        """Rounds of all engines that accepted each position."""
        return [sum(counts) for counts in zip(*map(self.positions, self.accepted), strict=True)]

    @property
    def histogram(self) -> list[int]:
        """Rounds of all engines by accepted drafts, from 0 on."""
        everything = [count for own in self.accepted for count in own]
        return [everything.count(number) for number in range(self.draft_length + 1)]

    def positions(self, rounds: Sequence[int]) -> list[int]:
        """Of some rounds those that accepted each position."""
        return [sum(count > place for count in rounds) for place in range(self.draft_length)]

    @property
    def mean_length(self) -> float:
        """1 + accepted ÷ rounds."""
        return 1.0 + self.accepted_tokens / self.rounds

    @property
    def rates_at(self) -> list[float]:
        """Share of rounds that accepted each position."""
        return [count / self.rounds for count in self.accepted_at]

    @property
    def decoded_tokens(self) -> int:
        """Tokens after the first of each request."""
        return self.accepted_tokens + self.rounds

    @property
    def output_tokens(self) -> int:
        """Tokens of all requests."""
        return self.decoded_tokens + self.requests

    @property
    def decode_s(self) -> float:
        """Time that all requests together spend after their first token."""
        return self.rounds * self.step_s

    @property
    def tpot_s(self) -> float:
        """Mean time per output token of requests that are alike."""
        return self.decode_s / self.decoded_tokens

    @property
    def duration_s(self) -> float:
        """Length of the run."""
        return (self.requests * self.ttft_s + self.decode_s) / self.concurrency

    def with_engine(self, engine: int) -> KnownRun:
        """The part of one engine."""
        return replace(self, accepted=(self.accepted[engine],))


def drawn(
    draft_length: int, alpha: float, rounds: int, engines: int = 1, seed: int = 0, **more: object
) -> KnownRun:
    """A run whose drafts are accepted with probability alpha each, after those before."""
    generator = np.random.default_rng(seed)
    survived = np.cumprod(generator.random((engines, rounds, draft_length)) < alpha, axis=2).sum(axis=2)
    accepted = tuple(tuple(map(int, own)) for own in survived)
    return KnownRun(draft_length, accepted, **more)  # type: ignore[arg-type]


@st.composite
def known_runs(draw: st.DrawFn, most_engines: int = 1, least_rounds: int = 1) -> KnownRun:
    """Runs of any draft length, acceptance, engines and length."""
    return drawn(
        draft_length=draw(st.integers(1, 9)),
        alpha=draw(st.floats(0.0, 1.0)),
        rounds=draw(st.integers(least_rounds, 600)),
        engines=draw(st.integers(1, most_engines)),
        seed=draw(st.integers(0, 2**32)),
        ttft_s=draw(st.integers(1, 2000)) * 1e-3,
        step_s=draw(st.integers(10, 2000)) * 1e-4,
        requests=draw(st.integers(1, 60)),
    )
