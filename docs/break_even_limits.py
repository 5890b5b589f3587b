"""Up to which load an acceptance is enough: where a line of a break-even map crosses it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from experiments.maps.study_map import MapCell


@dataclass(frozen=True)
class LoadLimit:
    """Speculation pays at an acceptance up to `load`: 0 where it never does, infinite where it always does.

    `low` and `high` are the same with the band of the break-even: `low` is the last load at which it surely
    pays, above `high` it surely does not. `crossings` is how often the line crosses the acceptance.
    """

    load: float
    low: float
    high: float
    crossings: int


def limit_of(line: Sequence[MapCell], alpha: float) -> LoadLimit | None:
    """The limit of a line of cells by rising load; None where some of it has no answer.

    Between two loads the break-even is taken to be straight over the logarithm of the load.
    """
    if not line or any(cell.required_alpha() is None for cell in line):
        return None
    crossings = sum(
        (_needs(low, None) <= alpha) != (_needs(high, None) <= alpha) for low, high in pairwise(line)
    )
    load, low, high = (_first_stop(line, alpha, end) for end in (None, 1, 0))
    return LoadLimit(load, low, high, crossings)


def _first_stop(line: Sequence[MapCell], alpha: float, end: int | None) -> float:
    """The load at which the needed acceptance, or an end of its band, first exceeds `alpha`."""
    if _needs(line[0], end) > alpha:
        return 0.0
    for below, above in pairwise(line):
        low, high = _needs(below, end), min(_needs(above, end), 1.0)
        if _needs(above, end) > alpha:
            share = (alpha - low) / (high - low) if high > low else 1.0
            return math.exp((1 - share) * math.log(below.load) + share * math.log(above.load))
    return math.inf


def _needs(cell: MapCell, end: int | None) -> float:
    needed = cell.required_alpha(end)
    return math.nan if needed is None else needed
