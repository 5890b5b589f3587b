"""The step from Python's side: one call per decision, for the driver that lives in SimPy.

`engine` is `State.engine`, the array of one engine record.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.numerics.compiled import compiled
from simulator.step.blocks import matched_hashes
from simulator.step.price import price
from simulator.step.queues import bring_up_to, next_event_ns, schedule_arrival
from simulator.step.schedule import schedule
from simulator.step.update import update
from simulator.step.views import plan_at

Engine = NDArray[np.void]


class ScheduledStep(NamedTuple):
    """What a driver needs to know of a composed step."""

    entries: int
    """Requests in it; 0: there is no step."""
    tokens: int
    number: int
    draft_length: int
    hidden_ns: int
    """Host work that an asynchronous engine hides behind the GPU."""
    preempted: int
    """Composing preempted somebody."""


@compiled(entry=True)
def schedule_step(
    engine: Engine, slot: int, now_ns: int, in_flight_step: int, in_flight_draft_length: int
) -> ScheduledStep:
    """Compose into `slot` at `now_ns` while step `flight_step` runs (NO_STEP: none)."""
    e = engine[0]
    entries = schedule(e, slot, now_ns, in_flight_step, in_flight_draft_length)
    p = plan_at(e, slot)
    return ScheduledStep(entries, p.tokens, p.number, p.draft_length, p.hidden_ns, p.preempted)


@compiled(entry=True)
def price_step(engine: Engine, slot: int, start_ns: int) -> tuple[int, int, int, int]:
    """Price the step in `slot`, which starts at `start_ns`; return ns of host, verify, accept, draft."""
    e = engine[0]
    price(e, slot, start_ns)
    p = plan_at(e, slot)
    return p.host_ns, p.verify_ns, p.accept_ns, p.draft_ns


@compiled(entry=True)
def update_step(engine: Engine, slot: int, now_ns: int) -> int:
    """Apply the results of the step in `slot`, which leave at `now_ns`; return how many requests
    `State.ended` holds since the last call.
    """
    e = engine[0]
    update(e, slot, now_ns)
    ended = e.ended_count
    e.ended_count = 0
    return ended


@compiled(entry=True)
def bring_queues_up_to(engine: Engine, now_ns: int) -> None:
    """Let everybody join and leave who does so up to `now_ns`, as composing does first."""
    bring_up_to(engine[0], now_ns, 0)


@compiled(entry=True)
def deliver(engine: Engine, request: int, now_ns: int) -> None:
    """Hand a request that arrives at `now_ns` to the engine."""
    schedule_arrival(engine[0], request, now_ns)


@compiled(entry=True)
def next_event(engine: Engine) -> int:
    """Return when a request that was delivered gets on, or is given up; NEVER when none is."""
    return next_event_ns(engine[0])


@compiled(entry=True)
def cached_prefix(engine: Engine, request: int) -> int:
    """Return how many leading hash blocks of a request the engine has in memory."""
    return matched_hashes(engine[0], request)
