"""What a measured request says: per round the drafts, those tried and those accepted; one JSON line each."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
"""A count of a round is one of these: numbers to the base 36."""
LONGEST_DRAFT = len(DIGITS) - 1


@dataclass(frozen=True, order=True)
class Setting:
    """How a request is decoded. `draft_sampling` at temperature 0 is always greedy; draft length 0: plain."""

    temperature: float
    draft_length: int
    draft_sampling: str = "greedy"


Key = tuple[str, str, Setting, int]
"""Draft, prompt, setting and most output tokens of a sample."""


@dataclass(frozen=True)
class Level:
    """All tries at one draft position: how many, accepted ones (any candidate), those whose first candidate
    was accepted, and of the first candidates' acceptance probabilities the sum and the variance's sum.
    """

    tried: int
    accepted: int
    first_accepted: int
    chance: float
    variance: float

    def __add__(self, other: Level) -> Level:
        """Both together."""
        return Level(
            self.tried + other.tried,
            self.accepted + other.accepted,
            self.first_accepted + other.first_accepted,
            self.chance + other.chance,
            self.variance + other.variance,
        )


@dataclass(frozen=True)
class Sample:
    """One request, decoded once. Tuples hold one entry a round.

    drafted: levels of drafts. nodes: drafts scored, more than levels in a tree. accepted: drafts that
    survived. A round's output position is what the rounds before it emitted, plus 1. tokens: the output,
    kept at temperature 0 to be compared with plain decoding.
    """

    draft: str
    domain: str
    prompt: str
    prompt_tokens: int
    setting: Setting
    max_tokens: int
    drafted: tuple[int, ...]
    nodes: tuple[int, ...]
    accepted: tuple[int, ...]
    levels: tuple[Level, ...]
    tokens: tuple[int, ...] = field(default=())

    @property
    def key(self) -> Key:
        """What a run that is taken up again looks for."""
        return (self.draft, self.prompt, self.setting, self.max_tokens)

    @property
    def positions(self) -> tuple[int, ...]:
        """Output tokens before each round."""
        before, found = 1, []
        for accepted in self.accepted:
            found.append(before)
            before += accepted + 1
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        """Return the sample as JSON; counts of rounds as digits to the base 36."""
        return {
            "draft": self.draft,
            "domain": self.domain,
            "prompt": self.prompt,
            "prompt_tokens": self.prompt_tokens,
            **asdict(self.setting),
            "max_tokens": self.max_tokens,
            "drafted": "".join(DIGITS[one] for one in self.drafted),
            "accepted": "".join(DIGITS[one] for one in self.accepted),
            **({"nodes": "".join(DIGITS[one] for one in self.nodes)} if self.nodes != self.drafted else {}),
            "levels": [
                [one.tried, one.accepted, one.first_accepted, round(one.chance, 5), round(one.variance, 5)]
                for one in self.levels
            ],
            **({"tokens": list(self.tokens)} if self.tokens else {}),
        }


def sample_from_json(document: dict[str, Any]) -> Sample:
    """Return the sample that `Sample.to_json` wrote."""
    return Sample(
        draft=document["draft"],
        domain=document["domain"],
        prompt=document["prompt"],
        prompt_tokens=document["prompt_tokens"],
        setting=Setting(document["temperature"], document["draft_length"], document["draft_sampling"]),
        max_tokens=document["max_tokens"],
        drafted=tuple(DIGITS.index(one) for one in document["drafted"]),
        nodes=tuple(DIGITS.index(one) for one in document.get("nodes", document["drafted"])),
        accepted=tuple(DIGITS.index(one) for one in document["accepted"]),
        levels=tuple(Level(*one) for one in document["levels"]),
        tokens=tuple(document.get("tokens", ())),
    )
