"""What the stages of a step occupy, under SimPy."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import simpy
from simpy.events import NORMAL


class Occupation(simpy.Event):
    """One stage on its resource; the event is its end.

    It begins once all events `before` it are over, which is at once when they are over already.
    """

    def __init__(
        self,
        env: simpy.Environment,
        duration_ns: int,
        before: Iterable[simpy.Event],
        begins: Callable[[int], None] | None,
    ) -> None:
        super().__init__(env)
        self.duration_ns, self.begins, self.missing = duration_ns, begins, 0
        for event in before:
            if event.callbacks is not None:  # it is still to come
                event.callbacks.append(self._one_is_over)
                self.missing += 1
        if not self.missing:
            self._begin()

    def _one_is_over(self, event: simpy.Event) -> None:
        self.missing -= 1
        if not self.missing:
            self._begin()

    def _begin(self) -> None:
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
        before = [event for event in (self.newest, after) if event is not None]
        self.newest = Occupation(self.env, duration_ns, before, begins)
        return self.newest
