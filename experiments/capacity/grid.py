"""Closed loops over the load, for every draft length: what K schedules and Pareto fronts are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.capacity.replica import FULL

if TYPE_CHECKING:
    from experiments.capacity.candidates import Candidates
    from experiments.capacity.replica import Replica, Setting

_FEWEST_REQUESTS = 400
_ROUNDS_OF_USERS = 4
"""A run of the grid measures so many requests, or so many per user: throughput and mean TPOT on common luck
need no more.
"""


@dataclass(frozen=True)
class Point:
    """One replica kept busy by `concurrency` users."""

    setting: Setting
    concurrency: int
    tokens_per_s: float
    tpot_s: float

    @property
    def tokens_per_s_per_gpu(self) -> float:
        """What the owner gets."""
        return self.tokens_per_s / self.setting.tensor_parallel

    @property
    def tokens_per_s_per_user(self) -> float:
        """What a user sees while an answer streams."""
        return 1 / self.tpot_s


def concurrencies(seats: int) -> tuple[int, ...]:
    """1, 2, 4, … up to the seats."""
    return tuple(sorted({*(2**i for i in range(seats.bit_length())), seats}))


def point(replica: Replica, concurrency: int) -> Point:
    """One cell."""
    requests = max(_FEWEST_REQUESTS, _ROUNDS_OF_USERS * concurrency)
    figures = replica.seen(FULL, concurrency, requests=requests).figures
    return Point(replica.setting, concurrency, figures["throughput_tokens_per_s"], figures["tpot_s.mean"])


def by_draft_length(
    candidates: Candidates, setting: Setting, longest: int
) -> Mapping[int, tuple[Point, ...]]:
    """K → the points over the load, for K = 0 (drafting stopped, the drafter still loaded) to `longest`."""
    loads = concurrencies(candidates.replica(setting).seats)
    found = {}
    for draft_length in range(longest + 1):
        replica = candidates.replica(setting.with_draft_length(draft_length))
        found[draft_length] = tuple(point(replica, load) for load in loads)
    candidates.tell("draft length by load")
    return found


def pareto(points: Iterable[Point]) -> tuple[Point, ...]:
    """The points that none beats in both tokens/s per GPU and tokens/s per user, fastest user first."""
    front: list[Point] = []
    for one in sorted(points, key=lambda p: (-p.tokens_per_s_per_user, -p.tokens_per_s_per_gpu)):
        if not front or one.tokens_per_s_per_gpu > front[-1].tokens_per_s_per_gpu:
            front.append(one)
    return tuple(front)
