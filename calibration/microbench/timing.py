"""The one timing core: calls of an operator → seconds of each, by host timer or by replays of a graph."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from calibration.microbench.cuda_graph import captured

WARM_UPS = 3
_LEAST_IN_GRAPH, _MOST_IN_GRAPH = 20, 512
"""Runs in one graph: enough for its start to be nothing beside them and for all cold copies to take turns,
few enough to be captured in no time."""


@dataclass(frozen=True)
class Work:
    """What is timed: `run(i)` makes call number i, on the i-th of `copies` cold copies in turn.

    One run counts as `calls` calls (a chain of kernels). On a CPU `before` is done first and not timed: what
    a step does before such a call, and empties the caches of data and code with. On a GPU runs are captured
    in a graph; `eager` ones are launched one by one, and the host's launching is part of their time.
    """

    run: Callable[[int], object]
    copies: int = 1
    calls: int = 1
    eager: bool = False
    before: Callable[[], object] | None = None


@dataclass(frozen=True)
class Effort:
    """How long one visit of a point lasts: until both are met, but no longer than `most_s`."""

    repeats: int
    least_s: float
    most_s: float


class Timed(NamedTuple):
    """Seconds of one call, over so many repeats."""

    seconds: float
    p10_s: float
    p90_s: float
    repeats: int


def time_work(work: Work, effort: Effort, on_gpu: bool) -> Timed:
    """Median, P10 and P90 over repeats. Warms up first; what was allocated for the work stays."""
    with torch.inference_mode():
        if not on_gpu:
            samples = _host_samples(work, effort)
        elif work.eager:
            samples = _eager_samples(work, effort)
        else:
            samples = _graph_samples(work, effort)
    return timed_of(np.array(samples) / work.calls)


def timed_of(samples: NDArray[np.float64]) -> Timed:
    """Median, P10 and P90 of seconds."""
    p10, p50, p90 = (float(x) for x in np.quantile(samples, [0.1, 0.5, 0.9]))
    return Timed(p50, p10, p90, len(samples))


def _host_samples(work: Work, effort: Effort) -> list[float]:
    def sample(i: int) -> float:
        if work.before is not None:
            work.before()
        return _seconds_of(lambda: work.run(i))

    for i in range(WARM_UPS):
        sample(-1 - i)
    return _repeat(effort, WARM_UPS, sample)


def _eager_samples(work: Work, effort: Effort) -> list[float]:
    """Launched by the host; the clock stops when the GPU has done it."""

    def run(i: int) -> float:
        def launched() -> None:
            work.run(i)
            torch.cuda.synchronize()

        return _seconds_of(launched)

    for i in range(WARM_UPS):
        run(-1 - i)
    return _repeat(effort, WARM_UPS, run)


def _graph_samples(work: Work, effort: Effort) -> list[float]:
    """Replays of a graph that holds a run on each copy, as far as they fit; seconds of one run."""
    runs = min(max(work.copies, _LEAST_IN_GRAPH), _MOST_IN_GRAPH)

    def launch(count: int) -> None:
        for i in range(count):  # what a run returns is let go at once, so that the next one takes its memory
            work.run(i)

    replay = captured(lambda: launch(runs), lambda: launch(WARM_UPS))
    for _ in range(WARM_UPS):
        replay()
    return _repeat(effort, 0, lambda _: replay() / runs)


def _repeat(effort: Effort, first: int, sample: Callable[[int], float]) -> list[float]:
    samples: list[float] = []
    begun = time.perf_counter()
    while True:
        samples.append(sample(first + len(samples)))
        spent = time.perf_counter() - begun
        if (len(samples) >= effort.repeats and spent >= effort.least_s) or spent >= effort.most_s:
            return samples


def _seconds_of(run: Callable[[], object]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun
