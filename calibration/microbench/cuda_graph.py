"""Replays of a CUDA graph, timed by events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from calibration.decoder.graphs import captured_graph


def captured(runs: Callable[[], object], warm_up: Callable[[], object]) -> Callable[[], float]:
    """A function that replays the kernels that `runs` launches and returns their seconds.

    `warm_up` runs first on another stream, as graph capture requires.
    """
    cuda: Any = torch.cuda
    graph = captured_graph(runs, warm_up)
    start, end = (cuda.Event(enable_timing=True) for _ in range(2))

    def replay() -> float:
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3

    return replay
