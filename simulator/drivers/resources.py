"""What the stages of a step occupy, under SimPy."""

from __future__ import annotations

from collections.abc import Callable

import simpy
from simpy.events import NORMAL


class Occupation(simpy.Event):
    """One stage on its resource; the event is its end. It begins with the event `before` it, or now."""

    def __init__(
        self,
        env: simpy.Environment,
        duration_ns: int,
        before: simpy.Event | None,
        begins: Callable[[int], None] | None,
    ) -> None:
        self.env, self.callbacks = env, []  # as `simpy.Timeout` does: a call of its own would cost more
        self.duration_ns, self.begins = duration_ns, begins
        if before is None or before.callbacks is None:  # it is over
            self._begin()
        else:
            before.callbacks.append(self._begin)

    def _begin(self, _: simpy.Event | None = None) -> None:
        if self.begins is not None:
            self.begins(self.duration_ns)
        self._ok, self._value = True, None
        self.env.schedule(self, NORMAL, self.duration_ns)


class Resource:
    """Serves one stage at a time, in the order in which they queue.

    `simpy.Resource` with a capacity of one would do the same. It takes a request and a release, and so two
    more events for every stage; and a stage would have to hold its place while it waits for another one. Here
    a stage simply comes after the newest one in the queue.
    """

    def __init__(self, env: simpy.Environment) -> None:
        self.env = env
        self.newest: simpy.Event | None = None

    def occupy(
        self, duration_ns: int, after: simpy.Event | None, begins: Callable[[int], None] | None = None
    ) -> simpy.Event:
        """Queue a stage that comes `after` an event; return its end. `begins` is called with its duration."""
        newest = self.newest
        if newest is None or newest is after or newest.callbacks is None:
            before = newest if after is None else after
        elif after is None or after.callbacks is None:
            before = newest
        else:
            before = newest & after
        if duration_ns or before is None:
            before = Occupation(self.env, duration_ns, before, begins)
        self.newest = before  # without a duration, a stage ends as it may begin
        return before
