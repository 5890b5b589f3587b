"""Gated acceptance: prompt lookup and suffix drafters find a match or nothing;
a match then runs long (docs/acceptance.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np

from simulator.acceptance.base import (
    GATED,
    LARGEST_SD,
    AcceptanceEntry,
    AcceptanceModel,
    LookupMatch,
    check_between,
    check_draft_length,
    fault,
    logistic,
    logit,
    normal_nodes,
    shifted_probability,
)
from simulator.numerics.arrays import Floats
from simulator.numerics.roots import bracketed_root

LONGEST_MATCH = 1e4
"""Tokens of a mean match at most."""
MATCH_LEVELS = 1024
"""Equally likely lengths of a match."""


@dataclass(frozen=True)
class Gated(AcceptanceModel):
    """A round has a match with probability `match`,
    Markov in the last round's outcome; then c_1 = first, c_j = run.

    `stickiness` is the lag-1 correlation of matches: P(match | match) = match + stickiness (1 - match),
    P(match | miss) = match (1 - stickiness). Requests differ in how much they repeat: logit P(match) is
    normal between them with standard deviation `request_sd`, and `match` is the mean over all of them.
    Without a match nothing is accepted: an asynchronous engine drafts junk, a synchronous one nothing.
    `match_tokens`: a match has a geometric number of tokens with this mean, and brings as many drafts at most
    (suffix decoding, arXiv 2411.04975); None: always K. Leaves out that long matches are accepted more often.
    """

    name: ClassVar[str] = "gated"
    kind: ClassVar[int] = GATED
    match_probability: float
    stickiness: float
    first: float
    run: float
    request_sd: float = 0.0
    match_tokens: float | None = None

    def __post_init__(self) -> None:
        for field in ("match", "stickiness", "first", "run"):
            check_between(
                field, self.match_probability if field == "match" else getattr(self, field), 0.0, 1.0
            )
        check_between("request_sd", self.request_sd, 0.0, LARGEST_SD, f"0 to {LARGEST_SD:g} logits")
        if self.match_tokens is not None:
            check_between("match_tokens", self.match_tokens, 1.0, LONGEST_MATCH, f"1 to {LONGEST_MATCH:g}")

    @classmethod
    def from_entry(cls, entry: AcceptanceEntry) -> Gated:
        """`{model: gated, match, stickiness, first, run, request_sd, match_tokens}`."""
        return cls(
            entry.number("match"),
            entry.number("stickiness", 0.0),
            entry.number("first"),
            entry.number("run"),
            entry.number("request_sd", 0.0),
            entry.number("match_tokens") if entry.has("match_tokens") else None,
        )

    @property
    def alpha(self) -> float:
        """Conditional acceptance at position 1 *of a match*;
        the shift family moves what is accepted, not what matches.
        """
        return self.first

    @property
    def match_sd(self) -> float:
        """How much requests differ in their matches."""
        return self.request_sd

    @property
    def match_share(self) -> float:
        """Mean over requests of the share of their rounds with a match."""
        return self.match_probability

    def match_at(self, effects: Floats) -> LookupMatch:
        """P(match) of requests with these effects: in the long run, after a miss, after a match."""
        often = logistic(_level(self.match_probability, self.request_sd) + effects)
        return LookupMatch(often, often * (1.0 - self.stickiness), often + self.stickiness * (1.0 - often))

    def mean_acceptance_lengths_by_request(self, draft_length: int) -> tuple[Floats, Floats]:
        """E of a request and the share of requests like it, at the nodes of its effect."""
        nodes, weights = normal_nodes(self.request_sd)
        accepted = np.cumprod(self.conditional_at(np.zeros(1), draft_length)[0]).sum()
        return 1.0 + self.match_at(nodes).stationary * accepted, weights

    def conditional_at(self, effects: Floats, depth: int) -> Floats:
        """c_j of a round with a match: first, then run."""
        check_draft_length(depth)
        rates: Floats = np.full(depth, self.run)
        rates[:1] = self.first
        return np.broadcast_to(rates, (len(effects), depth))

    def conditional(self, depth: int) -> Floats:
        """c_j over all rounds, those without a match included: c_1 = match · first. With the length of
        matches, a later position also needs a match that reaches it.
        """
        population: Floats = self.conditional_at(np.zeros(1), depth)[0].copy()
        population[:1] *= self.match_probability
        if self.match_tokens is not None:
            population[1:] *= 1.0 - 1.0 / self.match_tokens
        return population

    @property
    def match_drafts(self) -> tuple[int, ...]:
        """Drafts of equally likely matches, rising: the middles of `MATCH_LEVELS` slices of the geometric
        distribution."""
        if self.match_tokens is None:
            return ()
        if self.match_tokens == 1.0:
            return (1,) * MATCH_LEVELS
        beyond = 1.0 - (np.arange(MATCH_LEVELS) + 0.5) / MATCH_LEVELS
        tokens = np.ceil(np.log(beyond) / np.log1p(-1.0 / self.match_tokens) - 1e-12)
        return tuple(np.maximum(tokens, 1.0).astype(int).tolist())

    def shifted(self, delta_logit: float) -> Gated:
        """Shift first and run; the match probability belongs to the text."""
        return replace(
            self,
            first=shifted_probability(self.first, delta_logit),
            run=shifted_probability(self.run, delta_logit),
        )

    def with_alpha(self, alpha: float) -> Gated:
        """Shift first and run alike so that first = alpha.
        Raises InputError when first is 0 or 1, which no shift moves.
        """
        check_between("alpha", alpha, 0.0, 1.0)
        if alpha == self.first:
            return self
        if self.first in (0.0, 1.0):
            raise fault("first", self.first, "cannot be shifted", "a rate above 0 and below 1")
        return replace(self.shifted(logit(alpha) - logit(self.first)), first=alpha)


@lru_cache(maxsize=256)
def _level(share: float, sd: float) -> float:
    """The logit around which requests match, for a share of all their rounds."""
    if sd == 0.0 or share in (0.0, 1.0):
        return logit(share)
    nodes, weights = normal_nodes(sd)
    reach = sd * sd / 2.0 + 8.0 * sd + 1e-6  # so that the ends differ even where requests hardly do
    return bracketed_root(
        lambda level: float(weights @ logistic(level + nodes)) - share,
        logit(share) - reach,
        logit(share) + reach,
    )
