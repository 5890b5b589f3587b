"""Prompt lookup: what followed the last tokens when they stood here before.

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
"""Tokens of a match that are tried, longest first."""


class NGram(History):
    """Copies what followed the latest earlier occurrence of the last few tokens, the longest match first.

    Keeps, per n-gram, the place after its latest occurrence, so that a look-up costs no search.
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
        """Return the continuation of the match, or nothing."""
        del sampling, generator  # a look-up is certain
        self.begin(last)
        for size in self._sizes:
            place = self._after.get(tuple(self.tokens[-size:]))
            if place is not None:
                return chain(self.tokens[place : place + limit])
        return chain([])

    def keep(self, tokens: Sequence[int]) -> None:
        """Read the tokens emitted in this round."""
        self.extend(tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        """Take more tokens. An n-gram is entered when a token follows it: the end never finds itself."""
        for token in tokens:
            for size in self._sizes:
                if len(self.tokens) >= size:
                    self._after[tuple(self.tokens[-size:])] = len(self.tokens)
            self.tokens.append(token)
