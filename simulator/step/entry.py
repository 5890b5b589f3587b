"""The step from Python's side: one call per decision, and what clients and the router ask.

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
from simulator.step.state import SCHEDULE, START, WAIT
from simulator.step.views import clients_of, plan_at

Engine = NDArray[np.void]


class Decision(NamedTuple):
    """What one decision of an engine led to."""

    phase: int
    """What it decides next: SCHEDULE … UPDATE."""
    due_ns: int
    """When, as the clocks of its resources have it."""
    slot: int
    """The plan that runs, or starts next."""
    started: bool
    """A step has started: its stages queue for their resources."""
    scheduled: bool
    """A step has been scheduled: the scheduler has `hidden_ns` of work on it."""
    hidden_ns: int
    stages_ns: tuple[int, int, int, int]
    """`PRICED` of the plan that runs."""
    ended: int
    """How many requests `State.ended` holds: those that this decision ended."""


@compiled(entry=True)
def decide(engine: Engine, now_ns: int) -> Decision:
    """Let the engine decide at `now_ns` what is due (docs/step.md §5)."""
    e = engine[0]
    clients = clients_of(e)[0]
    clients.ended_count = 0
    decided = e.phase
    clock.decide(e, now_ns)
    p = plan_at(e, e.slot)
    started = decided == START
    ahead = started and e.ahead == 1
    scheduled = ahead or (decided in (SCHEDULE, WAIT) and e.phase == START)
    hidden_ns = plan_at(e, 1 - e.slot if ahead else e.slot).hidden_ns
    stages_ns = (p.host_ns, p.verify_ns, p.accept_ns, p.draft_ns)
    return Decision(e.phase, e.due_ns, e.slot, started, scheduled, hidden_ns, stages_ns, clients.ended_count)


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
