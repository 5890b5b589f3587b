"""A stage of decoding, which changes tensors in place: called on a CPU, replayed as a graph on a GPU."""

from __future__ import annotations

from collections.abc import Callable

import torch

from calibration.decoder.graphs import captured_graph

Stage = Callable[[], None]
_WARM_UPS = 3


def stage(work: Stage, device: torch.device, before: Stage) -> Stage:
    """What runs `work`, on a GPU captured once; `before` puts back the tensors that warming up changes."""
    if device.type != "cuda":
        return work

    def warm_up() -> None:
        for _ in range(_WARM_UPS):
            before()
            work()
        before()

    graph = captured_graph(work, warm_up)
    before()
    replay: Stage = graph.replay
    return replay
