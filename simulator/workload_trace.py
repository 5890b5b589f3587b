"""The recorded trace of a workload, read once per file."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.errors import InputError
from simulator.traces import Trace, read_trace

if TYPE_CHECKING:
    from simulator.scenario.arrivals import ArrivalsTrace


def load_trace(arrivals: ArrivalsTrace, base_dir: Path) -> Trace:
    """The part of the trace that the scenario asks for, with the times as recorded. Raises InputError.

    A file is read again only when it has changed: replications, arms and searches share one reading.
    """
    path = base_dir / arrivals.file
    try:
        stat = path.stat()
        stamp = (stat.st_mtime_ns, stat.st_size)
    except OSError:
        stamp = (0, 0)  # the reader says what is wrong
    try:
        return _read(path, arrivals.format, arrivals.max_requests, stamp)
    except InputError as error:
        raise error.at(field="workload.arrivals.file") from None


@lru_cache(maxsize=2)
def _read(path: Path, format: str, limit: int | None, stamp: tuple[int, int]) -> Trace:
    return read_trace(path, format, limit=limit)
