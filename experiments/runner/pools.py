"""Pools that run tasks: the interface, and local processes. `dask_pool.py` is the pool of a cluster."""

from __future__ import annotations

import multiprocessing
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from multiprocessing import resource_tracker
from typing import Any

from calibration.workers import for_worker, one_thread_each, usable_cores
from experiments.runner.worker import Marks, TaskOutcome, one_line, run_group, start_worker
from simulator.errors import InputError, Problem

WINDOW = 3
"""Groups of tasks in flight per worker: one runs, the others wait at hand."""

MAX_WORKERS = 1024

DEATH_CAUSES = "killed for memory, or a crash in compiled code"


class Pool(ABC):
    """Workers behind `concurrent.futures`. Groups in flight have slots, numbers below `slots`."""

    workers: int

    @property
    def slots(self) -> int:
        """The most groups in flight."""
        return WINDOW * self.workers

    @abstractmethod
    def submit(self, run: Callable[[Any], Any], tasks: Sequence[Any], slot: int) -> Future[list[TaskOutcome]]:
        """Start a group. Raises BrokenExecutor when the workers are dead."""

    @abstractmethod
    def interrupted_task(self, slot: int) -> int | None:
        """Index of the task that the group in this slot was running when its worker died; None: no task."""

    @abstractmethod
    def renew(self) -> None:
        """Start fresh workers after a BrokenExecutor."""

    @abstractmethod
    def alone(self) -> AbstractContextManager[Pool]:
        """A pool with one worker that runs nothing else."""

    def check(self) -> None:  # noqa: B027
        """Raise InputError when this pool can no longer finish its groups."""

    def failure(self, error: Exception) -> str:
        """Why a whole group failed, in one line."""
        return one_line(error)

    def lost(self) -> InputError:
        """The error when the pool has cancelled its groups."""
        return InputError("the workers are gone; finished cells are kept, and a second run does the rest")


class LocalPool(Pool):
    """Processes of this machine, started by `spawn`, so that they share no state with the driver."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._context = multiprocessing.get_context("spawn")
        self._start()

    def _start(self) -> None:
        self._marks: Marks = self._context.RawArray("i", self.slots)
        self._executor = ProcessPoolExecutor(
            self.workers, self._context, initializer=for_worker(start_worker), initargs=(self._marks,)
        )

    def submit(self, run: Callable[[Any], Any], tasks: Sequence[Any], slot: int) -> Future[list[TaskOutcome]]:
        self._marks[slot] = 0
        with interrupts_blocked():
            return self._executor.submit(run_group, run, tasks, slot)

    def interrupted_task(self, slot: int) -> int | None:
        return self._marks[slot] - 1 if self._marks[slot] else None

    def renew(self) -> None:
        self._executor.shutdown()
        self._start()

    def alone(self) -> AbstractContextManager[Pool]:
        return local_pool(1)

    def close(self, *, at_once: bool) -> None:
        """End the workers when they are done, or kill them if `at_once`."""
        # Python 3.14 has `kill_workers` for what needs a private name until then.
        processes = list((self._executor._processes or {}).values())
        self._executor.shutdown(wait=False, cancel_futures=True)
        if at_once:
            for process in processes:
                process.kill()
        self._executor.shutdown()


@contextmanager
def local_pool(workers: int | None = None) -> Iterator[LocalPool]:
    """Worker processes on this machine, by default one per core that this process may use.

    When the block ends by an exception, Ctrl-C included, the workers are killed rather than waited for.
    Raises InputError for a number of workers out of range.
    """
    count = checked_count(workers)
    with one_thread_each():
        pool = LocalPool(count)
        try:
            yield pool
        except BaseException:
            pool.close(at_once=True)
            raise
        pool.close(at_once=False)


def checked_count(workers: int | None) -> int:
    """The number of workers asked for, or one per core that this process may use. Raises InputError."""
    count = usable_cores() if workers is None else workers
    if not 1 <= count <= MAX_WORKERS:
        allowed = f"1 to {MAX_WORKERS:,}"
        raise InputError(Problem(field="--workers", value=count, message="is out of range", allowed=allowed))
    return count


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Processes and threads that start inside the block never see Ctrl-C: they inherit the blocked signal."""
    resource_tracker.ensure_running()  # a later start would unblock the signal
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)
