"""Closed loops by load and draft length, the input of K schedules and Pareto fronts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.capacity.replica import FULL

if TYPE_CHECKING:
    from experiments.capacity.candidates import Candidates
    from experiments.capacity.replica import Replica, ReplicaSetting

_FEWEST_REQUESTS = 400
_ROUNDS_OF_USERS = 4
"""Requests of a run, in total or per user. Throughput and mean TPOT on common random numbers need no more."""


@dataclass(frozen=True)
class LoadPoint:
    """Figures of one replica that `concurrency` users keep busy."""

    setting: ReplicaSetting
    concurrency: int
    tokens_per_s: float
    tpot_s: float

    @property
    def tokens_per_s_per_gpu(self) -> float:
        """Throughput per GPU."""
        return self.tokens_per_s / self.setting.tensor_parallel

    @property
    def tokens_per_s_per_user(self) -> float:
        """Token rate of one stream: 1 ÷ mean TPOT."""
        return 1 / self.tpot_s


def concurrencies(max_running_requests: int) -> tuple[int, ...]:
    """1, 2, 4, … up to the limit of running requests."""
    return tuple(sorted({*(2**i for i in range(max_running_requests.bit_length())), max_running_requests}))


def load_point(replica: Replica, concurrency: int) -> LoadPoint:
    """The figures at one load."""
    requests = max(_FEWEST_REQUESTS, _ROUNDS_OF_USERS * concurrency)
    figures = replica.run_at(FULL, concurrency, requests=requests).figures
    return LoadPoint(replica.setting, concurrency, figures["throughput_tokens_per_s"], figures["tpot_s.mean"])


def by_draft_length(
    candidates: Candidates, setting: ReplicaSetting, longest: int
) -> Mapping[int, tuple[LoadPoint, ...]]:
    """K → the points by load, from K = 0 (the drafter is loaded and does not draft) to `longest`."""
    loads = concurrencies(candidates.replica(setting).max_running_requests)
    points_by_length = {}
    for draft_length in range(longest + 1):
        replica = candidates.replica(setting.with_draft_length(draft_length))
        points_by_length[draft_length] = tuple(load_point(replica, load) for load in loads)
    candidates.report("draft length by load")
    return points_by_length


def pareto(points: Iterable[LoadPoint]) -> tuple[LoadPoint, ...]:
    """The Pareto-optimal points in tokens/s per GPU and tokens/s per user, by falling tokens/s per user."""
    front: list[LoadPoint] = []
    for point in sorted(points, key=lambda p: (-p.tokens_per_s_per_user, -p.tokens_per_s_per_gpu)):
        if not front or point.tokens_per_s_per_gpu > front[-1].tokens_per_s_per_gpu:
            front.append(point)
    return tuple(front)
