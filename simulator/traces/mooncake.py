"""Mooncake traces (JSONL), the AIPerf variant with sessions and texts, and vLLM's `timed_trace`.

A row is `timestamp`, `input_length`, `output_length` and `hash_ids`, one id per block of 512 tokens (the last
block may be partial), equal leading ids meaning a shared prefix; many requests can share a timestamp. AIPerf
adds `session_id`, `delay` (ms after the turn before ended), `text_input` and `messages` in place of
`input_length`. vLLM's `timed_trace` has the same fields in seconds and blocks of 16.

Sources: Qin et al., "Mooncake", FAST 2025; AIPerf 0.13, trace replay and conversation context modes;
vLLM 0.33, `--timed-trace-sec-multiplier` 1 and `--timed-trace-chunk-hash-size` 16.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from simulator.traces.fields import RowError, time_ns
from simulator.traces.files import TraceRow, json_lines
from simulator.traces.mooncake_row import (
    MOONCAKE_BLOCK_TOKENS,
    TIMED_TRACE_BLOCK_TOKENS,
    MooncakePrompt,
    is_mooncake,
    is_timed_trace,
    output_tokens_of,
    prompt_of,
    session_of,
)
from simulator.traces.reader import ESTIMATE_NOTE, OPEN_OUTPUTS_NOTE, TraceReader
from simulator.traces.rows import TraceRows
from simulator.traces.trace import NOT_GIVEN, CountTokens, Trace
from simulator.units import NS_PER_S

_NS_PER_MS = NS_PER_S // 1000
_TEXT_BLOCK_TOKENS = 16
_NEEDS_OUTPUT = "later turns of the session build on this output"
_EARLY_NOTE = (
    "later turns of a session that have a timestamp come at that time, even if the turn before has not ended"
)


@dataclass(frozen=True)
class _Turn:
    """A kept row: its place in its session, and the tokens that the next turn starts with."""

    first: MooncakePrompt
    session: str | None
    total_tokens: int


@dataclass
class _Reading:
    """The state of reading one file: the rows so far, and where each session stands."""

    rows: TraceRows
    tokenizer: CountTokens | None
    unit_ns: int
    block_tokens: int
    turns: list[_Turn] = field(default_factory=list)
    last: dict[str, _Turn] = field(default_factory=dict)
    dropped_at_ns: dict[str, int | None] = field(default_factory=dict)
    rows_with_extra_ids: int = 0
    timed_later_turns: int = 0

    def take(self, line: int, row: TraceRow) -> None:
        """Read one row. Raises RowError."""
        session = session_of(row)
        prompt = prompt_of(row, self.tokenizer, self.block_tokens)
        output_tokens = output_tokens_of(row)
        accumulates = prompt.accumulates and session is not None
        if accumulates and output_tokens == NOT_GIVEN:
            raise RowError("output_length", None, "missing", _NEEDS_OUTPUT)
        before = self.last.get(session) if session is not None else None
        history_tokens = before.total_tokens if before is not None and accumulates else 0
        prompt_tokens = history_tokens + prompt.tokens if prompt.tokens else 0
        at_ns, follows_after_ns = self._when(row, session, before)
        self.rows_with_extra_ids += prompt.has_extra_ids
        if self.rows.add(line, at_ns, prompt_tokens, output_tokens, session, follows_after_ns):
            turn = _Turn(
                before.first if before is not None and accumulates else prompt,
                session if accumulates else None,
                prompt_tokens + max(output_tokens, 0),
            )
            self.turns.append(turn)
            if session is not None:
                self.last[session] = turn
        elif session is not None and before is None:
            self.dropped_at_ns.setdefault(session, at_ns)

    def _when(
        self, row: TraceRow, session: str | None, before: _Turn | None
    ) -> tuple[int | None, int | None]:
        """The row's time, and its delay after the turn before when that is what it waits for; both in ns."""
        stamp, delay = row.get("timestamp"), row.get("delay")
        at_ns = None if stamp is None else time_ns(stamp, "timestamp", self.unit_ns)
        delay_ns = 0 if delay is None else time_ns(delay, "delay", _NS_PER_MS)
        if before is not None and (delay is not None or at_ns is None):
            return at_ns, delay_ns
        self.timed_later_turns += before is not None
        if at_ns is None and session is not None:  # a turn after ones without output takes their time
            at_ns = self.dropped_at_ns.get(session)
        return at_ns, None

    def finish(self, name: str) -> Trace:
        """The trace of all rows with the contents of their leading blocks as far as the file states them."""
        estimated = self.tokenizer is None
        hashed = any(turn.first.hash_ids for turn in self.turns)
        texts = any(turn.first.text is not None for turn in self.turns)
        size = self.block_tokens if hashed else _TEXT_BLOCK_TOKENS
        known = hashed or (texts and estimated) or any(turn.session is not None for turn in self.turns)
        possible_notes = [
            (texts and estimated, ESTIMATE_NOTE),
            (NOT_GIVEN in self.rows.output_tokens, OPEN_OUTPUTS_NOTE),
            (self.rows_with_extra_ids > 0, "some rows have more hash ids than blocks: the first ones count"),
            (self.timed_later_turns > 0, _EARLY_NOTE),
        ]
        return self.rows.finish(
            prefixes=[_contents(turn, size, estimated) for turn in self.turns] if known else None,
            prefix_block_tokens=size,
            notes=[f"{name}: {note}" for holds, note in possible_notes if holds],
        )


def _contents(turn: _Turn, size: int, estimated: bool) -> Sequence[Hashable]:
    """What stands in the leading full blocks of `size` tokens.

    The file states that of the first prompt; in a session that accumulates, the rest of it up to this
    turn's output follows, which no other session shares.
    """
    known = turn.first.contents(size, estimated)
    if turn.session is None:
        return known
    return [*known, *((turn.session, block) for block in range(len(known), turn.total_tokens // size))]


def _read(
    rows: TraceRows, path: Path, tokenizer: CountTokens | None, unit_ns: int, block_tokens: int
) -> Trace:
    reading = _Reading(rows, tokenizer, unit_ns, block_tokens)
    rows.each(json_lines(path), reading.take)
    return reading.finish(path.name)


def read(path: Path, tokenizer: CountTokens | None, limit: int | None) -> Trace:
    """The Mooncake or AIPerf trace at `path`: times in ms, 512 tokens per hash id. Raises InputError."""
    return _read(TraceRows("mooncake", str(path), limit), path, tokenizer, _NS_PER_MS, MOONCAKE_BLOCK_TOKENS)


def read_timed_trace(path: Path, tokenizer: CountTokens | None, limit: int | None) -> Trace:
    """vLLM's `timed_trace` at `path`: times in s, 16 tokens per hash id. Raises InputError."""
    return _read(
        TraceRows("timed-trace", str(path), limit), path, tokenizer, NS_PER_S, TIMED_TRACE_BLOCK_TOKENS
    )


MOONCAKE = TraceReader(
    name="mooncake",
    title="Mooncake and AIPerf trace (JSONL; ms, 512 tokens per hash id)",
    example='{"timestamp": 0, "input_length": 1300, "output_length": 120, "hash_ids": [0, 1, 2]}\n'
    '{"timestamp": 350, "input_length": 1290, "output_length": 64, "hash_ids": [0, 1, 3]}\n',
    matches=is_mooncake,
    read=read,
)

TIMED_TRACE = TraceReader(
    name="timed-trace",
    title="vLLM timed_trace (JSONL; s, 16 tokens per hash id)",
    example='{"timestamp": 0.25, "input_length": 40, "output_length": 8, "hash_ids": [7, 8, 9]}\n',
    matches=is_timed_trace,
    read=read_timed_trace,
)
