"""Captures work as a CUDA graph. Not for a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def captured_graph(work: Callable[[], object], warm_up: Callable[[], object]) -> Any:
    """The CUDA graph of the kernels that `work` launches.

    `warm_up` runs first on another stream, as graph capture requires.
    """
    cuda: Any = torch.cuda
    stream = cuda.Stream()
    stream.wait_stream(cuda.current_stream())
    with cuda.stream(stream):
        warm_up()
    cuda.current_stream().wait_stream(stream)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        work()
    return graph
