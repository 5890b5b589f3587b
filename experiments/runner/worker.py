"""The code inside a worker process, local or on a cluster: it runs a group of tasks, one after another.

A worker shares no state with the driver. A local worker marks its current task in shared memory, so that the
driver knows the suspect after the worker's death.
"""

from __future__ import annotations

import platform
import signal
import threading
import time
from collections.abc import Callable, Mapping, MutableSequence, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from calibration.workers import end_with_driver
from simulator.errors import InputError

Marks = MutableSequence[int]
"""Shared memory, one number per group in flight: 1 + index of the running task, or 0."""

LONGEST_GROUP_S = 1.0
"""A group returns after this time with the results so far, so that they are stored early."""
_LONGEST_ERROR = 500
"""Characters of an exception that are kept."""

_marks: Marks | None = None
_one_at_a_time = threading.Lock()
"""A worker with several threads still runs one task at once: simulations hold Python's lock anyway, and their
caches need not be safe for threads."""


class TaskOutcome(NamedTuple):
    """The result of one task: its value, or its error in one line."""

    value: Any
    error: str | None
    seconds_s: float


def run_group(
    run: Callable[[Any], Any],
    tasks: Sequence[Any],
    slot: int,
    required_versions: Mapping[str, str] | None = None,
) -> list[TaskOutcome]:
    """Run tasks. An exception is the outcome of its own task. Tasks beyond the time limit are not run.

    `slot` is the group's place in the marks. A worker without `required_versions` raises InputError.
    """
    if required_versions is not None and (difference := differences(required_versions, fingerprint())):
        raise InputError(f"a worker that joined has {difference}: it needs the same versions as this machine")
    with _one_at_a_time:
        outcomes: list[TaskOutcome] = []
        end_s = time.monotonic() + LONGEST_GROUP_S
        while len(outcomes) < len(tasks) and (not outcomes or time.monotonic() < end_s):
            _mark(slot, len(outcomes) + 1)
            outcomes.append(_outcome(run, tasks[len(outcomes)]))
        _mark(slot, 0)
        return outcomes


def _outcome(run: Callable[[Any], Any], task: Any) -> TaskOutcome:
    begun = time.perf_counter()
    try:
        return TaskOutcome(run(task), None, time.perf_counter() - begun)
    except (Exception, SystemExit) as error:
        return TaskOutcome(None, one_line(error), time.perf_counter() - begun)


def one_line(error: BaseException) -> str:
    """An exception as a line of text: its kind and message, not too long."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= _LONGEST_ERROR else text[: _LONGEST_ERROR - 1] + "…"


def _mark(slot: int, value: int) -> None:
    if _marks is not None:
        _marks[slot] = value


def start_worker(marks: Marks) -> None:
    """Prepare a local worker process: Ctrl-C is the driver's to answer, and it ends when the driver does."""
    global _marks
    _marks = marks
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    end_with_driver()


@cache
def fingerprint() -> Mapping[str, str]:
    """The versions that results depend on. `code` is a digest of the simulator's source and data."""
    from experiments.cell import code_version

    versions = {"python": platform.python_version()}
    for package in ("numpy", "numba", "scipy"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "none"
    decodesim, _, code = code_version().partition("+")
    return versions | {"decodesim": decodesim, "code": code}


def differences(required: Mapping[str, str], installed: Mapping[str, str]) -> str:
    """`numpy 2.1.0 instead of 2.4.6, …`; empty where all versions agree."""
    return ", ".join(
        f"{name} {installed.get(name, 'none')} instead of {value}"
        for name, value in required.items()
        if installed.get(name) != value
    )
