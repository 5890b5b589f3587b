"""What runs inside a worker process, local or on a cluster: a group of tasks, one after the other.

A worker shares nothing with the driver but what it is sent. Where it can, it marks which task it is at, so
that after its death the driver knows whom to suspect.
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
"""Shared memory, one number per group in flight: 1 + index of the task that is being run, 0 when none is."""

LONGEST_GROUP_S = 1.0
"""After so long a group comes back, whatever is left of it: results are kept as soon as they are there."""
_LONGEST_ERROR = 500
"""Characters of an exception that are kept."""

_marks: Marks | None = None
_one_at_a_time = threading.Lock()
"""A worker with several threads still runs one task at once: simulations hold Python's lock anyway, and their
caches need not be safe for threads."""


class Outcome(NamedTuple):
    """What came of one task: its value, or the error it ended with in one line."""

    value: Any
    error: str | None
    seconds_s: float


def run_group(
    run: Callable[[Any], Any], tasks: Sequence[Any], berth: int, like: Mapping[str, str] | None = None
) -> list[Outcome]:
    """Run tasks; an exception is the outcome of its task alone. The rest is left when they take too long.

    `berth` is the group's place in the marks. With `like`, a worker of other versions raises InputError.
    """
    if like is not None and (other := differences(like, fingerprint())):
        raise InputError(f"a worker that joined has {other}: it needs the same versions as this machine")
    with _one_at_a_time:
        outcomes: list[Outcome] = []
        enough_s = time.monotonic() + LONGEST_GROUP_S
        while len(outcomes) < len(tasks) and (not outcomes or time.monotonic() < enough_s):
            _mark(berth, len(outcomes) + 1)
            outcomes.append(_outcome(run, tasks[len(outcomes)]))
        _mark(berth, 0)
        return outcomes


def _outcome(run: Callable[[Any], Any], task: Any) -> Outcome:
    begun = time.perf_counter()
    try:
        return Outcome(run(task), None, time.perf_counter() - begun)
    except (Exception, SystemExit) as error:
        return Outcome(None, one_line(error), time.perf_counter() - begun)


def one_line(error: BaseException) -> str:
    """An exception as a line of text: its kind and message, not too long."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= _LONGEST_ERROR else text[: _LONGEST_ERROR - 1] + "…"


def _mark(berth: int, value: int) -> None:
    if _marks is not None:
        _marks[berth] = value


def start_worker(marks: Marks) -> None:
    """Prepare a local worker process: Ctrl-C is the driver's to answer, and it ends when the driver does."""
    global _marks
    _marks = marks
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    end_with_driver()


@cache
def fingerprint() -> Mapping[str, str]:
    """The versions that figures depend on; `code` is a digest of the simulator's source and data."""
    from experiments.cell import code_version

    found = {"python": platform.python_version()}
    for package in ("numpy", "numba", "scipy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "none"
    decodesim, _, code = code_version().partition("+")
    return found | {"decodesim": decodesim, "code": code}


def differences(here: Mapping[str, str], there: Mapping[str, str]) -> str:
    """`numpy 2.1.0 instead of 2.4.6, …`; empty when all is the same."""
    return ", ".join(
        f"{name} {there.get(name, 'none')} instead of {value}"
        for name, value in here.items()
        if there.get(name) != value
    )
