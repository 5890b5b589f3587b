"""The step from Python's side: what processes, clients and the router ask of it.

`engine` is `State.engine`, the array of one engine record.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.numerics.compiled import compiled
from simulator.step import clock
from simulator.step.blocks import prefix_hit
from simulator.step.clients import follow_up
from simulator.step.price import price
from simulator.step.queues import bring_up_to
from simulator.step.views import clients_of, engine_at, plan_at

EngineArray = NDArray[np.void]


@compiled(entry=True)
def decide(address: int, now_ns: int) -> tuple[int, int, int, int, int, int, int, int]:
    """Let the engine whose record is at an address decide at `now_ns` what it decides next, whenever its
    clocks have it.

    Return what it decides after that (SCHEDULE … UPDATE) and when, as its clocks have it; how many requests
    `State.ended` holds, those that ended now; the scheduler's work on the step that was scheduled now; and
    `PRICED` of the plan that runs. To look into an array, and to make a named tuple, would cost more than the
    decision.
    """
    e = engine_at(address)
    clients = clients_of(e)[0]
    clients.ended_count = 0
    e.due_ns = now_ns
    scheduled_before = e.next_number
    clock.advance(e, clock.order_of(now_ns, False) + 1, 1)
    p = plan_at(e, e.slot)
    hidden_ns = 0
    if e.next_number > scheduled_before:
        hidden_ns = plan_at(e, 1 - e.slot if e.ahead > 0 else e.slot).hidden_ns
    stages_ns = (p.host_ns, p.verify_ns, p.accept_ns, p.draft_ns)
    return (e.phase, e.due_ns, clients.ended_count, hidden_ns, *stages_ns)


@compiled(entry=True)
def price_step(engine: EngineArray, slot: int, start_ns: int) -> tuple[int, int, int, int]:
    """Price the step in `slot`, which starts at `start_ns`; return ns of host, verify, accept, draft."""
    e = engine[0]
    price(e, slot, start_ns)
    p = plan_at(e, slot)
    return p.host_ns, p.verify_ns, p.accept_ns, p.draft_ns


@compiled(entry=True)
def bring_queues_up_to(engine: EngineArray, now_ns: int) -> None:
    """Bring the engine's queues to `now_ns`, as scheduling does first."""
    bring_up_to(engine[0], now_ns, 0)


@compiled(entry=True)
def deliver(engine: EngineArray, request: int, now_ns: int) -> int:
    """Hand a request that arrives at `now_ns` to the engine; return until when its client waits at most."""
    return clock.deliver(engine[0], request, now_ns)


@compiled(entry=True)
def next_request(engine: EngineArray, request: int, ended_ns: int) -> tuple[int, int]:
    """Return what a client asks after a request, and when it arrives; NO_REQUEST: nothing."""
    return follow_up(engine[0], request, ended_ns)


@compiled(entry=True)
def cached_prefix(engine: EngineArray, request: int) -> int:
    """Return how many leading tokens of a request the engine would not have to compute."""
    return prefix_hit(engine[0], request)[0]
