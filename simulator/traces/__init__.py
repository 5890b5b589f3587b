"""Recorded traffic: one reader per format, found by name or by the file's first line.

A new format is a module with a `Reader`, listed in `_READERS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from simulator.errors import InputError, Problem, unknown_name
from simulator.traces.aiperf import AIPERF_RECORDS
from simulator.traces.azure import AZURE
from simulator.traces.bench_details import BENCH_DETAILS
from simulator.traces.burstgpt import BURSTGPT
from simulator.traces.files import head_of
from simulator.traces.gateway import GATEWAY
from simulator.traces.mooncake import MOONCAKE, TIMED_TRACE
from simulator.traces.prompts import PROMPTS
from simulator.traces.reader import TraceReader
from simulator.traces.select import select
from simulator.traces.sharegpt import SHAREGPT
from simulator.traces.trace import NOT_GIVEN, CountTokens, Trace

__all__ = ["NOT_GIVEN", "CountTokens", "Trace", "TraceReader", "detect", "read_trace", "readers", "select"]

_READERS = (AZURE, BURSTGPT, MOONCAKE, TIMED_TRACE, SHAREGPT, PROMPTS, BENCH_DETAILS, AIPERF_RECORDS, GATEWAY)
_ALIASES = {"aiperf": "mooncake", "timed_trace": "timed-trace", "custom": "prompts"}


def readers() -> Mapping[str, TraceReader]:
    """Every trace format that can be read, by name."""
    return MappingProxyType({reader.name: reader for reader in _READERS})


def read_trace(
    path: str | Path,
    format: str = "auto",
    *,
    tokenizer: CountTokens | None = None,
    limit: int | None = None,
) -> Trace:
    """The trace in a file (plain or `.gz`): its first `limit` requests (None: all), in order of time.

    Rows without output are dropped and counted; `Trace.notes` counts them. Raises InputError for a file that
    cannot be read, an unknown format, and broken rows, each with its line.
    """
    path = Path(path)
    name = _ALIASES.get(format, format)
    if name != "auto" and name not in readers():
        raise InputError(
            unknown_name("trace format", format, ["auto", *readers()], field="workload.arrivals.format")
        )
    reader = detect(path) if name == "auto" else readers()[name]
    return reader.read(path, tokenizer, limit)


def detect(path: Path) -> TraceReader:
    """The reader whose format the file's first line shows. Raises InputError when none or several do."""
    head = head_of(path)
    matching = [reader for reader in _READERS if reader.matches(head)]
    if len(matching) != 1:
        message = (
            "not a known trace format"
            if not matching
            else f"could be {' or '.join(r.name for r in matching)}"
        )
        raise InputError(
            Problem(
                file=str(path), line=1, message=message, allowed=f"name it as format: {', '.join(readers())}"
            )
        )
    return matching[0]
