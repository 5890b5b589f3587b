"""Scheduler rules, one file each: which requests run in the next step.

A new rule is a new file here that calls `register`. A rule is data that the compiled step reads. One that
needs more decides in Python at step boundaries, and then engines go stage by stage. `engine.scheduler` of a
scenario names the rule; otherwise the serving-engine preset does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from simulator.registry import Registry


class EngineState(Protocol):
    """What a rule may read and change of an engine at a step boundary: records and queues, as in
    `step.state.State`.
    """

    @property
    def engine(self) -> NDArray[np.void]:
        """(1,) the engine's own record: its settings, clock, queue heads and free blocks."""

    @property
    def requests(self) -> NDArray[np.void]:
        """(n,) one record per request; `draft_length` caps the drafts of its rounds."""

    @property
    def running(self) -> NDArray[np.int32]:
        """(max_num_seqs,) running requests in order of admission, the first `running_count`."""

    @property
    def waiting(self) -> NDArray[np.int32]:
        """(n + 1,) ring of waiting requests: `waiting_count` from `waiting_head` on."""

    @property
    def draft_length_by_batch(self) -> NDArray[np.int64]:
        """(max_num_seqs + 1,) K after a step with that many requests; never above its first maximum."""


BoundaryHook = Callable[[EngineState, int], None]
"""Called before each step is scheduled with the engine's state and the time in ns, once all requests that
have arrived are waiting. It may reorder the waiting queue, or change K by batch or by request."""


@dataclass(frozen=True)
class Rule:
    """How a serving engine fills a step."""

    name: str
    source: str
    mixes_prefill: bool
    """Decodes and prefill chunks share a step; otherwise prefill runs first and alone, and decodes wait."""
    at_step_boundary: BoundaryHook | None = None


_RULES: Registry[Rule] = Registry("scheduler rule", "engine.scheduler", __name__, __path__)

register, registered, rules, scheduler_rule = _RULES.register, _RULES.registered, _RULES.all, _RULES.find
