"""Routers: which replica serves a request. A new policy is a function and a line in `ROUTERS`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from simulator.step.entry import cached_prefix
from simulator.step.state import State
from simulator.traffic.workload import Requests

Route = Callable[[int, Sequence[int]], int]
"""From a request and the requests outstanding per replica to the replica that serves it."""


def _least(outstanding: Sequence[int]) -> int:
    return min(range(len(outstanding)), key=lambda replica: (outstanding[replica], replica))


def _round_robin(states: Sequence[State], requests: Requests) -> Route:
    turn = count()
    return lambda request, outstanding: next(turn) % len(states)


def _least_loaded(states: Sequence[State], requests: Requests) -> Route:
    return lambda request, outstanding: _least(outstanding)


def _session(states: Sequence[State], requests: Requests) -> Route:
    """Return a route on which later turns go where the first went, and first turns to the least loaded."""
    home: dict[int, int] = {}

    def route(request: int, outstanding: Sequence[int]) -> int:
        session = int(requests.session[request])
        if session < 0:
            return _least(outstanding)
        return home.setdefault(session, _least(outstanding))

    return route


def _prefix(states: Sequence[State], requests: Requests) -> Route:
    """Return a route to the replica that holds most
    of the prompt's leading tokens in memory, the least loaded of equals.
    """

    def route(request: int, outstanding: Sequence[int]) -> int:
        held = [cached_prefix(state.engine, request) for state in states]
        return min(range(len(states)), key=lambda replica: (-held[replica], outstanding[replica], replica))

    return route


ROUTERS: dict[str, Callable[[Sequence[State], Requests], Route]] = {
    "round-robin": _round_robin,
    "least-loaded": _least_loaded,
    "session": _session,
    "prefix": _prefix,
}


def route_of(name: str, states: Sequence[State], requests: Requests) -> Route:
    """Return the router of that name for these replicas."""
    return ROUTERS[name](states, requests)
