"""A stage of decoding, which changes tensors in place; on a GPU it is replayed as a graph."""

from __future__ import annotations

from collections.abc import Callable

import torch

from calibration.decoder.graphs import captured_graph

GraphStage = Callable[[], None]
_WARM_UPS = 3


def stage(work: GraphStage, device: torch.device, before: GraphStage) -> GraphStage:
    """A function that runs `work`, captured once on a GPU; `before` restores the tensors that warm-up
    changes.
    """
    if device.type != "cuda":
        return work

    def warm_up() -> None:
        for _ in range(_WARM_UPS):
            before()
            work()
        before()

    graph = captured_graph(work, warm_up)
    before()
    replay: GraphStage = graph.replay
    return replay
