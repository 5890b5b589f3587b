"""Azure LLM inference traces of 2023 and 2024 (CSV): `TIMESTAMP, ContextTokens, GeneratedTokens`.

Local time with up to nine decimals, lines that may end in CR LF; the 2024 files add an offset from UTC.
Source: github.com/Azure/AzurePublicDataset; Patel et al., "Splitwise", ISCA 2024.
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from simulator.traces.fields import RowError, whole_tokens
from simulator.traces.files import TraceRow, csv_rows
from simulator.traces.reader import TraceReader
from simulator.traces.rows import TraceRows
from simulator.traces.trace import CountTokens, Trace
from simulator.units import NS_PER_S

_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:?\d\d)?")
_ALLOWED = "must be like 2023-11-16 18:17:03.9799600"
_EPOCH = datetime(1970, 1, 1)


def read(path: Path, tokenizer: CountTokens | None, limit: int | None) -> Trace:
    """The trace at `path`; no prefix and no session information. Raises InputError."""
    rows = TraceRows("azure", str(path), limit)

    def take(line: int, row: TraceRow) -> None:
        at_ns = timestamp_ns(row.get("timestamp"))
        prompt_tokens = whole_tokens(row.get("contexttokens"), "ContextTokens")
        rows.add(line, at_ns, prompt_tokens, whole_tokens(row.get("generatedtokens"), "GeneratedTokens"))

    rows.each(csv_rows(path, _COLUMNS), take)
    return rows.finish()


def timestamp_ns(value: object) -> int:
    """A date and time as ns since 1970 (of its own clock when it names no offset). Raises RowError."""
    match = _TIMESTAMP.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise RowError("TIMESTAMP", value or None, "not a date and time" if value else "missing", _ALLOWED)
    second, decimals, offset = match.groups()
    fraction_ns = int(decimals.ljust(9, "0")) if decimals else 0
    try:
        return _seconds(second, offset or "") * NS_PER_S + fraction_ns
    except ValueError as error:
        raise RowError("TIMESTAMP", value, str(error), _ALLOWED) from None


@lru_cache(maxsize=256)
def _seconds(text: str, offset: str) -> int:
    """Whole seconds since 1970; neighbouring rows mostly share theirs, so it is remembered."""
    moment = datetime.fromisoformat(text)
    shift = datetime.fromisoformat(f"{text}{offset}").utcoffset() if offset else None
    since = moment - _EPOCH
    return since.days * 86_400 + since.seconds - (int(shift.total_seconds()) if shift else 0)


AZURE = TraceReader(
    name="azure",
    title="Azure LLM inference trace 2023 and 2024 (CSV)",
    example="TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n",
    matches=lambda head: "contexttokens" in head.lower() and "generatedtokens" in head.lower(),
    read=read,
)
