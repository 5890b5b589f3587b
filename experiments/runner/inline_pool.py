"""A pool in this process, for notebooks and for scripts that worker processes would execute again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from experiments.runner.pools import Pool
from experiments.runner.worker import TaskOutcome, run_group


class InlinePool(Pool):
    """Runs each group when it is submitted. A task that crashes ends this process."""

    workers = 1

    @property
    def slots(self) -> int:
        """One, because each group ends before the next one starts."""
        return 1

    def submit(self, run: Callable[[Any], Any], tasks: Sequence[Any], slot: int) -> Future[list[TaskOutcome]]:
        future: Future[list[TaskOutcome]] = Future()
        future.set_result(run_group(run, tasks, slot))
        return future

    def interrupted_task(self, slot: int) -> int | None:
        return None

    def renew(self) -> None:
        """Does nothing: no worker can die."""

    def alone(self) -> AbstractContextManager[Pool]:
        return nullcontext(self)
