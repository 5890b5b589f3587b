"""Prompt lookup: drafts the tokens that followed an earlier occurrence of the last tokens.

LLMA (Yang et al., arXiv 2304.04487), prompt lookup decoding (Saxena 2023), vLLM's `ngram`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from calibration.drafters.chain import chain
from calibration.drafters.history import History
from calibration.sampling.protocols import Proposal, Sampling

LONGEST, SHORTEST = 4, 2
"""Lengths of a match in tokens that are tried, longest first."""


class NGram(History):
    """Copies the tokens after the latest earlier occurrence of the last few tokens, longest match first.

    An index maps every n-gram to the position after its latest occurrence, so that no search is needed.
    """

    kind = "ngram"

    def __init__(self, longest: int = LONGEST, shortest: int = SHORTEST) -> None:
        super().__init__()
        self._sizes = range(longest, shortest - 1, -1)
        self._after: dict[tuple[int, ...], int] = {}

    def start(self, prompt: Tensor) -> None:
        """Read the prompt."""
        self._after = {}
        super().start(prompt)

    def propose(self, last: int, limit: int, sampling: Sampling, generator: torch.Generator) -> Proposal:
        """Return the continuation of the match, or an empty proposal."""
        del sampling, generator  # prompt lookup is deterministic
        self.begin(last)
        for size in self._sizes:
            position = self._after.get(tuple(self.tokens[-size:]))
            if position is not None:
                return chain(self.tokens[position : position + limit])
        return chain([])

    def keep(self, tokens: Sequence[int]) -> None:
        """Read the tokens emitted in this round."""
        self.extend(tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens. An n-gram enters the index when a token follows it, so that the end never matches
        itself.
        """
        for token in tokens:
            for size in self._sizes:
                if len(self.tokens) >= size:
                    self._after[tuple(self.tokens[-size:])] = len(self.tokens)
            self.tokens.append(token)
