"""The driver: every task once, in whatever order workers die; what kills its worker costs only itself."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.runner import runner, worker
from experiments.runner.pools import Pool
from experiments.runner.runner import run_tasks
from experiments.runner.worker import TaskOutcome, run_group
from simulator.errors import InputError


class FragilePool(Pool):
    """Workers of this process that die of some tasks, and by bad luck; groups end in random order."""

    def __init__(self, seed: int, killers: frozenset[int], kill_rate: float, *, lone: bool = False) -> None:
        self.workers = 1 if lone else 3
        self.random, self.killers, self.kill_rate, self.lone = random.Random(seed), killers, kill_rate, lone
        self.pending: list[tuple[Future[list[TaskOutcome]], Callable[[Any], Any], list[int], int]] = []
        self.marks: dict[int, int] = {}
        self.broken = False

    def submit(self, run: Callable[[Any], Any], tasks: Sequence[Any], slot: int) -> Future[list[TaskOutcome]]:
        if self.broken:
            raise BrokenProcessPool
        assert slot not in {entry[3] for entry in self.pending}, "two groups at one slot"
        future: Future[list[TaskOutcome]] = Future()
        self.marks.pop(slot, None)
        self.pending.append((future, run, list(tasks), slot))
        if len(self.pending) == self.slots or self.lone or self.random.random() < 0.3:
            self.work()
        return future

    def check(self) -> None:
        while self.pending and not self.broken:
            self.work()

    def work(self) -> None:
        """End one group, or all of them when its worker dies."""
        future, run, tasks, slot = self.pending.pop(self.random.randrange(len(self.pending)))
        unlucky = self.random.random() < self.kill_rate
        for index, task in enumerate(tasks):
            if task in self.killers or (unlucky and index == len(tasks) // 2):
                self.marks[slot] = index
                self.broken = True
                for dead, *_ in [(future,), *self.pending]:
                    dead.set_exception(BrokenProcessPool())
                self.pending.clear()
                return
        future.set_result(run_group(run, tasks, slot))

    def interrupted_task(self, slot: int) -> int | None:
        return self.marks.get(slot)

    def renew(self) -> None:
        assert self.broken
        self.broken = False
        self.marks.clear()

    def alone(self) -> AbstractContextManager[Pool]:
        assert not self.pending, "a suspect would not be alone"
        return nullcontext(
            FragilePool(self.random.randrange(1 << 30), self.killers, self.kill_rate / 2, lone=True)
        )


def double(number: int) -> int:
    if number % 7 == 3:
        raise ValueError(f"no {number}")
    return 2 * number


def results_of(
    tasks: Iterator[int] | range, pool: Pool
) -> tuple[dict[int, int], dict[int, str], Counter[int]]:
    """(task → result, task → failure, task → how often anything came of it)."""
    done: dict[int, int] = {}
    failed: dict[int, str] = {}
    times: Counter[int] = Counter()

    def on_result(task: int, value: int) -> None:
        done[task] = value
        times[task] += 1

    def on_failure(task: int, error: str) -> None:
        failed[task] = error
        times[task] += 1

    run_tasks(double, tasks, pool, on_result, on_failure)
    return done, failed, times


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_CHECK_S", 0.0)


@given(
    seed=st.integers(0, 10**6),
    count=st.integers(0, 120),
    killers=st.frozensets(st.integers(0, 119), max_size=4),
    kill_rate=st.sampled_from([0.0, 0.1, 0.4]),
)
def test_every_task_comes_out_once_however_workers_die(
    seed: int, count: int, killers: frozenset[int], kill_rate: float
) -> None:
    done, failed, times = results_of(range(count), FragilePool(seed, killers, kill_rate))
    assert times == Counter(range(count))
    dead = {task for task in killers if task < count}
    assert {task for task in failed if "worker process died" in failed[task]} >= dead
    assert done == {task: 2 * task for task in range(count) if task not in failed}
    if kill_rate == 0:
        raising = {task: f"ValueError: no {task}" for task in range(3, count, 7) if task not in dead}
        assert {task: error for task, error in failed.items() if task not in dead} == raising


def test_tasks_are_taken_as_they_are_needed() -> None:
    pool = FragilePool(1, frozenset(), 0.0)
    taken, ended, ahead = 0, 0, []

    def tasks() -> Iterator[int]:
        nonlocal taken
        for number in range(20_000):
            taken += 1
            ahead.append(taken - ended)
            yield number

    def on_any(task: int, _: object) -> None:
        nonlocal ended
        ended += 1

    run_tasks(double, tasks(), pool, on_any, on_any)
    assert taken == ended == 20_000
    assert max(ahead) <= runner.MAX_GROUP_TASKS * pool.slots


def test_groups_last_at_least_a_tenth_of_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    pool = FragilePool(1, frozenset(), 0.0)

    def noted(run: Callable[[Any], Any], tasks: Sequence[Any], slot: int) -> Future[list[TaskOutcome]]:
        sizes.append(len(tasks))
        done: Future[list[TaskOutcome]] = Future()
        done.set_result([TaskOutcome(0, None, 0.004) for _ in tasks])
        return done

    monkeypatch.setattr(pool, "submit", noted)
    run_tasks(double, range(5000), pool, lambda task, value: None, lambda task, error: None)
    settled = sizes[pool.slots : -1]
    assert min(settled) * 0.004 >= 0.1
    assert max(settled) * 0.004 <= 1.0


def slow_now_and_then(number: int) -> int:
    time.sleep(0.05 if number % 50 > 45 else 0.0)
    return number


def test_a_slow_group_comes_back_with_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long tasks turn out to take, a group ends soon after its limit, and all is done once."""
    monkeypatch.setattr(worker, "LONGEST_GROUP_S", 0.04)
    groups: list[tuple[int, list[TaskOutcome]]] = []

    class Noting(FragilePool):
        def submit(
            self, run: Callable[[Any], Any], tasks: Sequence[Any], slot: int
        ) -> Future[list[TaskOutcome]]:
            future: Future[list[TaskOutcome]] = Future()
            groups.append((len(tasks), run_group(run, tasks, slot)))
            future.set_result(groups[-1][1])
            return future

    done: list[int] = []
    pool = Noting(1, frozenset(), 0.0)
    run_tasks(slow_now_and_then, range(300), pool, lambda task, value: done.append(task), lambda t, e: None)
    assert sorted(done) == list(range(300))
    assert all(sum(outcome.seconds_s >= 0.05 for outcome in outcomes) <= 1 for _, outcomes in groups)
    assert any(len(outcomes) < size for size, outcomes in groups)


def test_what_a_callback_raises_ends_the_run() -> None:
    def full(task: int, value: int) -> None:
        raise InputError("the disk is full")

    with pytest.raises(InputError, match="the disk is full"):
        run_tasks(double, range(50), FragilePool(1, frozenset(), 0.0), full, lambda task, error: None)


def test_workers_that_die_as_they_start_are_given_up() -> None:
    class Stillborn(FragilePool):
        def work(self) -> None:
            self.broken = True
            for future, *_ in self.pending:
                future.set_exception(BrokenProcessPool())
            self.pending.clear()

    with pytest.raises(InputError, match="die as they start"):
        results_of(range(50), Stillborn(1, frozenset(), 0.0))


@pytest.mark.parametrize("message", ["by cancelled groups", "by a check"])
def test_a_lost_pool_keeps_what_had_ended(message: str) -> None:
    """A killed scheduler ends the run, after the groups that are done are handed over."""

    class Lost(FragilePool):
        def submit(
            self, run: Callable[[Any], Any], tasks: Sequence[Any], slot: int
        ) -> Future[list[TaskOutcome]]:
            future: Future[list[TaskOutcome]] = Future()
            if slot < 2:
                future.set_result(run_group(run, tasks, slot))
            elif message == "by cancelled groups":
                future.cancel()
                future.set_running_or_notify_cancel()
            return future

        def check(self) -> None:
            raise self.lost()

    done: list[int] = []
    pool = Lost(3, frozenset(), 0.0)
    with pytest.raises(InputError, match="finished cells are kept"):
        run_tasks(double, range(50), pool, lambda task, value: done.append(task), lambda task, error: None)
    assert len(done) == 2
