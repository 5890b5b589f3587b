"""The step from Python's side: what processes, clients and the router ask of it.

`engine` is `State.engine`, the array of one engine record.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.numerics.compiled import compiled
from simulator.step import clock
from simulator.step.blocks import matched_hashes
from simulator.step.clients import follow_up
from simulator.step.price import price
from simulator.step.queues import bring_up_to
from simulator.step.views import plan_at

Engine = NDArray[np.void]


class Outlook(NamedTuple):
    """What an engine does next, and the steps that it holds."""

    phase: int
    """What it decides next: SCHEDULE … UPDATE."""
    due_ns: int
    """When, as the clocks of its resources have it."""
    slot: int
    """The plan that runs, or starts next."""
    ahead: bool
    """The other plan is scheduled, too."""
    hidden_ns: int
    """Work of the scheduler on the step that was scheduled last."""
    stages_ns: tuple[int, int, int, int]
    """`PRICED` of the plan that runs."""


@compiled(entry=True)
def outlook(engine: Engine) -> Outlook:
    """Return what the engine does next."""
    e = engine[0]
    p = plan_at(e, e.slot)
    hidden_ns = plan_at(e, 1 - e.slot if e.ahead else e.slot).hidden_ns
    stages_ns = (p.host_ns, p.verify_ns, p.accept_ns, p.draft_ns)
    return Outlook(e.phase, e.due_ns, e.slot, e.ahead > 0, hidden_ns, stages_ns)


@compiled(entry=True)
def price_step(engine: Engine, slot: int, start_ns: int) -> tuple[int, int, int, int]:
    """Price the step in `slot`, which starts at `start_ns`; return ns of host, verify, accept, draft."""
    e = engine[0]
    price(e, slot, start_ns)
    p = plan_at(e, slot)
    return p.host_ns, p.verify_ns, p.accept_ns, p.draft_ns


@compiled(entry=True)
def bring_queues_up_to(engine: Engine, now_ns: int) -> None:
    """Bring the engine's queues to `now_ns`, as scheduling does first."""
    bring_up_to(engine[0], now_ns, 0)


@compiled(entry=True)
def deliver(engine: Engine, request: int, now_ns: int) -> int:
    """Hand a request that arrives at `now_ns` to the engine; return until when its client waits at most."""
    return clock.deliver(engine[0], request, now_ns)


@compiled(entry=True)
def next_request(engine: Engine, request: int, ended_ns: int) -> tuple[int, int]:
    """Return what a client asks after a request, and when it arrives; NO_REQUEST: nothing."""
    return follow_up(engine[0], request, ended_ns)


@compiled(entry=True)
def cached_prefix(engine: Engine, request: int) -> int:
    """Return how many leading hash blocks of a request the engine has in memory."""
    return matched_hashes(engine[0], request)
