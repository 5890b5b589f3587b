"""Ten-second cells on two Dask workers and on two local processes: what the cluster costs."""

from __future__ import annotations

import time
from contextlib import ExitStack
from statistics import median

from experiments.runner.dask_pool import LOCAL, dask_pool
from experiments.runner.pools import Pool, local_pool
from experiments.runner.runner import run_tasks

ROUNDS = 5
CELL_S = 10.0
MOST_MORE = 1.10
PIECE = 100_000


def turn(pieces: int) -> int:
    """Fixed work that keeps one core busy."""
    value = 1
    for _ in range(pieces * PIECE):
        value = value * 6364136223846793005 % 18446744073709551557
    return value


def wall_s(pool: Pool, pieces: int) -> float:
    """Seconds of one cell on each of two workers, side by side."""
    failed: list[str] = []
    begun_s = time.perf_counter()
    run_tasks(
        turn, [pieces, pieces], pool, lambda task, value: None, lambda task, error: failed.append(error)
    )
    assert failed == []
    return time.perf_counter() - begun_s


def test_dask_keeps_up_with_local_processes() -> None:
    with ExitStack() as held:
        here, there = held.enter_context(local_pool(2)), held.enter_context(dask_pool(LOCAL, 2))
        sample_s = min(wall_s(here, 10) for _ in range(3))
        pieces = round(10 * CELL_S / sample_s)
        wall_s(there, 1)  # both have started
        pairs = [(wall_s(here, pieces), wall_s(there, pieces)) for _ in range(ROUNDS)]
    local_s, dask_s = (median(times) for times in zip(*pairs, strict=True))
    print(f"\nlocal processes {local_s:.2f} s, Dask {dask_s:.2f} s: {dask_s / local_s - 1:+.1%}")
    assert dask_s < MOST_MORE * local_s
