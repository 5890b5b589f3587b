"""Conversations: the prompt of each turn repeats the turns before it, and the common prefix of any two
prompts is known.

The tokens of a session are one growing sequence: a shared system prompt, then prompts
and outputs in turn. A block of it is either inside the shared system prompt, and then the same
in every session, or belongs to this session alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.errors import InputError, Problem
from simulator.numerics.arrays import Ints

SESSION_BLOCK_TOKENS = 16
"""Tokens per prefix id of synthetic sessions: the serving engines' block."""


_MOST_BLOCKS = 200_000_000
"""Blocks of all prompts together. More ids do not fit into the memory of a machine (8 bytes each, and
copies).
"""


class SessionTurns(NamedTuple):
    """What sessions add to `n` requests, stored session by session, turn by turn.

    `prompt_tokens` (n,) with the history; `session`, `successor` (n,) as in `Requests`;
    `prefix_start` (n + 1,) and `prefix_ids` for blocks of 16 tokens, over prompt and output,
    since the next turn starts with both.
    """

    prompt_tokens: Ints
    session: Ints
    successor: Ints
    prefix_start: Ints
    prefix_ids: Ints


def build_sessions(
    own_tokens: Ints, answer_tokens: Ints, turns: int, shared_prefix_tokens: int
) -> SessionTurns:
    """Turn `n` requests into sessions of `turns` each (the last one may be cut short).

    Raises InputError when their prompts are too long to be held.

    `own_tokens` (n,) is what the user adds in each turn, `answer_tokens` (n,) what the model answers, up to
    the token at which a client cancels.
    """
    n = len(own_tokens)
    request = np.arange(n, dtype=np.int64)
    session, turn = request // turns, request % turns
    total = _running_sum(own_tokens + answer_tokens, session, turn) + shared_prefix_tokens
    successor = np.where((turn < turns - 1) & (request < n - 1), request + 1, -1)
    start, ids = _prefix_ids(
        total // SESSION_BLOCK_TOKENS, session, shared_prefix_tokens // SESSION_BLOCK_TOKENS
    )
    return SessionTurns(total - answer_tokens, session, successor, start, ids)


def _running_sum(values: Ints, session: Ints, turn: Ints) -> Ints:
    """Sum of `values` from a session's first turn up to each turn, itself included; shape (n,)."""
    running = np.cumsum(values)
    first = np.flatnonzero(turn == 0)
    before_session: Ints = (running - values)[first]
    sums: Ints = running - before_session[session]
    return sums


def _prefix_ids(blocks: Ints, session: Ints, shared_blocks: int) -> tuple[Ints, Ints]:
    """Starts (n + 1,) and dense ids of the leading `blocks` (n,) of each request.

    Ids below `shared_blocks` are the common system prompt; each session's own blocks follow, one range a
    session, as long as its last turn needs.
    """
    n = len(blocks)
    start = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(blocks, out=start[1:])
    if start[-1] > _MOST_BLOCKS:
        message = f"the prompts of all turns hold {start[-1]:,} blocks of {SESSION_BLOCK_TOKENS} tokens"
        allowed = f"at most {_MOST_BLOCKS:,}: fewer turns, requests or tokens"
        raise InputError(Problem(field="workload.sessions", message=message, allowed=allowed))
    last = np.append(session[1:] != session[:-1], True)
    own = np.maximum(blocks[last] - shared_blocks, 0)  # by session: a last turn is its longest
    offset = np.cumsum(own) - own  # blocks of the sessions before
    ids = np.arange(start[-1], dtype=np.int64)
    ids -= np.repeat(start[:-1], blocks)  # position of the block in its prompt
    ids += np.where(ids >= shared_blocks, np.repeat(offset[session], blocks), 0)
    return start, ids
