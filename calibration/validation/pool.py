"""Worker processes for many small simulations: spawned, with one thread each, gone when their parent is."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context, parent_process

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
MOST_WORKERS = 8


def usable_cores() -> int:
    """Cores that this process may use, up to a number that the work repays."""
    return min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2, MOST_WORKERS)


@contextmanager
def worker_pool(workers: int) -> Iterator[ProcessPoolExecutor | None]:
    """Yield a pool of so many processes; None for one worker: the caller's own process does the work.

    When the block ends by an exception, Ctrl-C included, the workers are killed rather than waited for.
    """
    if workers <= 1:
        yield None
        return
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))  # spawned processes read it when they start
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_start_worker)
    try:
        yield pool
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _start_worker() -> None:
    """Leave Ctrl-C to the parent, and end with it, however it ends: a pool's worker would wait for ever."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None:

        def watch() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=watch, daemon=True).start()
