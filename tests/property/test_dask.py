"""A Dask cluster of real processes: the results of local ones, and whatever of it is killed, cells stay."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from experiments.runner import dask_pool as dask_pools
from experiments.runner.dask_pool import dask_pool
from experiments.runner.pools import Pool, local_pool
from experiments.runner.runner import run_tasks
from simulator.errors import InputError
from tests import tiny_tasks
from tests.processes import end, eventually, start, workers_of
from tests.property.test_kill import CELL_S, CELLS, Sweep, nobody_is_left_of

BAD = {tiny_tasks.RAISES, tiny_tasks.EXITS, tiny_tasks.KILLS}


class Cluster(NamedTuple):
    """A scheduler and its workers, as somebody would start them by hand."""

    scheduler: subprocess.Popen[str]
    workers: subprocess.Popen[str]
    file: Path

    @property
    def address(self) -> str:
        return str(json.loads(self.file.read_text())["address"])

    def start_worker(self, preload: Path) -> subprocess.Popen[str]:
        """One more worker, which runs a file first."""
        options = ["--nworkers", "1", "--nthreads", "1", "--no-dashboard", "--preload", preload]
        return start("-m", "dask", "worker", "--scheduler-file", self.file, *options, quiet=True)

    def wait_for(self, workers: int) -> None:
        """Until so many workers are there."""
        import distributed

        client: Any = distributed.Client
        with client(self.address, set_as_default=False) as connected:
            connected.wait_for_workers(workers, timeout=30)


@contextmanager
def started(folder: Path) -> Iterator[Cluster]:
    """Two worker processes; a task that kills its worker is given up at once, to save time."""
    file = folder / "scheduler.json"
    address = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", file]
    options = ["--nworkers", "2", "--nthreads", "1", "--no-dashboard", "--scheduler-file", file]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES", "0")
        scheduler = start("-m", "dask", "scheduler", *address, quiet=True)
        workers = start("-m", "dask", "worker", *options, quiet=True)
    cluster = Cluster(scheduler, workers, file)
    try:
        assert eventually(file.exists, within_s=30)
        cluster.wait_for(2)
        yield cluster
    finally:
        end([workers, scheduler])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster for tests that leave its scheduler alive."""
    with started(tmp_path_factory.mktemp("cluster")) as cluster_run:
        yield cluster_run


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return Sweep(tmp_path)


def outcomes(pool_of: AbstractContextManager[Pool]) -> tuple[dict[int, object], dict[int, str]]:
    """(task → result, task → failure) of tasks of which some end badly."""
    done: dict[int, object] = {}
    failed: dict[int, str] = {}
    tasks = [number for number in range(60) if number != tiny_tasks.CANNOT_BE_SENT]  # Dask can send a lock
    with pool_of as pool:
        run_tasks(tiny_tasks.temperamental, tasks, pool, done.__setitem__, failed.__setitem__)
    return done, failed


def test_a_cluster_gives_the_results_of_local_processes_bit_for_bit(cluster: Cluster) -> None:
    here, failed_here = outcomes(local_pool(2))
    there, failed_there = outcomes(dask_pool(cluster.address))
    assert there == here == {number: tiny_tasks.figure(number) for number in here}
    assert set(failed_there) == set(failed_here) == BAD
    assert failed_there.pop(tiny_tasks.KILLS).startswith("KilledWorker: its worker died each time")
    failed_here.pop(tiny_tasks.KILLS)
    assert failed_there == failed_here


def test_workers_and_drivers_may_be_killed(cluster: Cluster, sweep: Sweep) -> None:
    """Drivers die at random times, and workers do; then one run does what is left, one more death or not."""
    rng = random.Random(5)
    for deaths in (1, 1, 0):
        seen = len(sweep.begun())
        driver = sweep.start(cluster.address, 2 * CELL_S)
        try:
            assert eventually(lambda seen=seen: len(sweep.begun()) > seen, within_s=30)  # type: ignore[misc]
            time.sleep(rng.uniform(0.0, 0.5))
            os.kill(rng.choice(workers_of(cluster.workers.pid)), signal.SIGKILL)
            if deaths:
                time.sleep(rng.uniform(0.0, 0.5))
                driver.send_signal(signal.SIGKILL)
            _, errors = driver.communicate(timeout=60)
        finally:
            end([driver])
        assert sweep.finished() >= sweep.before
        assert not sweep.before & set(sweep.begun()[seen:]), "a cell that was kept is run again"
    assert (driver.returncode, errors) == (0, "")
    sweep.require_whole()


def test_workers_of_other_versions_or_without_decodesim_are_refused(cluster: Cluster, tmp_path: Path) -> None:
    other, none = tmp_path / "other.py", tmp_path / "none.py"
    other.write_text("import experiments.cell\nexperiments.cell.code_version = lambda: '0.0.9+abc'\n")
    none.write_text("import sys\nsys.modules['experiments'] = None\n")
    cluster.wait_for(2)
    strangers = [cluster.start_worker(preload) for preload in (other, none)]
    try:
        cluster.wait_for(4)
        with pytest.raises(InputError) as refused, dask_pool(cluster.address):
            pass
    finally:
        end(strangers)
    lines = sorted(str(problem) for problem in refused.value.problems)
    assert len(lines) == 2
    assert all(line.startswith("--dask: its worker tcp://127.0.0.1:") for line in lines)
    assert all(line.endswith("install the versions of this machine there") for line in lines)
    assert any("has decodesim 0.0.9 instead of" in line and "code abc instead of" in line for line in lines)
    assert any("has no decodesim that can be imported" in line for line in lines)


def test_a_killed_scheduler_ends_the_run_in_one_line_and_the_rest_can_be_done_here(
    sweep: Sweep, tmp_path: Path
) -> None:
    with started(tmp_path) as cluster:
        driver = sweep.start(cluster.address, 3 * CELL_S)
        try:
            assert eventually(lambda: len(sweep.begun()) > CELLS // 4, within_s=30)
            cluster.scheduler.send_signal(signal.SIGKILL)
            _, errors = driver.communicate(timeout=30)
        finally:
            end([driver])
    assert driver.returncode == 2
    assert len(errors.splitlines()) == 1, errors
    line = errors
    assert line.startswith("--dask: the connection to the scheduler is lost")
    assert "finished cells are kept, and a second run does the rest" in line
    assert 0 < len(sweep.finished()) < CELLS
    second = sweep.start("here", 3 * CELL_S)
    _, errors = second.communicate(timeout=60)
    end([second])
    assert (second.returncode, errors) == (0, "")
    sweep.require_whole()


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "scheduler", "tcp://a:b", ""])
def test_addresses_where_nobody_answers_are_refused(address: str) -> None:
    with (
        pytest.raises(InputError, match=r"^--dask: no Dask scheduler answers \(.*local$"),
        dask_pool(address),
    ):
        pass


@pytest.mark.parametrize("greeting", [b"", b"HTTP/1.1 400 Bad Request"], ids=["silent", "of another kind"])
def test_servers_that_are_no_scheduler_are_refused(greeting: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_pools, "CONNECT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as open_:

        def serve() -> None:
            connection, _ = server.accept()
            open_.enter_context(connection).sendall(greeting)

        threading.Thread(target=serve, daemon=True).start()
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(InputError, match="the server at this address is not one"), dask_pool(address):
            pass


def test_a_local_cluster_leaves_no_process_when_its_driver_is_killed(sweep: Sweep) -> None:
    """`local`: Dask's own worker processes on this machine. Killed, interrupted, and then let end."""
    for how in (signal.SIGKILL, signal.SIGINT, None):
        seen = len(sweep.begun())
        driver = sweep.start("local")
        try:
            assert eventually(lambda seen=seen: len(sweep.begun()) > seen, within_s=30)  # type: ignore[misc]
            if how is not None:
                os.killpg(driver.pid, how) if how is signal.SIGINT else driver.send_signal(how)
            _, errors = driver.communicate(timeout=60)
            assert nobody_is_left_of(driver)
        finally:
            end([driver])
        assert sweep.finished() >= sweep.before
        assert not sweep.before & set(sweep.begun()[seen:]), "a cell that was kept is run again"
        if how is signal.SIGINT:
            assert errors.count("Traceback") == errors.count("\nKeyboardInterrupt") == 1, errors
    assert (driver.returncode, errors) == (0, "")
    sweep.require_whole()
