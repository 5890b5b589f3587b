"""The interfaces of targets and drafters in the decode loop, for tables and real models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from simulator.errors import InputError, Problem


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn, with the same filters for target and drafts.

    Temperature 0 is greedy for both. `top_k` 0 and `top_p` 1 keep the whole vocabulary. `draft`: whether
    drafts are the drafter's best tokens or drawn from its filtered distribution. Raises InputError for values
    out of range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    draft: Literal["greedy", "sampled"] = "sampled"

    def __post_init__(self) -> None:
        for field, value, possible, allowed in (
            ("temperature", self.temperature, 0.0 <= self.temperature < math.inf, "0 or more"),
            ("top_k", self.top_k, self.top_k >= 0, "0, which keeps all tokens, or more"),
            ("top_p", self.top_p, 0.0 < self.top_p <= 1.0, "above 0, up to 1"),
            ("draft_sampling", self.draft, self.draft in ("greedy", "sampled"), "greedy or sampled"),
        ):
            if not possible:
                raise InputError(
                    Problem(field=field, value=value, message="is out of range", allowed=allowed)
                )


@dataclass(frozen=True)
class Proposal:
    """The drafts of one round, a chain or a tree, parents before children.

    tokens: (n,) int64. parents: (n,) int64, index within tokens, -1 for a child of the last emitted token.
    Chain: arange(n) - 1. distributions: (n, V) the distribution of each token given its parent; None: the
    drafts are deterministic (greedy, n-gram, ...), their distributions are point masses.
    """

    tokens: Tensor
    parents: Tensor
    distributions: Tensor | None = None


class Verifier(Protocol):
    """The target: a table in tests, or a real model with its cache."""

    @property
    def vocab_size(self) -> int:
        """Tokens in the vocabulary."""
        ...

    def start(self, prompt: Tensor) -> Tensor:
        """Start over with a prompt (n,), return the logits after it (V,)."""
        ...

    def score(self, last: int, proposal: Proposal) -> Tensor:
        """Return logits (n + 1, V): row 0 after `last` (emitted, not yet read), row 1 + i after node i."""
        ...

    def keep(self, nodes: Sequence[int]) -> None:
        """Keep `last` and the accepted nodes of the last `score`, a path from the root, and drop the rest."""
        ...


class Drafter(Protocol):
    """Proposes tokens, which the target verifies."""

    @property
    def kind(self) -> str:
        """The name of its method."""
        ...

    def start(self, prompt: Tensor) -> None:
        """Start over with a prompt (n,), after `Verifier.start`."""
        ...

    def propose(self, last: int, limit: int, sampling: Sampling, generator: torch.Generator) -> Proposal:
        """Return at most `limit` levels of drafts after `last`; the proposal may be empty."""
        ...

    def keep(self, tokens: Sequence[int]) -> None:
        """Read the tokens emitted in this round (accepted + 1), after `Verifier.keep`."""
        ...
