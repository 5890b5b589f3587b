"""Helpers for pools of worker processes: usable cores, one thread per worker, and an end with the driver."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Without these variables, numeric libraries start one thread per core in every worker."""

T = TypeVar("T")


def usable_cores() -> int:
    """Cores that this process may use, if the system reports them; otherwise all."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Processes started in the block use one thread per numeric library unless the user set a number."""
    unset = [name for name in _ONE_THREAD if name not in os.environ]
    os.environ.update(dict.fromkeys(unset, "1"))
    try:
        yield
    finally:
        for name in unset:
            os.environ.pop(name, None)


def for_worker(function: Callable[..., T], *arguments: Any) -> Callable[..., T]:
    """A function and its first arguments, as a new process should be sent them.

    A pickle holds a function by name, and in a folder with an `experiments` of the user's own a new process
    would look it up there. It imports `decodesim` first where its driver has done so, which prevents that.
    """
    own_packages = sys.modules.get("decodesim.own_packages")
    if own_packages is None:  # `python -m experiments` in a checkout: the current folder is the right one
        return partial(function, *arguments)
    return partial(own_packages.call, function, *arguments)


def end_with_driver() -> None:
    """End this worker process when its driver does, however that ends: a worker would wait for ever."""
    driver = multiprocessing.parent_process()

    def watch() -> None:
        if driver is not None:
            driver.join()  # returns at once when the driver is killed: its end of a pipe closes
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
