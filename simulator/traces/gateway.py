"""Request logs of gateways and routers (CSV, JSONL): one row per request with its time, prompt and output.

Columns go by name, in the spellings that gateways use (`isl`, `prompt_tokens`, `input_tokens`, …). Times are
dates, time since 1970 in any unit (its size tells which), or seconds from any start; a column that ends in
`_ms`, `_us` or `_ns` has that unit. Failed requests, by status or without output, are dropped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator, Sequence
from pathlib import Path

from simulator.traces.azure import timestamp_ns
from simulator.traces.fields import RowError, time_ns, whole_tokens
from simulator.traces.files import TraceRow, csv_rows, head_of, json_lines
from simulator.traces.reader import TraceReader
from simulator.traces.rows import TraceRows
from simulator.traces.trace import CountTokens, Trace
from simulator.units import NS_PER_S

_TIMES = (
    "timestamp",
    "time",
    "ts",
    "@timestamp",
    "start_time",
    "request_time",
    "created_at",
    "created",
    "arrival",
)
_PROMPTS = (
    "isl",
    "prompt_tokens",
    "input_tokens",
    "num_prompt_tokens",
    "prompt_len",
    "input_len",
    "tokens_in",
)
_OUTPUTS = ("osl", "completion_tokens", "output_tokens", "num_output_tokens", "output_len", "tokens_out")
_SESSIONS = ("session_id", "conversation_id", "session")
_STATUSES = ("status", "status_code", "response_code", "http_status")
_UNITS_NS = {"_ms": 1_000_000, "_us": 1_000, "_ns": 1, "_s": NS_PER_S}
_SINCE_1970 = ((1e17, 1), (1e14, 1_000), (1e11, 1_000_000), (1e8, NS_PER_S))
"""Least size of a time since 1970 → its unit in ns: years 1973 and later in each unit."""
_NUMBER = re.compile(r"\s*\d+(?:\.\d*)?(?:[eE][+-]?\d+)?\s*")


def read(path: Path, tokenizer: CountTokens | None, limit: int | None) -> Trace:
    """The requests at `path`; no prefix information. Raises InputError."""
    rows = TraceRows("gateway", str(path), limit)
    relative = False

    def take(line: int, row: TraceRow) -> None:
        nonlocal relative
        row = {str(name).strip().lower(): value for name, value in row.items()}
        time, prompt = _column(row, _TIMES, units=True), _column(row, _PROMPTS)
        output, session = _column(row, _OUTPUTS), _column(row, _SESSIONS)
        if prompt is None or output is None:
            missing = _PROMPTS if prompt is None else _OUTPUTS
            raise RowError(missing[0], None, "missing", f"one of {', '.join(missing)}")
        if _failed(row):
            rows.dropped["an error status"] += 1
            return
        at_ns, plain = _time_ns(row, time)
        relative = relative or plain
        prompt_tokens = whole_tokens(row[prompt], prompt)
        output_tokens = whole_tokens(row[output], output)
        rows.add(
            line, at_ns, prompt_tokens, output_tokens, str(row[session] or "") or None if session else None
        )

    rows.each(_rows(path), take)
    note = (
        f"{path.name}: times are read as seconds; where they are milliseconds, name the column timestamp_ms"
    )
    return rows.finish(notes=(note,) if relative else ())


def matches(head: str) -> bool:
    """Whether a CSV header or a JSON row names a time, prompt and output tokens in known spellings."""
    names = {name.strip().strip('"').lower() for name in _names(head)}
    tokens = all(_column(names, spellings) is not None for spellings in (_PROMPTS, _OUTPUTS))
    return tokens and _column(names, _TIMES, units=True) is not None


def _names(head: str) -> Sequence[str]:
    if not head.startswith("{"):
        return head.split(",")
    try:
        row = json.loads(head)
    except (ValueError, RecursionError):
        return ()
    return tuple(row) if isinstance(row, dict) else ()


def _rows(path: Path) -> Iterator[tuple[int, TraceRow | RowError]]:
    return json_lines(path) if head_of(path).startswith("{") else csv_rows(path, ())


def _column(names: Container[str], spellings: Sequence[str], units: bool = False) -> str | None:
    """The column of the first spelling that is there, with a unit behind it or without."""
    ends = ("", *_UNITS_NS) if units else ("",)
    candidates = (f"{spelling}{end}" for spelling in spellings for end in ends)
    return next((name for name in candidates if name in names), None)


def _time_ns(row: TraceRow, column: str | None) -> tuple[int | None, bool]:
    """The time of a row in ns, and whether it is a plain number of seconds from some start."""
    value = None if column is None else row.get(column)
    if column is None or value in (None, ""):
        return None, False
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        return timestamp_ns(value.strip()), False
    for end, unit_ns in _UNITS_NS.items():
        if column.endswith(end):
            return time_ns(value, column, unit_ns), False
    size = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else 0.0
    unit_ns = next((unit for least, unit in _SINCE_1970 if size >= least), 0)
    return time_ns(value, column, unit_ns or NS_PER_S), not unit_ns


def _failed(row: TraceRow) -> bool:
    column = _column(row, _STATUSES)
    text = "" if column is None else str(row.get(column) or "").strip().lower()
    return (text[:1] in ("4", "5") and len(text) == 3) or text in (
        "error",
        "failed",
        "failure",
        "timeout",
        "aborted",
    )


GATEWAY = TraceReader(
    name="gateway",
    title="request log of a gateway (CSV, JSONL): time, prompt and output tokens, e.g. timestamp, isl, osl",
    example="timestamp,model,prompt_tokens,completion_tokens,status\n"
    "2026-05-04T10:15:00.012Z,llama,812,44,200\n2026-05-04T10:15:00.431Z,llama,2210,128,200\n",
    matches=matches,
    read=read,
)
