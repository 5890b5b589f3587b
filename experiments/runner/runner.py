"""The one driver of many tasks over `concurrent.futures`: the same for local processes and a cluster.

Tasks are sent in groups that last a fifth of a second, a few groups per worker at a time. Every result is
passed on as it arrives. When a worker dies, the tasks that may have killed it run one by one on an otherwise
idle worker. A task that kills this worker too is a failure, and the other tasks continue.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from itertools import islice
from statistics import median
from typing import Generic, NamedTuple, TypeVar

from experiments.runner.pools import DEATH_CAUSES, Pool
from experiments.runner.worker import TaskOutcome
from simulator.errors import InputError

T = TypeVar("T")
R = TypeVar("R")

TASK_S = 0.2
"""Seconds that a group of tasks should last: sending one costs a cluster 5 to 10 ms."""
MAX_GROUP_TASKS = 256
_PACES_KEPT = 15
"""Recent groups whose pace counts, so that the first ones, which compile, drop out."""

MAX_DEATHS = 2
"""Deaths of a worker that runs only this task, after which the task is a failure."""
_IDLE_DEATHS = 5
"""Successive deaths of workers that ran no task, after which workers are taken to be unable to start."""
_CHECK_S = 1.0
"""Seconds between checks that the pool is alive."""


class _Group(NamedTuple, Generic[T]):
    tasks: list[T]
    slot: int


def run_tasks(
    run: Callable[[T], R],
    tasks: Iterable[T],
    pool: Pool,
    on_result: Callable[[T, R], None],
    on_failure: Callable[[T, str], None],
) -> None:
    """Run every task once, in any order, and call `on_result` in this thread as each result arrives.

    `run` is a function of a module; tasks and results can be pickled. Tasks are taken from the iterable as
    needed. `on_failure` gets the task and one line: its exception, or that it kills its worker. Exceptions of
    the callbacks end the run. Raises InputError when the pool is lost.
    """
    _Driver(run, iter(tasks), pool, on_result, on_failure).drive()


class _Driver(Generic[T, R]):
    def __init__(
        self,
        run: Callable[[T], R],
        tasks: Iterator[T],
        pool: Pool,
        on_result: Callable[[T, R], None],
        on_failure: Callable[[T, str], None],
    ) -> None:
        self.run, self.tasks, self.pool = run, tasks, pool
        self.on_result, self.on_failure = on_result, on_failure
        self.retries: deque[T] = deque()
        """Tasks to run again: their group was lost with another task, or took too long."""
        self.suspects: deque[T] = deque()
        """Tasks that may have killed their worker."""
        self.in_flight: dict[Future[list[TaskOutcome]], _Group[T]] = {}
        self.paces_s: deque[float] = deque(maxlen=_PACES_KEPT)
        self.idle_deaths = 0
        self.checked_s = time.monotonic()

    def drive(self) -> None:
        """Run until no task is left."""
        while True:
            if self.suspects and not self.in_flight:
                self._isolate()
            if not self.suspects:
                self._fill()
            if self.in_flight:
                self._collect()
            elif not self.suspects and not self.retries:
                return

    def _fill(self) -> None:
        """Send groups until the window is full or no task is left."""
        slots = set(range(self.pool.slots)) - {group.slot for group in self.in_flight.values()}
        while slots and (tasks := self._next_tasks()):
            group = _Group(tasks, slots.pop())
            try:
                self.in_flight[self.pool.submit(self.run, tasks, group.slot)] = group
            except BrokenExecutor:
                self.retries.extend(tasks)
                if not self.in_flight:  # otherwise the groups in flight report it, with the suspects
                    self._replace_workers([])
                return

    def _next_tasks(self) -> list[T]:
        size = 1
        if self.paces_s:
            size = min(MAX_GROUP_TASKS, math.ceil(TASK_S / max(median(self.paces_s), 1e-6)))
        tasks = [self.retries.popleft() for _ in range(min(size, len(self.retries)))]
        return tasks or list(islice(self.tasks, size))

    def _collect(self) -> None:
        """Wait briefly for groups to end; pass their results on, or replace dead workers."""
        ended, _ = wait(self.in_flight, _CHECK_S, FIRST_COMPLETED)
        if any(_is_broken(future) for future in ended):
            ended, _ = wait(self.in_flight)  # a broken pool ends all of them
        dead: list[_Group[T]] = []
        cancelled = False
        for future in ended:
            group = self.in_flight.pop(future)
            if future.cancelled():
                cancelled = True
            elif (error := future.exception()) is None:
                outcomes = future.result()
                self.paces_s.append(sum(outcome.seconds_s for outcome in outcomes) / len(outcomes))
                self._hand_over(group.tasks, outcomes)
            elif isinstance(error, BrokenExecutor):
                dead.append(group)
            elif isinstance(error, InputError):
                raise error
            else:  # a cluster dropped it after several workers died, or its result cannot be pickled
                self.suspects.extend(group.tasks)
        if cancelled:
            raise self.pool.lost()
        if dead:
            self._replace_workers(dead)
        if time.monotonic() - self.checked_s > _CHECK_S:
            self.pool.check()
            self.checked_s = time.monotonic()

    def _hand_over(self, tasks: list[T], outcomes: list[TaskOutcome]) -> None:
        """Pass results on; tasks that a slow group did not reach run again."""
        self.idle_deaths = 0
        self.retries.extend(tasks[len(outcomes) :])
        for task, outcome in zip(tasks, outcomes, strict=False):
            if outcome.error is None:
                self.on_result(task, outcome.value)
            else:
                self.on_failure(task, outcome.error)

    def _replace_workers(self, dead: list[_Group[T]]) -> None:
        """Start new workers after a death. The tasks that were running are suspects."""
        indices = [self.pool.interrupted_task(group.slot) for group in dead]
        for group, index in zip(dead, indices, strict=True):
            self.retries.extend(task for place, task in enumerate(group.tasks) if place != index)
            if index is not None:
                self.suspects.append(group.tasks[index])
        self._count_death(of_task=bool(self.suspects))
        self.pool.renew()

    def _count_death(self, of_task: bool) -> None:
        self.idle_deaths = 0 if of_task else self.idle_deaths + 1
        if self.idle_deaths >= _IDLE_DEATHS:
            raise InputError(
                "worker processes die as they start: is there memory, and does the script "
                'that starts them keep its work under `if __name__ == "__main__":`?'
            )

    def _isolate(self) -> None:
        """Run the suspects one by one on an otherwise idle worker."""
        with self.pool.alone() as single_worker:
            while self.suspects:
                task = self.suspects.popleft()
                outcome = self._run_alone(single_worker, task)
                self._hand_over([task], [outcome])

    def _run_alone(self, pool: Pool, task: T) -> TaskOutcome:
        deaths = 0
        while deaths < MAX_DEATHS:
            try:
                future = pool.submit(self.run, [task], 0)
                while not wait([future], _CHECK_S).done:
                    pool.check()
                if future.cancelled():
                    raise pool.lost()
                return future.result()[0]
            except BrokenExecutor:
                was_running = pool.interrupted_task(0) is not None
                deaths += was_running
                self._count_death(of_task=was_running)
                pool.renew()
            except InputError:
                raise
            except Exception as error:
                return TaskOutcome(None, pool.failure(error), 0.0)
        message = f"its worker process died {MAX_DEATHS} times although it ran nothing else"
        return TaskOutcome(None, f"{message}: {DEATH_CAUSES}", 0.0)


def _is_broken(future: Future[list[TaskOutcome]]) -> bool:
    return not future.cancelled() and isinstance(future.exception(), BrokenExecutor)
