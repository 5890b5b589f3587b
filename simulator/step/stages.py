"""The stages of a step, as data: what each occupies, how long, and after which stage (docs/step.md §5).

A step queues all its stages when it starts, in the order of the list. Each resource serves its queue in that
order, as a CUDA stream does: the stage at the head holds the resource, also while it waits for the stage that
it comes after. A stage therefore ends at `max(resource free, end of that stage) + duration`: a clock for each
resource is all that the compiled loop needs, and none where the list itself keeps the stages of a resource
apart. SimPy's processes arrive at the same times by waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
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


def stage_records(stages: Sequence[Stage], next_step_after: str) -> NDArray[np.void]:
    """Return the list as the compiled step reads it, (stages,) STAGE."""
    names = [stage.name for stage in stages]
    after = [-1 if stage.after is None else names.index(stage.after, 0, n) for n, stage in enumerate(stages)]
    records = np.zeros(len(stages), STAGE)
    for index, stage in enumerate(stages):
        price = f"{stage.name}_ns"
        record = records[index : index + 1]
        record["price"] = PRICED.index(price) if price in PRICED else -1
        record["resource"], record["after"] = stage.resource, after[index]
    for resource in {stage.resource for stage in stages}:
        users = [index for index, stage in enumerate(stages) if stage.resource == resource]
        alone = all(_waits_for(after, user, before) for before, user in pairwise(users))
        alone &= _waits_for(after, names.index(next_step_after), users[-1])
        records["queues"][users] = not alone
    return records


def _waits_for(after: Sequence[int], stage: int, other: int) -> bool:
    """Return whether a stage is `other`, or begins after its end."""
    while stage > other:
        stage = after[stage]
    return stage == other
