"""The timing core: seconds per call of an operator, by host timer or by replays of a graph."""

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
_MIN_IN_GRAPH, _MAX_IN_GRAPH = 20, 512
"""Runs in one graph: enough to make its start negligible and to use all cold copies, but few enough to
capture fast.
"""


@dataclass(frozen=True)
class Work:
    """The work that is timed: `run(i)` makes call number i, on the cold copy i modulo `copies`.

    A run counts as `calls` calls (a chain of kernels). On a CPU, `before` runs first and is not timed: it
    does the work of a step before such a call, which evicts data and code from the caches. On a GPU, runs are
    captured in a graph; `eager` runs are launched one by one, and their time includes the launches.
    """

    run: Callable[[int], object]
    copies: int = 1
    calls: int = 1
    eager: bool = False
    before: Callable[[], object] | None = None


@dataclass(frozen=True)
class Effort:
    """The duration of one visit of a point: until `repeats` and `min_s` are reached, but at most `max_s`."""

    repeats: int
    min_s: float
    max_s: float


class Timed(NamedTuple):
    """Seconds of one call: median, P10 and P90 over `repeats` repeats."""

    seconds: float
    p10_s: float
    p90_s: float
    repeats: int


def time_work(work: Work, effort: Effort, on_gpu: bool) -> Timed:
    """Median, P10 and P90 over repeats, after a warm-up. Memory allocated for the work stays allocated."""
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
    """Runs launched by the host; the clock stops when the GPU has finished."""

    def run(i: int) -> float:
        def launched() -> None:
            work.run(i)
            torch.cuda.synchronize()

        return _seconds_of(launched)

    for i in range(WARM_UPS):
        run(-1 - i)
    return _repeat(effort, WARM_UPS, run)


def _graph_samples(work: Work, effort: Effort) -> list[float]:
    """Seconds per run from replays of a graph with a run on each copy, up to `_MAX_IN_GRAPH`."""
    runs = min(max(work.copies, _MIN_IN_GRAPH), _MAX_IN_GRAPH)

    def launch(count: int) -> None:
        for i in range(count):  # the result of a run is freed at once, so that the next run reuses its memory
            work.run(i)

    replay = captured(lambda: launch(runs), lambda: launch(WARM_UPS))
    for _ in range(WARM_UPS):
        replay()
    return _repeat(effort, 0, lambda _: replay() / runs)


def _repeat(effort: Effort, first: int, sample: Callable[[int], float]) -> list[float]:
    samples: list[float] = []
    started_s = time.perf_counter()
    while True:
        samples.append(sample(first + len(samples)))
        elapsed_s = time.perf_counter() - started_s
        if (len(samples) >= effort.repeats and elapsed_s >= effort.min_s) or elapsed_s >= effort.max_s:
            return samples


def _seconds_of(run: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    run()
    return time.perf_counter() - started_s
