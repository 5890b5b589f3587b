"""A stage of decoding, which changes tensors in place: called on a CPU, replayed as a graph on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Stage = Callable[[], None]
_WARM_UPS = 3


def stage(work: Stage, device: torch.device, before: Stage) -> Stage:
    """What runs `work`, on a GPU captured once; `before` puts back the tensors that warming up changes."""
    if device.type != "cuda":
        return work
    cuda: Any = torch.cuda
    side = cuda.Stream()
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        for _ in range(_WARM_UPS):
            before()
            work()
    cuda.current_stream().wait_stream(side)
    before()
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        work()
    before()
    replay: Stage = graph.replay
    return replay
