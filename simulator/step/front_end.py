"""The front end before an engine: one process parses and tokenises all requests that are in it, in turns
(docs/step.md §2).

Each of the n requests in it gets a nth of the process. Work is shared out in whole nanoseconds, and what is
left of a division goes into the next one, so that nothing is lost. As everybody gets the same share, a
request is done when the share handed out since it entered has reached its work; a heap knows who is next.
"""

from __future__ import annotations

from simulator.compiled import compiled
from simulator.step.state import NEVER
from simulator.step.views import Engine, arrived_of, front_end_of, request_at


@compiled()
def next_exit_ns(e: Engine) -> int:
    """Return when the next request leaves the front end if nobody enters before, NEVER when it is empty."""
    if e.front_end_count == 0:
        return NEVER
    left_ns = _done_at(e, front_end_of(e)[0]) - e.front_end_share_ns
    return e.front_end_now_ns + max(left_ns * e.front_end_count - e.front_end_carry_ns, 0)


@compiled()
def enter_front_end(e: Engine, now_ns: int) -> None:
    """Let the next of those that arrived into the front end."""
    _share_work(e, now_ns)
    q = request_at(e, arrived_of(e)[e.entered_count])
    q.front_end_ns = e.front_end_share_ns + int(e.request_ns + e.prompt_token_ns * q.prompt + 0.5)
    child = e.front_end_count
    while child > 0:
        parent = (child - 1) // 2
        if not _before(e, e.entered_count, front_end_of(e)[parent]):
            break
        front_end_of(e)[child] = front_end_of(e)[parent]
        child = parent
    front_end_of(e)[child] = e.entered_count
    e.front_end_count += 1
    e.entered_count += 1


@compiled()
def leave_front_end(e: Engine, now_ns: int) -> int:
    """Take the request that is done out of the front end and return it."""
    _share_work(e, now_ns)
    first = front_end_of(e)[0]
    e.front_end_count -= 1
    last = front_end_of(e)[e.front_end_count]
    parent, child = 0, 1
    while child < e.front_end_count:
        if child + 1 < e.front_end_count and _before(e, front_end_of(e)[child + 1], front_end_of(e)[child]):
            child += 1
        if not _before(e, front_end_of(e)[child], last):
            break
        front_end_of(e)[parent] = front_end_of(e)[child]
        parent, child = child, 2 * child + 1
    front_end_of(e)[parent] = last
    return arrived_of(e)[first]


@compiled()
def _share_work(e: Engine, now_ns: int) -> None:
    """Share the time since the last change among those in the front end."""
    if e.front_end_count > 0:
        time_ns = now_ns - e.front_end_now_ns + e.front_end_carry_ns
        e.front_end_share_ns += time_ns // e.front_end_count
        e.front_end_carry_ns = time_ns % e.front_end_count
    else:
        e.front_end_carry_ns = 0
    e.front_end_now_ns = now_ns


@compiled(inline=True)
def _done_at(e: Engine, place: int) -> int:
    """Return the share at which the request at a place of `arrived` is done."""
    return request_at(e, arrived_of(e)[place]).front_end_ns


@compiled(inline=True)
def _before(e: Engine, one: int, other: int) -> bool:
    """Return whether the request at one place of `arrived` is done before another; at a tie, who came first
    is.
    """
    a, b = _done_at(e, one), _done_at(e, other)
    return a < b or (a == b and one < other)
