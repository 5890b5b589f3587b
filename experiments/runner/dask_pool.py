"""A Dask cluster as a pool: one that runs already (`tcp://…`), or worker processes started here (`local`)."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from importlib.util import find_spec
from typing import Any

from calibration.workers import for_worker, one_thread_each
from experiments.runner.pools import (
    DEATH_CAUSES,
    Pool,
    checked_count,
    interrupts_blocked,
)
from experiments.runner.worker import TaskOutcome, differences, fingerprint, one_line, run_group
from simulator.errors import InputError, Problem

LOCAL = "local"
_LOGGERS = ("distributed", "tornado", "asyncio")
_FIELD = "--dask"
CONNECT_S = 4.0
"""Timeouts for the answer of the scheduler, and then for its first worker, s."""
_LONGEST_GREETING = 1 << 20
"""Bytes; that of Dask has some hundred."""
_NO_WORKER_S = 30.0
"""A cluster without workers for this long is lost; killed workers restart within a few seconds."""


class DaskPool(Pool):
    """The worker processes of a Dask scheduler. It restarts dead workers by itself."""

    def __init__(self, client: Any, address: str) -> None:
        self._client, self._address = client, address
        self._executor = client.get_executor(pure=False)
        self._fingerprint = fingerprint()
        self._seen_s = time.monotonic()
        self.workers = len(client.nthreads())

    def submit(self, run: Callable[[Any], Any], tasks: Sequence[Any], slot: int) -> Future[list[TaskOutcome]]:
        if self._client.status != "running":
            raise self.lost()
        group = for_worker(run_group, run, tasks, slot, self._fingerprint)
        future: Future[list[TaskOutcome]] = self._executor.submit(group)
        return future

    def interrupted_task(self, slot: int) -> int | None:
        return None

    def renew(self) -> None:
        """Dask does."""

    def alone(self) -> AbstractContextManager[Pool]:
        return nullcontext(self)

    def check(self) -> None:
        if self._client.status != "running":
            raise self.lost()
        try:
            count = len(self._client.nthreads())
        except OSError:
            raise self.lost() from None
        now = time.monotonic()
        if count:
            self.workers, self._seen_s = count, now
        elif now - self._seen_s > _NO_WORKER_S:
            raise InputError(self._problem(f"has had no worker for {_NO_WORKER_S:.0f} s"))

    def lost(self) -> InputError:
        return InputError(self._problem("the connection to the scheduler is lost"))

    def failure(self, error: Exception) -> str:
        if type(error).__name__ == "KilledWorker":
            return f"KilledWorker: its worker died each time, although it ran nothing else: {DEATH_CAUSES}"
        return one_line(error)

    def _problem(self, message: str) -> Problem:
        allowed = "finished cells are kept, and a second run does the rest"
        return Problem(field=_FIELD, value=self._address, message=message, allowed=allowed)


@contextmanager
def dask_pool(address: str, workers: int | None = None) -> Iterator[Pool]:
    """A pool on the scheduler at an address (`tcp://host:8786`), or on a cluster of this machine (`local`).

    `workers`: processes of a local cluster, by default one per core. Raises InputError when `workers` comes
    with an address, Dask is not installed, no scheduler answers, or there is no worker or one of another
    version.
    """
    if workers is not None and address != LOCAL:
        allowed = "leave it out: the cluster has its own"
        message = "cannot be combined with the address of a cluster"
        raise InputError(Problem(field="--workers", value=workers, message=message, allowed=allowed))
    if find_spec("distributed") is None:
        message, allowed = "needs Dask", "pip install 'decodesim[cluster]'"
        raise InputError(Problem(field=_FIELD, value=address, message=message, allowed=allowed))
    import distributed

    dask: Any = distributed  # untyped
    with _quiet():
        if address == LOCAL:
            with _local_cluster(dask, checked_count(workers)) as client:
                yield DaskPool(client, address)
        else:
            with _connected(dask, address) as client:
                yield DaskPool(client, address)


@contextmanager
def _local_cluster(dask: Any, workers: int) -> Iterator[Any]:
    """A client of a scheduler in this process and fresh worker processes, each with one thread."""
    from dask import config

    with config.set({"distributed.scheduler.allowed-failures": 1}), one_thread_each(), ExitStack() as stack:
        with interrupts_blocked():
            cluster = dask.LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                memory_limit=0,
                dashboard_address=None,
                silence_logs=logging.CRITICAL,
            )
            stack.enter_context(cluster)
            client = stack.enter_context(dask.Client(cluster, set_as_default=False))
        yield client


@contextmanager
def _connected(dask: Any, address: str) -> Iterator[Any]:
    """A client of a scheduler that runs already, once its workers are known to compute as we do."""
    try:
        # Checked first: a client without a scheduler closes slowly, and it waits for ever on another server.
        _require_scheduler(address, *dask.comm.get_address_host_port(address))
        client = dask.Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        message = f"no Dask scheduler answers ({' '.join(str(error).split())})"
        allowed = f"the address of a running one, e.g. tcp://host:8786, or {LOCAL}"
        raise InputError(Problem(field=_FIELD, value=address, message=message, allowed=allowed)) from None
    with client:
        try:
            client.wait_for_workers(1, timeout=CONNECT_S)
        except TimeoutError:
            allowed = f"start some: dask worker {address} --nthreads 1 --nworkers N"
            problem = Problem(field=_FIELD, value=address, message="has no worker", allowed=allowed)
            raise InputError(problem) from None
        _require_versions(client, address)
        yield client


def _require_scheduler(address: str, host: str, port: int) -> None:
    """Raises OSError unless what answers at an address speaks first, as servers of Dask do: a length and a
    greeting. Encrypted connections are left to Dask.
    """
    if address.partition("://")[0] not in ("tcp", address):
        return
    with socket.create_connection((host, port), CONNECT_S) as probe:
        try:
            greeting = probe.recv(8, socket.MSG_WAITALL)
        except TimeoutError:
            greeting = b""
    if len(greeting) < 8 or int.from_bytes(greeting, "little") > _LONGEST_GREETING:
        raise OSError("the server at this address is not one")


def _require_versions(client: Any, address: str) -> None:
    """Raises InputError unless every worker has the versions of this machine: a line for each kind."""
    workers_by_difference: dict[str, list[str]] = {}
    for worker, versions in client.run(for_worker(fingerprint), on_error="return").items():
        if isinstance(versions, BaseException):
            difference = f"no decodesim that can be imported ({versions})"
        else:
            difference = differences(fingerprint(), versions)
        if difference:
            workers_by_difference.setdefault(difference, []).append(worker)
    problems = [
        Problem(
            field=_FIELD,
            value=address,
            message=f"{_workers_text(worker_names)} {difference}",
            allowed="install the versions of this machine there",
        )
        for difference, worker_names in workers_by_difference.items()
    ]
    if problems:
        raise InputError(problems)


def _workers_text(workers: list[str]) -> str:
    is_single = len(workers) == 1
    return (
        f"its worker {workers[0]} has"
        if is_single
        else f"{len(workers)} of its workers ({workers[0]}, …) have"
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences the logs of Dask and its libraries; errors are reported in one line instead."""
    import warnings

    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in _LOGGERS]
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
