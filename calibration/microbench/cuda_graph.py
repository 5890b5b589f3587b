"""Replays of a CUDA graph, timed by events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def captured(runs: Callable[[], object], warm_up: Callable[[], object]) -> Callable[[], float]:
    """A function that replays what `runs` launches and returns the seconds of all of it.

    `warm_up` is called first, beside the graph, as capturing demands.
    """
    cuda: Any = torch.cuda
    stream = cuda.Stream()
    stream.wait_stream(cuda.current_stream())
    with cuda.stream(stream):
        warm_up()
    cuda.current_stream().wait_stream(stream)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        runs()
    start, end = (cuda.Event(enable_timing=True) for _ in range(2))

    def replay() -> float:
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3

    return replay
