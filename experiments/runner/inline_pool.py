"""A pool that is this process: for notebooks, and scripts that worker processes would run once more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from experiments.runner.pools import Pool
from experiments.runner.worker import Outcome, run_group


class InlinePool(Pool):
    """Runs each group when it is submitted. A task that kills its worker kills everything here."""

    workers = 1

    @property
    def berths(self) -> int:
        """One: what is in flight is over."""
        return 1

    def submit(self, run: Callable[[Any], Any], tasks: Sequence[Any], berth: int) -> Future[list[Outcome]]:
        done: Future[list[Outcome]] = Future()
        done.set_result(run_group(run, tasks, berth))
        return done

    def was_at(self, berth: int) -> int | None:
        return None

    def renew(self) -> None:
        """Nothing dies."""

    def alone(self) -> AbstractContextManager[Pool]:
        return nullcontext(self)
