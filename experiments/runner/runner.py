"""The one driver of many tasks over `concurrent.futures`: the same for local processes and a cluster.

Tasks are sent in groups that last a fifth of a second, a few groups per worker at a time, and every result is
handed over as it arrives. When a worker dies, the tasks that may have killed it are run one by one with
nothing beside them; what kills its worker again is a failure, and the rest goes on.
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

from experiments.runner.pools import WHY_WORKERS_DIE, Pool
from experiments.runner.worker import Outcome
from simulator.errors import InputError

T = TypeVar("T")
R = TypeVar("R")

TASK_S = 0.2
"""Seconds that a group of tasks should last: sending one costs a cluster 5 to 10 ms."""
MOST_IN_GROUP = 256
_SEEN = 15
"""Groups whose pace counts: the median forgets the first ones, which compile."""

DEATHS = 2
"""Deaths of its worker, with nothing beside it, after which a task is given up."""
_DEATHS_OF_NOBODY = 5
"""Deaths in a row of workers that ran nothing: they cannot start."""
_CHECK_S = 1.0
"""Seconds between looks at whether the pool is alive."""


class _Group(NamedTuple, Generic[T]):
    tasks: list[T]
    berth: int


def run_tasks(
    run: Callable[[T], R],
    tasks: Iterable[T],
    pool: Pool,
    on_result: Callable[[T, R], None],
    on_failure: Callable[[T, str], None],
) -> None:
    """Run every task once, in any order, and hand each result over on arrival, in this thread.

    `run` is a function of a module, tasks and results can be pickled; tasks are taken from the iterable as
    they are needed. `on_failure` gets the task and one line: its exception, or that it kills its worker. What
    the callbacks raise ends the run. Raises InputError when the pool is lost.
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
        self.again: deque[T] = deque()
        """Tasks whose group was lost through no fault of theirs, or took too long."""
        self.suspects: deque[T] = deque()
        """Tasks that may have killed their worker."""
        self.in_flight: dict[Future[list[Outcome]], _Group[T]] = {}
        self.paces_s: deque[float] = deque(maxlen=_SEEN)
        self.deaths_of_nobody = 0
        self.checked_s = time.monotonic()

    def drive(self) -> None:
        """Run until nothing is left."""
        while True:
            if self.suspects and not self.in_flight:
                self._isolate()
            if not self.suspects:
                self._fill()
            if self.in_flight:
                self._collect()
            elif not self.suspects and not self.again:
                return

    def _fill(self) -> None:
        """Send groups until the window is full or no task is left."""
        berths = set(range(self.pool.berths)) - {group.berth for group in self.in_flight.values()}
        while berths and (tasks := self._next_tasks()):
            group = _Group(tasks, berths.pop())
            try:
                self.in_flight[self.pool.submit(self.run, tasks, group.berth)] = group
            except BrokenExecutor:
                self.again.extend(tasks)
                if not self.in_flight:  # else they tell, and whom to suspect
                    self._mend([])
                return

    def _next_tasks(self) -> list[T]:
        size = 1
        if self.paces_s:
            size = min(MOST_IN_GROUP, math.ceil(TASK_S / max(median(self.paces_s), 1e-6)))
        tasks = [self.again.popleft() for _ in range(min(size, len(self.again)))]
        return tasks or list(islice(self.tasks, size))

    def _collect(self) -> None:
        """Wait a moment for groups to end; hand their results over, or mend what broke."""
        ended, _ = wait(self.in_flight, _CHECK_S, FIRST_COMPLETED)
        if any(_broke(future) for future in ended):
            ended, _ = wait(self.in_flight)  # a broken pool ends them all at once
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
            else:  # a cluster gave it up after several workers died, or what it made cannot be sent
                self.suspects.extend(group.tasks)
        if cancelled:
            raise self.pool.lost()
        if dead:
            self._mend(dead)
        if time.monotonic() - self.checked_s > _CHECK_S:
            self.pool.check()
            self.checked_s = time.monotonic()

    def _hand_over(self, tasks: list[T], outcomes: list[Outcome]) -> None:
        """Results to whoever wants them; what a slow group did not come to is done again."""
        self.deaths_of_nobody = 0
        self.again.extend(tasks[len(outcomes) :])
        for task, outcome in zip(tasks, outcomes, strict=False):
            if outcome.error is None:
                self.on_result(task, outcome.value)
            else:
                self.on_failure(task, outcome.error)

    def _mend(self, dead: list[_Group[T]]) -> None:
        """After the death of a worker: fresh ones, and the tasks they were at are suspects."""
        at = [self.pool.was_at(group.berth) for group in dead]
        for group, index in zip(dead, at, strict=True):
            self.again.extend(task for place, task in enumerate(group.tasks) if place != index)
            if index is not None:
                self.suspects.append(group.tasks[index])
        self._count_death(of_somebody=bool(self.suspects))
        self.pool.renew()

    def _count_death(self, of_somebody: bool) -> None:
        self.deaths_of_nobody = 0 if of_somebody else self.deaths_of_nobody + 1
        if self.deaths_of_nobody >= _DEATHS_OF_NOBODY:
            raise InputError(
                "worker processes die as they start: is there memory, and does the script "
                'that starts them keep its work under `if __name__ == "__main__":`?'
            )

    def _isolate(self) -> None:
        """Run the suspects one by one, with nothing beside them."""
        with self.pool.alone() as lone:
            while self.suspects:
                task = self.suspects.popleft()
                outcome = self._alone(lone, task)
                self._hand_over([task], [outcome])

    def _alone(self, lone: Pool, task: T) -> Outcome:
        deaths = 0
        while deaths < DEATHS:
            try:
                future = lone.submit(self.run, [task], 0)
                while not wait([future], _CHECK_S).done:
                    lone.check()
                if future.cancelled():
                    raise lone.lost()
                return future.result()[0]
            except BrokenExecutor:
                started = lone.was_at(0) is not None
                deaths += started
                self._count_death(of_somebody=started)
                lone.renew()
            except InputError:
                raise
            except Exception as error:
                return Outcome(None, lone.failure(error), 0.0)
        times = f"its worker process died {DEATHS} times with nothing beside it"
        return Outcome(None, f"{times}: {WHY_WORKERS_DIE}", 0.0)


def _broke(future: Future[list[Outcome]]) -> bool:
    return not future.cancelled() and isinstance(future.exception(), BrokenExecutor)
