"""The rules of a client, each once: how long it waits for an answer, and what it asks next.

Where one engine serves all clients, the engine's own queues apply them, in compiled code. Where a router
stands between clients and engines, the clients are SimPy processes that ask here.
"""

from __future__ import annotations

from simulator.numerics.compiled import compiled
from simulator.step.state import NEVER
from simulator.step.views import (
    Engine,
    clients_of,
    issue_order_of,
    request_at,
    successor_delay_ns_of,
    successor_of,
)

NO_REQUEST = -1


@compiled()
def patience_ends_ns(e: Engine, r: int) -> int:
    """Return when the client of request `r` stops waiting for it, NEVER when it has all the time."""
    if e.timeout_ns == NEVER:  # a sum with it could overflow
        return NEVER
    return request_at(e, r).arrival_ns + e.timeout_ns


@compiled()
def follow_up(e: Engine, r: int, ended_ns: int) -> tuple[int, int]:
    """Return what follows request `r`, which ended at `ended_ns`, and when it arrives: the session's next
    turn, else the first request that no client of the closed loop has issued; NO_REQUEST when nothing does.
    """
    if successor_of(e)[r] >= 0:
        return successor_of(e)[r], ended_ns + successor_delay_ns_of(e)[r]
    clients = clients_of(e)[0]
    if clients.issue_index == len(issue_order_of(e)):
        return NO_REQUEST, NEVER
    clients.issue_index += 1
    return issue_order_of(e)[clients.issue_index - 1], ended_ns + e.think_time_ns
