"""The leap: engines decide one after another in compiled code, while nothing else can happen."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.numerics.compiled import compiled
from simulator.step.clock import advance, order_of
from simulator.step.state import NEVER, UPDATE
from simulator.step.views import clients_of, engine_at, item


@compiled(entry=True)
def leap(engines: NDArray[np.int64], horizon_ns: int) -> tuple[int, int]:
    """Let the engines at these addresses decide, always the one whose decision is due first, until the next
    one lies at or beyond `horizon_ns`, where something else happens; results of that very instant still come
    before it (docs/step.md §5).

    Stops early at an instant at which requests end whose clients are outside: what they ask next may come
    before anything that another engine would do. Return the time that was reached, and how many requests
    `State.ended` then holds.
    """
    clients = clients_of(engine_at(item(engines, 0)))[0]
    clients.ended_count = 0
    reached_ns = horizon_ns
    end = order_of(horizon_ns, True) + 1
    while True:
        first, earliest, before = 0, end, end
        for index in range(len(engines)):
            e = engine_at(item(engines, index))
            order = order_of(e.due_ns, e.phase == UPDATE)
            if order < earliest:
                # Of equals the engine of the lowest number goes first: those before it wait for `earliest`,
                # those after it for one more.
                before = min(before, earliest)
                first, earliest = index, order
            else:
                before = min(before, order + 1)
        if earliest >= end:
            return reached_ns, clients.ended_count
        ended_ns = advance(engine_at(item(engines, first)), before, NEVER)
        if ended_ns >= 0:
            # Results of other engines at this instant still come, so that no client acts before them.
            reached_ns = ended_ns
            end = order_of(ended_ns, True) + 1
