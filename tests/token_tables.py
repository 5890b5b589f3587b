"""A target and a drafter small enough to know every distribution: tables over the last two tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from calibration.sampling.grow import grow
from calibration.sampling.protocols import Proposal, Sampling
from simulator.trees import DraftTree, Growth, GrowthRule, StaticGrowth, growth_of


def random_table(vocab_size: int, seed: int, spread: float = 1.0) -> Tensor:
    """Logits (V, V, V) of the token after every pair of tokens."""
    generator = torch.Generator().manual_seed(seed)
    return spread * torch.randn(vocab_size, vocab_size, vocab_size, generator=generator, dtype=torch.float64)


class TableTarget:
    """A verifier that reads from a table, with a cache of its own to keep or lose tokens in."""

    def __init__(self, table: Tensor) -> None:
        self.table = table
        self.vocab_size = len(table)
        self._read: list[int] = []
        self._scored: list[int] = []

    def start(self, prompt: Tensor) -> Tensor:
        """Read a prompt of two tokens or more."""
        self._read = prompt.tolist()
        return self.table[self._read[-2], self._read[-1]]

    def score(self, last: int, proposal: Proposal) -> Tensor:
        """Logits after the last token and after every node."""
        self._scored = [last, *proposal.tokens.tolist()]
        before = [self._read[-1], *(self._scored[1 + parent] for parent in proposal.parents.tolist())]
        return self.table[before, self._scored]

    def keep(self, nodes: Sequence[int]) -> None:
        """Keep a path."""
        self._read += [self._scored[0], *(self._scored[1 + node] for node in nodes)]


class TableDrafter:
    """A drafter that reads from a table and grows chains (`plan` None) or trees."""

    kind = "table"

    def __init__(
        self, table: Tensor, plan: DraftTree | GrowthRule | None = None, replace: bool = False
    ) -> None:
        self.table, self.plan, self.replace = table, plan, replace
        self._read: list[int] = []

    def start(self, prompt: Tensor) -> None:
        """Read a prompt."""
        self._read = prompt.tolist()

    def propose(self, last: int, limit: int, sampling: Sampling, generator: torch.Generator) -> Proposal:
        """Drafts by the plan."""
        context = self._read[-1]

        def token(growth: Growth | StaticGrowth, node: int) -> int:
            return growth.tokens[node] if node > 0 else last if node == 0 else context

        def next_logits(growth: Growth | StaticGrowth) -> Tensor:
            nodes = growth.frontier.tolist()
            before = [token(growth, growth.parents[node]) for node in nodes]
            return self.table[before, [token(growth, node) for node in nodes]]

        plan = DraftTree.chain(limit) if self.plan is None else self.plan
        proposal = grow(growth_of(plan, limit), next_logits, sampling, generator, self.replace)
        self._read.append(last)
        return proposal

    def keep(self, tokens: Sequence[int]) -> None:
        """The last token comes back as `last`."""
        self._read += tokens[:-1]
