"""The step from Python's side: one call per decision, for the driver that lives in SimPy.

`engine` is `State.engine`, the array of one engine record.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.compiled import compiled
from simulator.step.apply import apply
from simulator.step.blocks import matched_hashes
from simulator.step.compose import compose
from simulator.step.price import price
from simulator.step.queues import next_arrival_ns, schedule_arrival

Engine = NDArray[np.void]


@compiled(entry=True)
def compose_step(engine: Engine, slot: int, now_ns: int, flight_step: int, flight_draft_length: int) -> int:
    """Compose into `slot` at `now_ns` while step `flight_step` runs (NO_STEP: none); return the number of entries."""
    return compose(engine[0], slot, now_ns, flight_step, flight_draft_length)


@compiled(entry=True)
def price_step(engine: Engine, slot: int) -> None:
    """Price the stages of the step in `slot`."""
    price(engine[0], slot)


@compiled(entry=True)
def apply_step(engine: Engine, slot: int, now_ns: int) -> None:
    """Apply the results of the step in `slot`, which leave at `now_ns`."""
    apply(engine[0], slot, now_ns)


@compiled(entry=True)
def deliver(engine: Engine, request: int, now_ns: int) -> None:
    """Hand a request that arrives at `now_ns` to the engine."""
    schedule_arrival(engine[0], request, now_ns)


@compiled(entry=True)
def next_arrival(engine: Engine) -> int:
    """Return when the next request that was delivered joins, NEVER when there is none."""
    return next_arrival_ns(engine[0])


@compiled(entry=True)
def cached_prefix(engine: Engine, request: int) -> int:
    """Return how many leading hash blocks of a request the engine has in memory."""
    return matched_hashes(engine[0], request)
