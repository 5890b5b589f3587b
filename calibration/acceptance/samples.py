"""The sample of a measured request: drafts tried and accepted in every round. One JSON line each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
"""Base-36 digits for the counts of a round."""
LONGEST_DRAFT = len(DIGITS) - 1


@dataclass(frozen=True, order=True)
class DecodingSetting:
    """How a request is decoded; greedy drafts at temperature 0. Draft length 0 means plain decoding."""

    temperature: float
    draft_length: int
    draft_sampling: str = "greedy"

    @property
    def seed_text(self) -> str:
        """The text that seeds its random numbers. Committed samples depend on it."""
        return (
            f"Setting(temperature={self.temperature!r}, draft_length={self.draft_length!r}, "
            f"draft_sampling={self.draft_sampling!r})"
        )


SampleKey = tuple[str, str, DecodingSetting, int]
"""Draft, prompt, setting and max output tokens of a sample."""


@dataclass(frozen=True)
class Level:
    """All trials at one draft position.

    tried, accepted (any candidate), first_accepted (the first candidate): counts. chance, variance: sums of
    the first candidates' acceptance probabilities and of their variances.
    """

    tried: int
    accepted: int
    first_accepted: int
    chance: float
    variance: float

    def __add__(self, other: Level) -> Level:
        """The sum of both."""
        return Level(
            self.tried + other.tried,
            self.accepted + other.accepted,
            self.first_accepted + other.first_accepted,
            self.chance + other.chance,
            self.variance + other.variance,
        )


@dataclass(frozen=True)
class RequestSample:
    """One request, decoded once. Tuples hold one entry per round.

    drafted: levels of drafts. nodes: drafts scored, more than levels for a tree. accepted: accepted drafts.
    The output position of a round is the number of tokens emitted before it, including the first. tokens: the
    output, kept at temperature 0 for comparison with plain decoding.
    """

    draft: str
    domain: str
    prompt: str
    prompt_tokens: int
    setting: DecodingSetting
    max_tokens: int
    drafted: tuple[int, ...]
    nodes: tuple[int, ...]
    accepted: tuple[int, ...]
    levels: tuple[Level, ...]
    tokens: tuple[int, ...] = field(default=())

    @property
    def key(self) -> SampleKey:
        """The key by which a resumed run finds the sample."""
        return (self.draft, self.prompt, self.setting, self.max_tokens)

    @property
    def positions(self) -> tuple[int, ...]:
        """Output tokens before each round."""
        emitted, positions = 1, []
        for accepted in self.accepted:
            positions.append(emitted)
            emitted += accepted + 1
        return tuple(positions)

    def to_json(self) -> dict[str, Any]:
        """Return the sample as JSON; counts of rounds as base-36 digits."""
        return {
            "draft": self.draft,
            "domain": self.domain,
            "prompt": self.prompt,
            "prompt_tokens": self.prompt_tokens,
            **asdict(self.setting),
            "max_tokens": self.max_tokens,
            "drafted": digits(self.drafted),
            "accepted": digits(self.accepted),
            **({"nodes": digits(self.nodes)} if self.nodes != self.drafted else {}),
            "levels": [
                [lv.tried, lv.accepted, lv.first_accepted, round(lv.chance, 5), round(lv.variance, 5)]
                for lv in self.levels
            ],
            **({"tokens": list(self.tokens)} if self.tokens else {}),
        }


def sample_from_json(document: dict[str, Any]) -> RequestSample:
    """Return the sample that `RequestSample.to_json` wrote."""
    return RequestSample(
        draft=document["draft"],
        domain=document["domain"],
        prompt=document["prompt"],
        prompt_tokens=document["prompt_tokens"],
        setting=DecodingSetting(
            document["temperature"], document["draft_length"], document["draft_sampling"]
        ),
        max_tokens=document["max_tokens"],
        drafted=_counts(document["drafted"]),
        nodes=_counts(document.get("nodes", document["drafted"])),
        accepted=_counts(document["accepted"]),
        levels=tuple(Level(*values) for values in document["levels"]),
        tokens=tuple(document.get("tokens", ())),
    )


def digits(counts: Iterable[int]) -> str:
    """Counts of rounds as base-36 digits."""
    return "".join(DIGITS[count] for count in counts)


def _counts(text: str) -> tuple[int, ...]:
    return tuple(DIGITS.index(digit) for digit in text)
