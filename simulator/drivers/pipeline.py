"""The simulator: engines, clients and a router as SimPy processes,
each stage of a step occupied for its priced time.

Everything with a clock of its own is a process: the traffic, a client with its patience, an engine whose host
works ahead of its GPU. Ties at one instant are results, then give-ups, then arrivals in request order, then
compose (docs/step.md §5).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import numpy as np
import simpy
from simpy.events import EventPriority

from simulator.scheduling import BoundaryHook
from simulator.step.entry import (
    ScheduledStep,
    bring_queues_up_to,
    deliver,
    next_event,
    price_step,
    schedule_step,
    update_step,
)
from simulator.step.state import CANCELLED, DONE, NEVER, NO_STEP, State

GIVE_UP, ARRIVAL, COMPOSE = 2, 3, 4
"""SimPy priorities after NORMAL (1), at which results are applied."""

Process = Generator[simpy.Event, Any, None]
Route = Callable[[int, Sequence[int]], int]
"""From a request and the requests outstanding per replica to the replica that serves it."""


class Stage(NamedTuple):
    """One stage of one step on the timeline."""

    replica: int
    name: str
    """host | verify | accept | draft"""
    start_ns: int
    end_ns: int
    step: int
    requests: int
    tokens: int


class _Moment(simpy.Event):
    """An event after `delay` ns that comes after all events of higher priority at the same instant."""

    def __init__(self, env: simpy.Environment, delay_ns: int, priority: int) -> None:
        super().__init__(env)
        self._ok = True
        self._value = None
        env.schedule(self, EventPriority(priority), delay_ns)


class _Engine:
    """One replica: its state and the process that runs its steps."""

    def __init__(
        self,
        env: simpy.Environment,
        index: int,
        state: State,
        finish: Callable[[int], None],
        timeline: list[Stage] | None,
        at_step_boundary: BoundaryHook | None,
    ) -> None:
        self.env, self.index, self.state, self.finish = env, index, state, finish
        self.timeline, self.at_step_boundary = timeline, at_step_boundary
        self.arrival = env.event()
        self.asynchronous = bool(state.engine[0]["asynchronous"])
        self.emits_early = bool(state.engine[0]["emits_before_drafting"])
        env.process(self._run())

    def take(self, request: int) -> None:
        """Let a request arrive now."""
        deliver(self.state.engine, request, int(self.env.now))
        if not self.arrival.triggered:
            self.arrival.succeed()

    def _run(self) -> Process:
        env, slot = self.env, 0
        while True:
            yield _Moment(env, 0, COMPOSE)
            plan = self._schedule(slot, NO_STEP, 0)
            if not plan.entries:
                if not plan.preempted:
                    yield self._something_comes()
                continue
            if plan.hidden_ns:
                yield self._occupy("host", plan.hidden_ns, plan)
            while plan.entries:
                host_ns, verify_ns, accept_ns, draft_ns = price_step(self.state.engine, slot, int(env.now))
                following, host_ahead = _NOTHING, None
                if self.asynchronous:
                    yield _Moment(env, 0, COMPOSE)
                    following = self._schedule(1 - slot, plan.number, plan.draft_length)
                    if following.entries:
                        host_ahead = self._occupy("host", following.hidden_ns, following)
                if host_ns:
                    yield self._occupy("host", host_ns, plan)
                if verify_ns:
                    yield self._occupy("verify", verify_ns, plan)
                if accept_ns:
                    yield self._occupy("accept", accept_ns, plan)
                if self.emits_early:
                    self._update(slot)
                if draft_ns:
                    yield self._occupy("draft", draft_ns, plan)
                if not self.emits_early:
                    self._update(slot)
                if host_ahead is not None:
                    yield host_ahead
                slot, plan = 1 - slot, following

    def _something_comes(self) -> simpy.Event:
        """Return the next arrival, or the next event on the way of those that arrived."""
        self.arrival = self.env.event()
        event_ns = next_event(self.state.engine)
        if event_ns >= NEVER:
            return self.arrival
        return self.arrival | _Moment(self.env, max(event_ns - int(self.env.now), 0), ARRIVAL)

    def _schedule(self, slot: int, in_flight_step: int, in_flight_draft_length: int) -> ScheduledStep:
        now_ns = int(self.env.now)
        if self.at_step_boundary is not None:
            bring_queues_up_to(self.state.engine, now_ns)
            self.at_step_boundary(self.state, now_ns)
        scheduled_step: ScheduledStep = schedule_step(
            self.state.engine, slot, now_ns, in_flight_step, in_flight_draft_length
        )
        return scheduled_step

    def _occupy(self, name: str, duration_ns: int, plan: ScheduledStep) -> simpy.Event:
        """Return the end of a stage that begins now."""
        if self.timeline is not None and duration_ns > 0:
            now_ns = int(self.env.now)
            self.timeline.append(
                Stage(self.index, name, now_ns, now_ns + duration_ns, plan.number, plan.entries, plan.tokens)
            )
        return self.env.timeout(duration_ns)

    def _update(self, slot: int) -> None:
        ended = update_step(self.state.engine, slot, int(self.env.now))
        for request in self.state.ended[:ended].tolist() if ended else ():
            if self.state.requests[request]["status"] in (DONE, CANCELLED):
                self.finish(request)


_NOTHING = ScheduledStep(0, 0, 0, 0, 0, 0)


class Traffic(NamedTuple):
    """What the processes around the engines need to know of the requests."""

    arrival_ns: np.ndarray[Any, np.dtype[np.int64]]
    successor: np.ndarray[Any, np.dtype[np.int64]]
    successor_delay_ns: np.ndarray[Any, np.dtype[np.int64]]
    think_time_ns: int
    timeout_ns: int


class Pipeline:
    """Engines behind a router, and the clients that use them."""

    def __init__(
        self,
        states: Sequence[State],
        traffic: Traffic,
        route: Route,
        timeline: list[Stage] | None = None,
        at_step_boundary: BoundaryHook | None = None,
    ) -> None:
        self.env = simpy.Environment()
        self.traffic, self.route = traffic, route
        self.outstanding = [0] * len(states)
        self.answered: dict[int, simpy.Event] = {}
        self.cannot_run = states[0].requests["cannot_run"]
        self.engines = [
            _Engine(self.env, index, state, self._finish, timeline, at_step_boundary)
            for index, state in enumerate(states)
        ]
        waits = traffic.arrival_ns < 0
        waits[traffic.successor[traffic.successor >= 0]] = False
        self.unissued = iter(np.flatnonzero(waits).tolist())
        self.env.process(self._arrivals())

    def run(self, until_ns: int | None = None) -> None:
        """Run until nothing is left to do, or until a time."""
        self.env.run(until_ns)

    def _arrivals(self) -> Process:
        """The requests whose arrivals are known."""
        known = np.flatnonzero(self.traffic.arrival_ns >= 0)
        times = self.traffic.arrival_ns[known]
        order = np.argsort(times, kind="stable")
        for request, arrival_ns in zip(known[order].tolist(), times[order].tolist(), strict=True):
            yield _Moment(self.env, arrival_ns - self.env.now, ARRIVAL)
            self.env.process(self._client(request))

    def _client(self, request: int) -> Process:
        """One client from one request on: it waits, thinks, and asks again,
        until there is nothing left to ask.
        """
        while True:
            replica = self.route(request, self.outstanding)
            self.engines[replica].take(request)
            if not self.cannot_run[request]:
                yield from self._wait(request, replica)
            successor = int(self.traffic.successor[request])
            delay_ns = self.traffic.think_time_ns
            if successor >= 0:
                delay_ns = int(self.traffic.successor_delay_ns[request])
            request = successor if successor >= 0 else next(self.unissued, -1)
            if request < 0:
                return
            yield _Moment(self.env, delay_ns, ARRIVAL)

    def _wait(self, request: int, replica: int) -> Process:
        self.outstanding[replica] += 1
        answer = self.answered[request] = self.env.event()
        if self.traffic.timeout_ns < NEVER:
            yield answer | _Moment(self.env, self.traffic.timeout_ns, GIVE_UP)
            self.answered.pop(request, None)
        else:
            yield answer
        self.outstanding[replica] -= 1

    def _finish(self, request: int) -> None:
        answer = self.answered.pop(request, None)
        if answer is not None:
            answer.succeed()
