"""The token history that text-based drafters keep, including the last emitted token."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


class History:
    """The tokens of one sequence as a drafter receives them.

    The first token after a prompt comes with the first `propose`, all later tokens with `keep`.
    """

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self._begun = False

    def start(self, prompt: Tensor) -> None:
        """Start over with a prompt."""
        self.tokens, self._begun = [], False
        self.extend(prompt.tolist())

    def begin(self, last: int) -> None:
        """Take the first token after the prompt, once."""
        if not self._begun:
            self._begun = True
            self.extend([last])

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens; drafters with an index update it here."""
        self.tokens += tokens
