"""Real processes for tests that kill them: which ones a driver started, and whether they are gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.shared_data import ROOT


def start(*command: str | Path, quiet: bool = False, background: bool = False) -> subprocess.Popen[str]:
    """A Python process that can import the tests, in a session of its own, where what it starts is found.

    What it prints can be read, unless it is `quiet`: nobody reads it, and a full pipe would stop it. Whatever
    this process does at Ctrl-C, the new one ends unless it is in the `background`.
    """
    output = subprocess.DEVNULL if quiet else subprocess.PIPE
    with _interrupts(ignored=background):
        return subprocess.Popen(
            [sys.executable, *map(str, command)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            text=True,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        )


@contextmanager
def _interrupts(*, ignored: bool) -> Iterator[None]:
    """Processes that start here ignore Ctrl-C or do not.

    A shell script starts `make test &` with Ctrl-C ignored, and child processes inherit that. They do not
    inherit a handler: Ctrl-C ends them.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def session_of(leader: int) -> dict[int, str]:
    """Process → its command line, of all living processes of a session."""
    result: dict[int, str] = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            state, *fields = (place / "stat").read_text().rpartition(")")[2].split()
            command = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[2]) == leader and state not in "ZX":
            result[int(place.name)] = command
    return result


def workers_of(leader: int) -> list[int]:
    """The worker processes of a driver, not multiprocessing's own helper."""
    return sorted(
        pid
        for pid, command in session_of(leader).items()
        if pid != leader and "spawn_main" in command and "resource_tracker" not in command
    )


def eventually(happens: Callable[[], bool], within_s: float = 10.0) -> bool:
    """Whether it happens soon."""
    deadline_s = time.monotonic() + within_s
    while not happens():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.02)
    return True


def end(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Kill what a test leaves, sessions and all."""
    for process in processes:
        for pid in [*session_of(process.pid), process.pid]:
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
