"""A draft model: a smaller language model with the target's vocabulary and its own cache.

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
    """Drafts with a separate language model; rejected drafts are dropped at the next round."""

    def __init__(self, session: TargetSession, kind: str = "draft-model") -> None:
        super().__init__()
        self.kind = kind
        self._session = session
        self._network = session.network
        self._cache = session.cache
        self._read: list[int] = []  # tokens whose rows are in the cache

    def propose(self, last: int, limit: int, sampling: Sampling, generator: torch.Generator) -> Proposal:
        """Read the tokens emitted since the last draft, then draft a chain."""
        self.begin(last)
        shared = _common_prefix(self._read, self.tokens[:-1])
        self._cache.crop(shared)
        del self._read[shared:]

        def logits_after(token: int) -> Tensor:
            unread = self.tokens[len(self._read) :]
            fresh = unread if unread else [token]
            positions = torch.arange(len(fresh)) + self._cache.length
            read = self._network.read(torch.tensor(fresh), positions, self._cache, last_only=True)
            self._cache.keep(range(len(fresh)))
            self._read += fresh
            return read.logits[0]

        # Its window may be shorter than the target's. The last draft is never read, hence + 2.
        room = self._session.room - (len(self.tokens) - len(self._read)) + 2
        return draft_chain(logits_after, last, max(0, int(min(limit, room))), sampling, generator)

    def keep(self, tokens: Sequence[int]) -> None:
        """Take the tokens emitted in this round."""
        self.extend(tokens)


def _common_prefix(left: list[int], right: list[int]) -> int:
    """Length of the common prefix of two lists."""
    pairs = zip(left, right, strict=False)
    return next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))
