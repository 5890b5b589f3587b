"""BurstGPT (CSV): seconds, model, request and response tokens; newer files add session and elapsed time.

The two generations order their columns differently, so fields go by name. A response of 0 tokens is a failed
request and is dropped. A session's turns keep their recorded times and their full prompts: the trace does not
state how much of a prompt repeats the turn before, so it carries no prefix information. Source:
github.com/HPMLL/BurstGPT, Wang et al., arXiv 2401.17644.
"""

from __future__ import annotations

from pathlib import Path

from simulator.traces.fields import time_ns, whole_tokens
from simulator.traces.files import TraceRow, csv_rows
from simulator.traces.reader import TraceReader
from simulator.traces.rows import TraceRows
from simulator.traces.trace import CountTokens, Trace
from simulator.units import NS_PER_S

_COLUMNS = ("Timestamp", "Request tokens", "Response tokens")


def read(path: Path, tokenizer: CountTokens | None, limit: int | None) -> Trace:
    """The trace at `path`, with its sessions where it names them. Raises InputError."""
    rows = TraceRows("burstgpt", str(path), limit)

    def take(line: int, row: TraceRow) -> None:
        at_ns = time_ns(row.get("timestamp"), "Timestamp", NS_PER_S)
        prompt_tokens = whole_tokens(row.get("request tokens"), "Request tokens")
        output_tokens = whole_tokens(row.get("response tokens"), "Response tokens")
        session = str(row.get("session id") or "") or None
        rows.add(line, at_ns, prompt_tokens, output_tokens, session)

    rows.each(csv_rows(path, _COLUMNS), take)
    return rows.finish()


BURSTGPT = TraceReader(
    name="burstgpt",
    title="BurstGPT (CSV, both column orders)",
    example="Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5.0,s1,2.4,ChatGPT,472,18,490,Conversation log\n",
    matches=lambda head: "request tokens" in head.lower() and "response tokens" in head.lower(),
    read=read,
)
