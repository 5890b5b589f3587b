"""The leap: engines decide one after another in compiled code, while nothing else can happen."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.numerics.compiled import compiled, pointer
from simulator.step.clock import decide
from simulator.step.engine import ENGINE
from simulator.step.state import NEVER, UPDATE
from simulator.step.views import Engine, clients_of, item


def _engine_view() -> Any:
    from numba import carray  # type: ignore[attr-defined]

    @compiled(inline=True)
    def engine_at(address: int) -> Engine:
        return carray(pointer(address), 1, ENGINE)[0]

    return engine_at


engine_at = _engine_view()
"""The engine's record at an address."""


@compiled(inline=True)
def _order(when_ns: int, results: bool) -> int:
    """Return where a decision stands in time: at one instant results come before all others.

    Below `NEVER`, so that it can be doubled and one more still fits into 64 bits.
    """
    return 2 * min(when_ns, NEVER - 2) + (not results)


@compiled(inline=True)
def _order_of(e: Engine) -> int:
    return _order(e.due_ns, e.phase == UPDATE)


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
    reports_ends = not engine_at(item(engines, 0)).binds_clients
    reached_ns = horizon_ns
    end = _order(horizon_ns, True) + 1
    while True:
        first, earliest, before = 0, end, end
        for index in range(len(engines)):
            order = _order_of(engine_at(item(engines, index)))
            if order < earliest:
                # Of equals the engine of the lowest number goes first: those before it wait for `earliest`,
                # those after it for one more.
                before = min(before, earliest)
                first, earliest = index, order
            else:
                before = min(before, order + 1)
        if earliest >= end:
            return reached_ns, clients.ended_count
        e = engine_at(item(engines, first))
        while _order_of(e) < before:
            now_ns = e.due_ns
            decide(e, now_ns)
            if reports_ends and clients.ended_count > 0:
                # Everything else of this instant still happens, so that no client acts before a result.
                reached_ns = now_ns
                end = _order(now_ns, True) + 1
                before = min(before, end)
