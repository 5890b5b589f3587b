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


def stage_records(stages: Sequence[Stage]) -> NDArray[np.void]:
    """Return the list as the compiled step reads it, (stages,) STAGE."""
    records = np.zeros(len(stages), STAGE)
    after = _predecessors(stages)
    for index, stage in enumerate(stages):
        price = f"{stage.name}_ns"
        records[index : index + 1]["price"] = PRICED.index(price) if price in PRICED else -1
        records[index : index + 1]["resource"] = stage.resource
        records[index : index + 1]["after"] = after[index]
    return records


def path_to(stages: Sequence[Stage], name: str) -> NDArray[np.int64]:
    """Return which of `PRICED` (4,) lie on the way from the start of a step to the end of a stage: -1, which
    has all bits, or 0.
    """
    path = np.zeros(len(PRICED), np.int64)
    records = stage_records(stages)
    index = _index_of(stages, name)
    while index >= 0:
        if records[index]["price"] >= 0:
            path[records[index]["price"]] = -1
        index = records[index]["after"]
    return path


def stages_queue(stages: Sequence[Stage], next_step_after: str) -> bool:
    """Return whether a stage may find its resource occupied: by a stage that it does not come after, or by
    one of the step before that the next step does not wait for.
    """
    after, gate = _predecessors(stages), _index_of(stages, next_step_after)
    for resource in {stage.resource for stage in stages}:
        users = [index for index, stage in enumerate(stages) if stage.resource == resource]
        if not all(_comes_after(after, user, before) for before, user in pairwise(users)):
            return True
        if not _comes_after(after, gate, users[-1]):
            return True
    return False


def _index_of(stages: Sequence[Stage], name: str | None) -> int:
    return -1 if name is None else [stage.name for stage in stages].index(name)


def _predecessors(stages: Sequence[Stage]) -> list[int]:
    """Return the number of the stage that each one comes after, -1: the start of the step."""
    return [_index_of(stages[:index], stage.after) for index, stage in enumerate(stages)]


def _comes_after(after: Sequence[int], stage: int, other: int) -> bool:
    """Return whether a stage is `other`, or begins after its end."""
    while stage > other:
        stage = after[stage]
    return stage == other
