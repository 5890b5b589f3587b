"""The shape of one round's drafts: how many drafts a draft length stands for, how deep they reach, and how
many drafter passes make them.

Four numbers that agree for a chain and for nothing else:

- *nodes*: drafts that are verified for a request in one round, which is its query rows without the root;
- *depth*: positions at which a draft can be accepted;
- *passes* of the drafter, with the rows of each;
- the drafts of one request in one round: at most `nodes`, fewer where its own limit or the token budget cuts.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Protocol


class DraftShape(Hashable, Protocol):
    """How the drafts of a round hang together. Nodes come level by level, so that a cut takes the deepest."""

    def nodes(self, draft_length: int) -> int:
        """Return the drafts that are verified when a scenario drafts `draft_length` tokens; 0 for 0."""

    def depth(self, nodes: int) -> int:
        """Return the positions at which the first `nodes` drafts can be accepted; a level that is not whole
        does not count."""

    def pass_rows(self, nodes: int) -> tuple[int, ...]:
        """Return the rows that each request adds to every drafter pass which `nodes` drafts take, (passes,).

        The first pass may also read all query tokens of the step (`Method.first_pass_reads_tokens`). For 0
        nodes: the pass that only keeps the drafter's KV current.
        """

    def first_logits(self, nodes: int) -> int:
        """Return the rows of each request that the first pass takes logits of; later passes take all."""

    def kv_slots(self, nodes: int) -> int:
        """Return the KV slots that a drafter with KV needs ahead of a request with up to `nodes` drafts."""

    def kv_rows(self, nodes: int) -> int:
        """Return the rows that such a request writes to the KV cache in a round: those of the
        drafter or of the verify pass, whichever are more."""


@dataclass(frozen=True)
class Chain:
    """Drafts one after the other: nodes and depth are one number."""

    serial: bool = True
    """One drafter pass per draft; otherwise one pass makes all drafts."""
    first_pass_rows: int = 0
    """Rows that each request adds to the first pass."""

    def nodes(self, draft_length: int) -> int:
        """As many as the draft length says."""
        return draft_length

    def depth(self, nodes: int) -> int:
        """As many positions as drafts."""
        return nodes

    def pass_rows(self, nodes: int) -> tuple[int, ...]:
        """One row per request in each later pass: its newest draft."""
        later = max(nodes - 1, 0) if self.serial else 0
        return (self.first_pass_rows, *(1,) * later)

    def first_logits(self, nodes: int) -> int:
        """The last token of each request."""
        return 1

    def kv_slots(self, nodes: int) -> int:
        """One slot per draft."""
        return nodes

    def kv_rows(self, nodes: int) -> int:
        """The verified ones: the drafts and the newest token."""
        return nodes + 1 if nodes else 0


CHAIN = Chain()
"""One pass per draft, and nothing of its own in the first pass: EAGLE, MTP."""


@dataclass(frozen=True)
class ParallelChain(Chain):
    """A chain whose drafts all come from one pass: each request adds a row with a mask token per draft.

    `further_rows`: rows of a request beyond one per draft. -1: the newest token's own row makes the first
    draft (P-EAGLE); 1: the block begins with a row for the newest token (DFlash).
    """

    serial: bool = False
    further_rows: int = 0

    def pass_rows(self, nodes: int) -> tuple[int, ...]:
        """All rows are in the first pass; none without drafts."""
        return (max(nodes + self.further_rows, 0) if nodes else 0,)

    def first_logits(self, nodes: int) -> int:
        """Every draft is chosen from logits of its own."""
        return max(nodes, 1)

    def kv_slots(self, nodes: int) -> int:
        """One slot per draft, and one for the newest token where it has a row in the block."""
        return nodes + max(self.further_rows, 0) if nodes else 0
