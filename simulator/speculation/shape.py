"""The shape of one round's drafts: from how many drafts a request brings to how deep they reach and how many
drafter passes made them.

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

    def depth(self, nodes: int) -> int:
        """Return the positions at which the first `nodes` drafts can be accepted; a level that is not whole
        does not count."""

    def pass_rows(self, nodes: int) -> tuple[int, ...]:
        """Return the rows that each request adds to every drafter pass which `nodes` drafts take, (passes,).

        The first pass may also read all query tokens of the step (`Method.first_pass_reads_tokens`). For 0
        nodes: the pass that only keeps the drafter's KV current.
        """


@dataclass(frozen=True)
class Chain:
    """Drafts one after the other: nodes and depth are one number."""

    serial: bool = True
    """One drafter pass per draft; otherwise one pass makes all drafts."""
    first_pass_rows: int = 0
    """Rows that each request adds to the first pass."""

    def depth(self, nodes: int) -> int:
        """As many positions as drafts."""
        return nodes

    def pass_rows(self, nodes: int) -> tuple[int, ...]:
        """One row per request in each later pass: its newest draft."""
        later = max(nodes - 1, 0) if self.serial else 0
        return (self.first_pass_rows, *(1,) * later)


CHAIN = Chain()
"""One pass per draft, and nothing of its own in the first pass: EAGLE, MTP."""
