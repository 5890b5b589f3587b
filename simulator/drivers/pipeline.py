"""The simulator: traffic, clients, a router and engines as SimPy processes.

Who waits for what, in the order it happens:

- the *traffic* waits for the next arrival that is known, and sends a client;
- a *client* asks the router for a replica and hands its request over. It waits for the answer, or for as long
  as it has patience; then until it asks again;
- the *engines* leap: in compiled code they decide one after another as far as nothing else can happen, and
  wait for what happens then. An engine whose stages are watched, or whose scheduler decides in Python, makes
  the same decisions one at a time, and waits for the stages between them on their resources.

At one instant results come first, then patience ends, then requests arrive by number, then engines schedule
(docs/step.md §5).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import numpy as np
import simpy
from simpy.events import NORMAL, EventPriority

from simulator.drivers.leap import leap
from simulator.drivers.resources import Resource
from simulator.drivers.routing import Route
from simulator.scheduling import BoundaryHook
from simulator.step.clients import NO_REQUEST
from simulator.step.entry import bring_queues_up_to, decide, deliver, next_request
from simulator.step.state import NEVER, PRICED, RESOURCES, SCHEDULE, START, UPDATE, WAIT, State

RESULTS, PATIENCE, ARRIVAL, DECISION = (EventPriority(rank) for rank in (NORMAL, 2, 3, NEVER))
"""SimPy priorities: the order of what falls on one instant. Arrivals add the number of the request."""

Process = Generator[simpy.Event, Any, None]


class TimelineStage(NamedTuple):
    """One stage of one step on the timeline."""

    replica: int
    name: str
    """host | verify | accept | draft"""
    start_ns: int
    end_ns: int
    step: int
    requests: int
    tokens: int


def happen(event: simpy.Event, delay_ns: int, priority: EventPriority) -> simpy.Event:
    """Let an event happen after `delay_ns`, after all of a higher priority at that instant.

    `Event.succeed` knows no delay, and `Environment.timeout` no priority.
    """
    event._ok, event._value = True, None
    event.env.schedule(event, priority, delay_ns)
    return event


class Simulation:
    """Engines and the clients that use them.

    `states`: one per replica, which share requests and clients. Where one engine binds its clients, their
    rules are data of that engine, and the run is one leap. `stage_by_stage`: the engines do not leap.
    `hooks`: of each replica, what decides in Python at its step boundaries.
    """

    def __init__(
        self,
        states: Sequence[State],
        route: Route | None = None,
        *,
        stage_by_stage: bool = False,
        timeline: list[TimelineStage] | None = None,
        hooks: Sequence[Sequence[BoundaryHook]] = (),
    ) -> None:
        self.env = simpy.Environment()
        self.states, self.route = states, route
        self.answers: dict[int, simpy.Event] = {}
        self.outstanding = [0] * len(states)
        self.engines: list[EngineProcess] = []
        if route is not None:
            self.env.process(self._traffic())
        if stage_by_stage:
            self.engines = [
                EngineProcess(self, index, timeline, hooks[index] if hooks else ())
                for index in range(len(states))
            ]
        else:
            self.env.process(self._leap())

    def run(self) -> None:
        """Run until nothing is left to do."""
        self.env.run()

    @property
    def now_ns(self) -> int:
        """The clock. It only ever moves by whole nanoseconds, which SimPy cannot know."""
        return int(self.env.now)

    def moment(self, delay_ns: int, priority: EventPriority) -> simpy.Event:
        """Return an event after `delay_ns` that comes after all of a higher priority at that instant."""
        return happen(simpy.Event(self.env), delay_ns, priority)

    def _traffic(self) -> Process:
        """Send a client for every request whose arrival is known."""
        known = self.states[0].known_arrivals
        times = self.states[0].requests["arrival_ns"][known]
        for request, arrival_ns in zip(known.tolist(), times.tolist(), strict=True):
            yield self.moment(arrival_ns - self.now_ns, EventPriority(ARRIVAL + request))
            self.env.process(self._client(request))

    def _client(self, request: int) -> Process:
        """Ask, wait for the answer, think, and ask again, until there is nothing left to ask."""
        env = self.env
        assert self.route is not None
        while request != NO_REQUEST:
            replica = self.route(request, self.outstanding)
            patient_until_ns = self._deliver(replica, request)
            if patient_until_ns > self.now_ns:
                self.outstanding[replica] += 1
                answer = self.answers[request] = env.event()
                if patient_until_ns == NEVER:
                    yield answer
                else:
                    yield answer | self.moment(patient_until_ns - self.now_ns, PATIENCE)
                    self.answers.pop(request, None)
                self.outstanding[replica] -= 1
            request, arrival_ns = next_request(self.states[0].engine, request, self.now_ns)
            if request != NO_REQUEST:
                yield self.moment(arrival_ns - self.now_ns, EventPriority(ARRIVAL + request))

    def _deliver(self, replica: int, request: int) -> int:
        """Hand a request to a replica; return until when its client waits at most."""
        patient_until_ns: int = deliver(self.states[replica].engine, request, self.now_ns)
        if self.engines:
            self.engines[replica].look()
        return patient_until_ns

    def answer(self, ended: int, at_ns: int) -> None:
        """Let the clients of the newest `ended` requests have their answers at `at_ns`."""
        for request in self.states[0].ended[:ended].tolist():
            answer = self.answers.pop(request, None)
            if answer is not None:
                happen(answer, at_ns - self.now_ns, RESULTS)

    def _leap(self) -> Process:
        """Take all engines together as far as nothing else can happen, again and again.

        They leap together, because one engine alone could not know whether a client that another one answers
        comes to it next.
        """
        env = self.env
        addresses = np.array([state.engine.ctypes.data for state in self.states])
        reached_ns = 0
        while reached_ns < NEVER:
            yield self.moment(reached_ns - self.now_ns, DECISION)
            # the next event is one of the traffic or of a client: engines that leap have no other
            horizon_ns = int(min(env.peek(), NEVER))
            reached_ns, ended = leap(addresses, horizon_ns)
            if ended:
                self.answer(ended, reached_ns)


class EngineProcess:
    """One replica that goes stage by stage: the decisions of a leap, and their stages on resources."""

    def __init__(
        self,
        simulation: Simulation,
        index: int,
        timeline: list[TimelineStage] | None,
        hooks: Sequence[BoundaryHook],
    ) -> None:
        self.simulation, self.index, self.state = simulation, index, simulation.states[index]
        self.env = simulation.env
        self.timeline, self.hooks = timeline, hooks
        self.scheduler = Resource(self.env)
        self.resources = [Resource(self.env) for _ in range(RESOURCES)]
        self.stages = [
            (price, self.resources[resource], after)
            for price, resource, after in self.state.stages[["price", "resource", "after"]].tolist()
        ]
        self.arrival = self.env.event()
        self.env.process(self._run())

    def look(self) -> None:
        """Something has been delivered."""
        if not self.arrival.triggered:
            self.arrival.succeed()

    def _run(self) -> Process:
        """Wait for what the next decision needs, decide, and queue the stages that follow from it.

        A leap reads the same times off the clocks of the compiled step. Here they come out of the waiting.
        """
        env, engine = self.env, self.state.engine
        results_after, next_step_after = (
            int(engine[0][f"{name}_after"]) for name in ("results", "next_step")
        )
        schedules_ahead, address = bool(engine[0]["asynchronous"]), engine.ctypes.data
        phase, due_ns = SCHEDULE, 0
        results = next_step = prepared = happen(env.event(), 0, RESULTS)
        while True:
            if phase == UPDATE:
                yield results
            else:
                if phase == WAIT:
                    yield self._something_comes(due_ns)
                yield next_step
                yield prepared
                # Whoever arrives at this instant can still be scheduled.
                yield self.simulation.moment(0, DECISION)
                if self.hooks and (phase != START or schedules_ahead):
                    bring_queues_up_to(engine, int(env.now))
                    for hook in self.hooks:
                        hook(self.state, int(env.now))
            now_ns, decided = int(env.now), phase
            phase, due_ns, ended, hidden_ns, *stages_ns = decide(address, now_ns)
            if hidden_ns:  # of the step that has been scheduled
                note = None if self.timeline is None else self._note("host_ns", scheduled=True)
                prepared = self.scheduler.occupy(hidden_ns, None, note)
            if decided == START:
                ends = self._occupy(stages_ns)
                results, next_step = ends[results_after], ends[next_step_after]
            if ended:
                self.simulation.answer(ended, now_ns)

    def _something_comes(self, due_ns: int) -> simpy.Event:
        """Return the next delivery, or the next event on the way of what was delivered before."""
        self.arrival = self.env.event()
        if due_ns == NEVER:
            return self.arrival
        return self.arrival | self.simulation.moment(due_ns - self.simulation.now_ns, DECISION)

    def _occupy(self, stages_ns: Sequence[int]) -> list[simpy.Event]:
        """Queue the stages of the step that starts now for their resources; return their ends."""
        ends: list[simpy.Event] = []
        for price, resource, after in self.stages:
            duration_ns = stages_ns[price] if price >= 0 else 0
            note = self._note(PRICED[price]) if duration_ns and self.timeline is not None else None
            ends.append(resource.occupy(duration_ns, ends[after] if after >= 0 else None, note))
        return ends

    def _note(self, price: str, scheduled: bool = False) -> Callable[[int], None]:
        """Return what notes a stage that lasts one of `PRICED` on the timeline as it begins: a stage of the
        step that starts, or of the one that was `scheduled` last.
        """
        engine, timeline = self.state.engine[0], self.timeline
        assert timeline is not None
        plan = self.state.plans[engine["slot"] ^ (scheduled and engine["ahead"] > 0)]
        name = price.removesuffix("_ns")
        step, requests, tokens = (int(plan[field]) for field in ("number", "entries", "tokens"))

        def begins(duration_ns: int) -> None:
            now_ns = self.simulation.now_ns
            timeline.append(
                TimelineStage(self.index, name, now_ns, now_ns + duration_ns, step, requests, tokens)
            )

        return begins
