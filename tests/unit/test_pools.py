"""Real worker processes of this machine: failures stay with their task, and nobody is left behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from experiments.runner.pools import checked_count, local_pool
from experiments.runner.runner import run_tasks
from simulator.errors import InputError
from tests import tiny_tasks
from tests.processes import end, eventually, session_of, start, workers_of

BAD = {tiny_tasks.RAISES, tiny_tasks.EXITS, tiny_tasks.KILLS, tiny_tasks.CANNOT_BE_SENT}


def test_bad_tasks_fail_alone_and_the_others_are_done() -> None:
    done: dict[int, object] = {}
    failed: dict[int, str] = {}
    with local_pool(2) as pool:
        run_tasks(tiny_tasks.temperamental, range(60), pool, done.__setitem__, failed.__setitem__)
    assert done == {number: tiny_tasks.figure(number) for number in range(60) if number not in BAD}
    assert set(failed) == BAD
    assert failed[tiny_tasks.RAISES] == "ValueError: an unlucky number"
    assert failed[tiny_tasks.EXITS] == "SystemExit: 3"
    assert failed[tiny_tasks.KILLS].startswith("its worker process died 2 times although it ran nothing else")
    assert failed[tiny_tasks.CANNOT_BE_SENT].startswith("TypeError: cannot pickle")
    assert eventually(lambda: not multiprocessing.active_children())


def test_workers_have_one_thread_and_leave_interrupts_to_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    seen: list[tuple[int, int, str | None, bool]] = []
    with local_pool(2) as pool:
        run_tasks(
            tiny_tasks.about_worker,
            range(6),
            pool,
            lambda _, result: seen.append(result),
            lambda _, error: None,
        )
    assert len(seen) == 6
    assert len({pid for pid, *_ in seen}) <= 2  # on a busy machine one may be done before the other begins
    assert {about[1:] for about in seen} == {(os.getpid(), "1", True)}
    assert "OMP_NUM_THREADS" not in os.environ


def test_workers_are_killed_when_the_block_ends_by_an_exception() -> None:
    """Not waited for: each would take a minute."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), local_pool(2) as pool:
        run_tasks(time.sleep, [0.0, 60.0, 60.0, 60.0], pool, interrupt, interrupt)
    assert eventually(lambda: not multiprocessing.active_children(), within_s=5.0)


@pytest.mark.parametrize("count", [0, -1, 5000])
def test_numbers_of_workers_out_of_range_are_refused(count: int) -> None:
    with pytest.raises(InputError, match="--workers: is out of range"):
        checked_count(count)


UNGUARDED = """
from experiments.runner.pools import local_pool
from experiments.runner.runner import run_tasks
from simulator.errors import InputError
from tests.tiny_tasks import figure

try:
    with local_pool(1) as pool:
        run_tasks(figure, range(3), pool, print, print)
except InputError as error:
    print("refused:", error, flush=True)
"""


def test_a_script_without_a_guard_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text(UNGUARDED)
    driver = start(script)
    try:
        out, _ = driver.communicate(timeout=60)
        assert "refused: worker processes die as they start" in out
        assert '__name__ == "__main__"' in out
        assert eventually(lambda: session_of(driver.pid) == {})
    finally:
        end([driver])


SLEEPER = """
import sys, time
from experiments.runner.pools import local_pool
from experiments.runner.runner import run_tasks

if __name__ == "__main__":
    with local_pool(2) as pool:
        print("ready", flush=True)
        run_tasks(time.sleep, [60.0] * 4, pool, print, print)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda how: how.name)
def test_a_driver_that_ends_leaves_no_process(how: signal.Signals, tmp_path: Path) -> None:
    """Whether killed, asked to end, or by Ctrl-C, which the whole group gets."""
    script = tmp_path / "sleeper.py"
    script.write_text(SLEEPER)
    driver = start(script)
    try:
        assert eventually(lambda: len(workers_of(driver.pid)) == 2)
        if how is signal.SIGINT:
            os.killpg(driver.pid, how)
        else:
            driver.send_signal(how)
        _, errors = driver.communicate(timeout=20)
        assert driver.returncode == -how
        assert eventually(lambda: session_of(driver.pid) == {})
        if how is signal.SIGINT:
            assert errors.count("Traceback") == errors.count("\nKeyboardInterrupt") == 1, errors
    finally:
        end([driver])
