"""What a GPU does in one go: work captured once as a CUDA graph. Not for a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def captured_graph(work: Callable[[], object], warm_up: Callable[[], object]) -> Any:
    """The CUDA graph of what `work` launches.

    `warm_up` is called first, beside the graph, as capturing demands.
    """
    cuda: Any = torch.cuda
    side = cuda.Stream()
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        warm_up()
    cuda.current_stream().wait_stream(side)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        work()
    return graph
