"""What every pool of worker processes needs: cores, one thread each, and an end when the driver ends."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Numeric libraries start one thread per core in every worker otherwise."""


def usable_cores() -> int:
    """Cores that this process may use, where the system tells; else all."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Processes started here inherit one thread for each numeric library, unless the user said otherwise."""
    ours = [name for name in _ONE_THREAD if name not in os.environ]
    os.environ.update(dict.fromkeys(ours, "1"))
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)


def end_with_driver() -> None:
    """End this worker process when its driver does, however that ends: a worker would wait for ever."""
    driver = multiprocessing.parent_process()

    def watch() -> None:
        if driver is not None:
            driver.join()  # returns at once when the driver is killed: its end of a pipe closes
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
