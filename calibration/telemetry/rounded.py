"""Counts behind a line of vLLM's log, which prints them rounded and leaves the number of rounds out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from calibration.telemetry.fields import LONGEST_DRAFT, DamagedError
from calibration.telemetry.reading import Counts

_LENGTH_HALF, _RATE_HALF = 0.005, 0.0005
"""Half of the last digit printed: two decimals of the mean acceptance length, three of a rate."""
_SLACK = 1e-6
_MOST_TRIED = 2000
_EXACT_BELOW = 1000
"""Rounds up to which a rate of three decimals tells the number of rounds that it stands for."""


def counts_of(mean_length: float, accepted: int, drafted: int, rates: Sequence[float]) -> Counts:
    """The counts that print as this line: 1 + A ÷ R to two decimals and A_j ÷ R to three.

    The rounds are drafted ÷ positions where every draft was full; otherwise the fewest that agree with all
    figures, as drafts are mostly full. Raises DamagedError when no number of rounds agrees: the line is cut
    or altered.
    """
    if not 0 <= accepted <= drafted or drafted == 0 or not 0 < len(rates) <= LONGEST_DRAFT:
        raise DamagedError("accepted and drafted tokens contradict each other")
    if any(later > earlier + _SLACK for earlier, later in pairwise(rates)):
        raise DamagedError("acceptance rates rise with the position")
    for rounds in _candidates(mean_length, accepted, drafted, len(rates)):
        accepted_at = _accepted_at(rounds, accepted, rates)
        if accepted_at is not None:
            return Counts(float(rounds), float(accepted), float(drafted), accepted_at)
    raise DamagedError("its figures contradict one another")


def _candidates(mean_length: float, accepted: int, drafted: int, positions: int) -> Iterator[int]:
    """Numbers of rounds to try: those that the drafts and the mean acceptance length allow, fewest first."""
    fewest, most = -(-drafted // positions), drafted
    low, high = mean_length - 1.0 - _LENGTH_HALF - _SLACK, mean_length - 1.0 + _LENGTH_HALF + _SLACK
    if high > 0.0:
        fewest = max(fewest, math.ceil(accepted / high))
    elif accepted:
        return
    if low > 0.0:
        most = min(most, math.floor(accepted / low))
    stride = max(1, (most - fewest) // _MOST_TRIED)
    yield from range(fewest, most + 1, stride)


def _accepted_at(rounds: int, accepted: int, rates: Sequence[float]) -> tuple[float, ...] | None:
    """Rounds that accepted each position; None where these rates cannot come of so many rounds."""
    if abs(math.fsum(rates) * rounds - accepted) > len(rates) * (_RATE_HALF + _SLACK) * rounds:
        return None
    if rounds >= _EXACT_BELOW:  # what rounding took from the sum is given back to all positions alike
        rest = (accepted - math.fsum(rates) * rounds) / len(rates)
        return tuple(min(max(rate * rounds + rest, 0.0), float(rounds)) for rate in rates)
    counts = [round(rate * rounds) for rate in rates]
    agree = all(
        abs(count / rounds - rate) <= _RATE_HALF + _SLACK for count, rate in zip(counts, rates, strict=True)
    )
    return tuple(map(float, counts)) if agree and sum(counts) == accepted else None
