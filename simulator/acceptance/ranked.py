"""Acceptance by the rank of a draft among the drafter's choices, as trees need it (docs/acceptance.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from simulator.acceptance.base import (
    AcceptanceEntry,
    AcceptanceModel,
    chances_of_hazards,
    check_between,
    check_draft_length,
    checked_number,
    fault,
    logit,
    shifted_probability,
)
from simulator.numerics.arrays import Floats


@dataclass(frozen=True)
class Ranked(AcceptanceModel):
    """P(the child of rank r is the continuation of an accepted node at depth d) = `table[d][r]`; at most 1
    over the ranks (positional acceptance, arXiv 2402.12374; by depth, arXiv 2401.10774).

    The last depth given holds beyond it; further ranks are never accepted. A chain takes rank 1. Its family
    shifts the logit of P(rank r | no earlier rank).
    """

    name: ClassVar[str] = "ranked"
    table: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        if not self.table or not all(self.table):
            raise fault("chances", None, "is empty", "one number per rank, or such a list per depth")
        for depth, row in enumerate(self.table):
            for rank, chance in enumerate(row):
                check_between(f"chances[{depth}][{rank}]", chance, 0.0, 1.0)
            if sum(row) > 1.0 + 1e-9:
                raise fault(f"chances[{depth}]", list(row), "adds to more than 1", "at most 1 over all ranks")

    @classmethod
    def from_entry(cls, entry: AcceptanceEntry) -> Ranked:
        """`{model: ranked, chances: [p_1, p_2, …]}`, or a list of these by depth."""
        chances = entry.fields.get("chances")
        if not isinstance(chances, list | tuple) or not chances:
            raise fault("chances", chances, "is not a list", "one number per rank, or such a list per depth")
        rows = chances if all(isinstance(row, list | tuple) for row in chances) else [chances]
        return cls(tuple(_numbers(index, row) for index, row in enumerate(rows)))

    @property
    def alpha(self) -> float:
        """P(the first choice is accepted) at position 1."""
        return self.table[0][0]

    @property
    def _hazards(self) -> Floats:
        """P(rank r | no earlier rank), (depths, ranks); 0 where no rank is left."""
        ranks = max(map(len, self.table))
        chances = np.array([(*row, *(0.0,) * (ranks - len(row))) for row in self.table])
        left = 1.0 - np.cumsum(chances, axis=1) + chances
        hazards = np.divide(chances, left, out=np.zeros_like(chances), where=left > 1e-12)
        return np.asarray(np.minimum(hazards, 1.0))

    def conditional(self, depth: int) -> Floats:
        """The chances of rank 1."""
        check_draft_length(depth)
        return np.array([self.table[min(level, len(self.table) - 1)][0] for level in range(depth)])

    def rank_chances(self, effects: Floats, depth: int, ranks: int) -> Floats:
        """As given; requests do not differ."""
        known = chances_of_hazards(self._hazards)
        chances = np.zeros((depth, ranks))
        width = min(ranks, known.shape[1])
        chances[:, :width] = known[np.minimum(np.arange(depth), len(known) - 1), :width]
        return np.broadcast_to(chances, (len(effects), depth, ranks))

    def shifted(self, delta_logit: float) -> Ranked:
        """Shift P(rank r | no earlier rank); 0 and 1 stay."""
        shift = np.vectorize(lambda hazard: shifted_probability(hazard, delta_logit), otypes=[np.float64])
        chances = chances_of_hazards(shift(self._hazards))
        return Ranked(tuple(tuple(row) for row in np.clip(chances, 0.0, 1.0).tolist()))

    def with_alpha(self, alpha: float) -> Ranked:
        """Shift all alike so that the first choice is accepted with `alpha` at position 1.
        Raises InputError when it is 0 or 1 now, which no shift moves.
        """
        check_between("alpha", alpha, 0.0, 1.0)
        if alpha == self.alpha:
            return self
        if self.alpha in (0.0, 1.0):
            raise fault("chances[0][0]", self.alpha, "cannot be shifted", "a rate above 0 and below 1")
        moved = self.shifted(logit(alpha) - logit(self.alpha))
        rest = moved.table[0][1:]
        return Ranked(((alpha, *rest), *moved.table[1:]))


def _numbers(depth: int, row: Sequence[Any]) -> tuple[float, ...]:
    return tuple(checked_number(f"chances[{depth}][{rank}]", chance) for rank, chance in enumerate(row))
