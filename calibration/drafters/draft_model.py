"""A draft model: a smaller language model with the target's vocabulary and a cache of its own.

Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from calibration.drafters.chain import draft_chain
from calibration.drafters.history import History
from calibration.drafters.target_session import TargetSession
from calibration.sampling.protocols import Proposal, Sampling


class DraftModel(History):
    """Drafts with a language model of its own; refused drafts are forgotten at the next round."""

    def __init__(self, session: TargetSession, kind: str = "draft-model") -> None:
        super().__init__()
        self.kind = kind
        self._session = session
        self._network = session.network
        self._cache = session.cache
        self._read: list[int] = []  # the tokens whose rows are in the cache

    def propose(self, last: int, limit: int, sampling: Sampling, generator: torch.Generator) -> Proposal:
        """Read what has been emitted since the last draft, then draft a chain."""
        self.begin(last)
        shared = _common(self._read, self.tokens[:-1])
        self._cache.crop(shared)
        del self._read[shared:]

        def logits_after(token: int) -> Tensor:
            behind = self.tokens[len(self._read) :]
            fresh = behind if behind else [token]
            positions = torch.arange(len(fresh)) + self._cache.length
            read = self._network.read(torch.tensor(fresh), positions, self._cache, last_only=True)
            self._cache.keep(range(len(fresh)))
            self._read += fresh
            return read.logits[0]

        # Its own window may be the shorter one; the last draft is never read.
        room = self._session.room - (len(self.tokens) - len(self._read)) + 2
        return draft_chain(logits_after, last, max(0, int(min(limit, room))), sampling, generator)

    def keep(self, tokens: Sequence[int]) -> None:
        """Take the tokens emitted in this round."""
        self.extend(tokens)


def _common(left: list[int], right: list[int]) -> int:
    """Length of the beginning that two lists share."""
    for index, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return index
    return min(len(left), len(right))
