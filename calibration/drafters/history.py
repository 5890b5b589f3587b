"""What every drafter that looks at text keeps: all tokens there are, the last emitted one included."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


class History:
    """The tokens of one sequence, as a drafter is told of them.

    The first token after a prompt comes with the first `propose`; all later ones with `keep`.
    """

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self._begun = False

    def start(self, prompt: Tensor) -> None:
        """Forget everything and take the prompt."""
        self.tokens, self._begun = [], False
        self.extend(prompt.tolist())

    def begin(self, last: int) -> None:
        """Take the first token after the prompt, once."""
        if not self._begun:
            self._begun = True
            self.extend([last])

    def extend(self, tokens: Sequence[int]) -> None:
        """Take more tokens; drafters that keep an index of them add to it here."""
        self.tokens += tokens
