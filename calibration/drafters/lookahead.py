"""Lookahead decoding: Jacobi iterations of the target on a window of guesses fill a pool of n-grams.

Fu et al., arXiv 2402.02057. Their engine runs the window and the verification in one pass. Here the window is
a separate pass, which does not change any token.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from calibration.drafters.chain import chain, tree_of_paths
from calibration.drafters.history import History
from calibration.drafters.target_session import TargetSession
from calibration.sampling.protocols import Proposal, Sampling

WINDOW = 8
"""Positions that are guessed at once (W)."""
NGRAM = 4
"""Tokens of an n-gram in the pool (N)."""
CANDIDATES = 8
"""N-grams kept per first token, the latest ones (G)."""


class Lookahead(History):
    """Drafts the pool's n-grams that begin with the last token, as a tree."""

    kind = "lookahead"

    def __init__(self, target: TargetSession) -> None:
        super().__init__()
        self._target = target
        self._levels: list[list[int]] = []  # level i, position w: a guess of token t + w + 1 + i
        self._pool: dict[int, list[tuple[int, ...]]] = {}

    def start(self, prompt: Tensor) -> None:
        """Empty the pool; the first guesses are tokens of the prompt."""
        super().start(prompt)
        self._pool = {}
        choices = torch.randint(
            len(self.tokens), (NGRAM - 1, WINDOW), generator=torch.Generator().manual_seed(len(self.tokens))
        )
        self._levels = [[self.tokens[index] for index in row] for row in choices.tolist()]

    def propose(self, last: int, limit: int, sampling: Sampling, generator: torch.Generator) -> Proposal:
        """Iterate the window once, then return the pool's n-grams for `last`."""
        del sampling, generator  # the window is greedy, its n-grams are deterministic
        self.begin(last)
        if limit == 0:
            return chain([])
        if self._target.room >= WINDOW + NGRAM - 2:  # else the window would exceed the model's
            self._iterate(last)
        grams = self._pool.get(last, [])
        return tree_of_paths([list(gram[:limit]) for gram in reversed(grams)])

    def keep(self, tokens: Sequence[int]) -> None:
        """Take the tokens emitted in this round."""
        self.extend(tokens)

    def _iterate(self, last: int) -> None:
        """One Jacobi step: a new deepest guess at every position, and an n-gram from every position for the
        pool.
        """
        tokens = [token for level in self._levels for token in level]
        # The first level is a chain from the last token; deeper guesses of position w descend from its node.
        parents = [*range(-1, WINDOW - 1), *range(WINDOW * (NGRAM - 2))]
        logits = self._target.score(last, Proposal(torch.tensor(tokens), torch.tensor(parents)))
        deepest = logits[-WINDOW:].argmax(-1).tolist()
        for position in range(WINDOW):
            first, *rest = [level[position] for level in self._levels]
            grams = self._pool.setdefault(first, [])
            gram = (*rest, deepest[position])
            if gram in grams:
                grams.remove(gram)
            grams.append(gram)
            del grams[:-CANDIDATES]
        self._levels = [*self._levels[1:], deepest]
