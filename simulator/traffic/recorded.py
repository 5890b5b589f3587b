"""The recorded trace of a workload, read once per file."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.errors import InputError
from simulator.traces import Trace, read_trace, select

if TYPE_CHECKING:
    from simulator.scenario.arrivals import ArrivalsTrace

_FILTERS = ("start_s", "end_s", "max_prompt_tokens", "max_output_tokens")


def load_trace(arrivals: ArrivalsTrace, base_dir: Path) -> Trace:
    """The part of the trace that the scenario asks for, with the times as recorded. Raises InputError.

    A file is read again only when it has changed: replications, variants and searches share one reading.
    """
    path = base_dir / arrivals.file
    try:
        stat = path.stat()
        stamp = (stat.st_mtime_ns, stat.st_size)
    except OSError:
        stamp = (0, 0)  # the reader reports what is wrong
    chosen = {name: getattr(arrivals, name) for name in _FILTERS}
    try:
        if not any(chosen.values()):
            return _read(path, arrivals.format, arrivals.max_requests, stamp)
        return _part(path, arrivals.format, arrivals.max_requests, stamp, tuple(chosen.items()))
    except InputError as error:
        raise error.at(field="workload.arrivals.file") from None


@lru_cache(maxsize=2)
def _read(path: Path, format: str, limit: int | None, stamp: tuple[int, int]) -> Trace:
    return read_trace(path, format, limit=limit)


@lru_cache(maxsize=2)
def _part(
    path: Path, format: str, limit: int | None, stamp: tuple[int, int], chosen: tuple[tuple[str, Any], ...]
) -> Trace:
    return select(_read(path, format, None, stamp), **dict(chosen), limit=limit)
