"""Worker processes for many small simulations: spawned, one thread each, ended with their parent."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context

from calibration.workers import end_with_driver, for_worker, one_thread_each, usable_cores

MAX_WORKERS = 8


def worthwhile_workers() -> int:
    """Workers for all committed cases: one per core, up to `MAX_WORKERS`."""
    return min(usable_cores(), MAX_WORKERS)


@contextmanager
def worker_pool(workers: int) -> Iterator[ProcessPoolExecutor | None]:
    """Yield a pool of `workers` processes; None for one worker, whose work the caller's own process does.

    When an exception ends the block, Ctrl-C included, the workers are killed rather than waited for.
    """
    if workers <= 1:
        yield None
        return
    with one_thread_each():
        context = get_context("spawn")
        pool = ProcessPoolExecutor(workers, mp_context=context, initializer=for_worker(_start_worker))
        try:
            yield pool
        except BaseException:
            for process in list((pool._processes or {}).values()):
                process.kill()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def _start_worker() -> None:
    """Leave Ctrl-C to the parent and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_driver()
