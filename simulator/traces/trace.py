"""What every trace reader returns: requests as recorded, before rate scaling and classes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

import numpy as np

from simulator.numerics.arrays import Ints

CountTokens = Callable[[str], int]
"""A tokenizer as the readers need it: text to number of tokens."""

NOT_GIVEN = -1
"""Output length that the file leaves open: the workload's own distribution draws it."""


@dataclass(frozen=True)
class Trace:
    """`n` recorded requests in the order in which they are issued.

    `arrival_ns` (n,) counts from the first arrival; -1 where a turn follows its predecessor instead.
    `prompt_tokens`, `output_tokens` (n,); an output of -1 is not given by the file.
    `session` (n,) is dense, -1 none; `successor` (n,) is the next turn,
    issued `successor_delay_ns` after this one ends, -1 none.
    `prefix_ids[prefix_start[r]:prefix_start[r + 1]]` are the dense ids of the leading full blocks
    of request r, `prefix_block_tokens` each (0: the file has no information on content),
    equal exactly when all tokens up to the block's end are equal.
    `timed` says whether the file has times, `dropped` counts rows left out, by reason, and `notes` say
    what a reader of results must know.
    """

    format: str
    file: str
    arrival_ns: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    session: Ints
    successor: Ints
    successor_delay_ns: Ints
    prefix_start: Ints
    prefix_ids: Ints
    prefix_block_tokens: int
    timed: bool
    dropped: tuple[tuple[str, int], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def requests(self) -> int:
        """Requests that were kept."""
        return len(self.prompt_tokens)


def encode_prefixes(prefixes: Iterable[Iterable[Hashable]]) -> tuple[Ints, Ints]:
    """Dense ids of blocks, where a block is known by its own content and all content before it.

    Returns `start` (n + 1,) and `ids` (start[n],) for `n` prefixes; two prefixes share an id exactly
    when they agree up to that block's end, so that looking ids up one by one
    is the same as matching from the front.
    """
    known: dict[tuple[int, Hashable], int] = {}
    start, ids = [0], []
    for blocks in prefixes:
        code = -1
        for block in blocks:
            code = known.setdefault((code, block), len(known))
            ids.append(code)
        start.append(len(ids))
    return np.array(start, dtype=np.int64), np.array(ids, dtype=np.int64)
