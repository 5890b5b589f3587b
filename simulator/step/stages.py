"""The stages of a step, as data: what each occupies, how long, and after which stage (docs/step.md §5).

A step queues all its stages when it starts, in the order of the list. Each resource serves its queue in that
order, as a CUDA stream does: the stage at the head holds the resource, also while it waits for the stage that
it comes after. A stage therefore ends at `max(resource free, end of that stage) + duration`: a clock for each
resource is all that the compiled loop needs, and none for the serial list, where each stage comes after the
one before. SimPy's processes arrive at the same times by waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.step.state import GPU, HOST, PRICED, STAGE


class Stage(NamedTuple):
    """One stage of every step of an engine."""

    name: str
    """host, verify, accept or draft, which last as priced; any other name takes no time and only waits."""
    resource: int
    """HOST … KV_LINK"""
    after: str | None = None
    """The earlier stage of the list that it waits for; None: it may begin when the step starts."""


SERIAL = (
    Stage("host", HOST),
    Stage("verify", GPU, after="host"),
    Stage("accept", GPU, after="verify"),
    Stage("draft", GPU, after="accept"),
)
"""Target and drafter take turns on the same GPUs."""


def stage_records(stages: Sequence[Stage]) -> NDArray[np.void]:
    """Return the list as the compiled step reads it, (stages,) STAGE."""
    names = [stage.name for stage in stages]
    prices = [PRICED.index(f"{name}_ns") if f"{name}_ns" in PRICED else -1 for name in names]
    after = [
        -1 if stage.after is None else names[:index].index(stage.after) for index, stage in enumerate(stages)
    ]
    return np.array(list(zip(prices, [stage.resource for stage in stages], after, strict=True)), STAGE)
