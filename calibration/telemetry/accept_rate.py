"""The draft length behind SGLang's `accept len` and `accept rate`, whose meaning changed after late 2025.

Then it was (accepted + 1) ÷ (drafts + 1), now it is accepted ÷ drafts. Both figures are rounded to two
decimals, and either meaning gives a draft length. The length and meaning that agree with every line are
taken. Where several do, those are taken with which more lines agree inside their rounding, not just at its
edge.
"""

from __future__ import annotations

_HALF, _SLACK = 0.005, 1e-9
"""Half of the last digit printed."""
_LONGEST = 64
"""Draft lengths that are looked for."""

NOW, EARLY = "now", "early"
MEANING = {NOW: "accepted ÷ drafts", EARLY: "(accepted + 1) ÷ (drafts + 1)"}
VERSION = {NOW: "from about 0.5.4", EARLY: "up to about 0.5.3"}


class AcceptRate:
    """Draft lengths and meanings that agree with all lines so far, and how many lines agree inside."""

    def __init__(self) -> None:
        self._inside = {(era, length): 0 for era in (NOW, EARLY) for length in range(1, _LONGEST)}
        self._weighted, self._weight = 0.0, 0.0

    def add(self, length: float, rate: float, weight: float) -> None:
        """One line: mean acceptance length, accept rate, and the running requests that weigh it."""
        self._weighted += rate * weight
        self._weight += weight
        consistent: dict[tuple[str, int], int] = {}
        for (era, drafts), inside in self._inside.items():
            less, divisor = (1.0, drafts) if era == NOW else (0.0, drafts + 1)
            low, high = (length - _HALF - less) / divisor, (length + _HALF - less) / divisor
            overlap = min(high, rate + _HALF) - max(low, rate - _HALF)
            if overlap >= -_SLACK:
                consistent[era, drafts] = inside + (overlap > _SLACK)
        self._inside = consistent

    @property
    def mean(self) -> float | None:
        """The mean of the rate as printed; None without a line."""
        return self._weighted / self._weight if self._weight else None

    @property
    def answer(self) -> tuple[str, int] | None:
        """Meaning and draft length; None where the lines leave it open, or nothing agrees with them."""
        if not self._weight or not self._inside:
            return None
        most = max(self._inside.values())
        best = [key for key, inside in self._inside.items() if inside == most]
        return best[0] if len(best) == 1 and most else None
