"""Collecting the rows of a trace: what is kept, what is left out, what is broken, and the order of time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from simulator.errors import InputError, Problem
from simulator.numerics.arrays import Ints
from simulator.traces.fields import RowError
from simulator.traces.files import TraceRow
from simulator.traces.trace import Trace, encode_prefixes
from simulator.units import LATEST_S, NS_PER_S

_MOST_PROBLEMS = 20
"""Broken rows that are listed; reading stops there."""


@dataclass
class TraceRows:
    """The requests that a reader has collected so far.

    Times are ns from any origin; None: not given. A row with `follows_after_ns` is issued that long after the
    row before it in the same session has ended, whatever its time.
    """

    format: str
    file: str
    limit: int | None = None
    arrival_ns: list[int | None] = field(default_factory=list)
    prompt_tokens: list[int] = field(default_factory=list)
    output_tokens: list[int] = field(default_factory=list)
    session: list[str | None] = field(default_factory=list)
    follows_after_ns: list[int | None] = field(default_factory=list)
    line: list[int] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    problems: list[Problem] = field(default_factory=list)

    @property
    def full(self) -> bool:
        """Whether reading may stop: as many rows as asked for, or more problems than are listed."""
        enough = self.limit is not None and len(self.prompt_tokens) >= self.limit
        return enough or len(self.problems) >= _MOST_PROBLEMS

    def each(
        self, source: Iterable[tuple[int, TraceRow | RowError]], take: Callable[[int, TraceRow], object]
    ) -> None:
        """Give each row of `source` (with its line) to `take` until `full`; RowError marks a broken one."""
        for line, row in source:
            if self.full:
                return
            try:
                if isinstance(row, RowError):
                    raise row
                take(line, row)
            except RowError as broken:
                self.broken(line, broken.problem)

    def add(
        self,
        line: int,
        arrival_ns: int | None,
        prompt_tokens: int,
        output_tokens: int,
        session: str | None = None,
        follows_after_ns: int | None = None,
    ) -> bool:
        """Keep one row, or count it as dropped when it has no output or prompt; return whether it was
        kept.
        """
        if output_tokens == 0 or prompt_tokens == 0:
            self.dropped["zero output tokens" if output_tokens == 0 else "zero prompt tokens"] += 1
            return False
        self.line.append(line)
        self.arrival_ns.append(arrival_ns)
        self.prompt_tokens.append(prompt_tokens)
        self.output_tokens.append(output_tokens)
        self.session.append(session)
        self.follows_after_ns.append(follows_after_ns)
        return True

    def broken(self, line: int, problem: Problem) -> None:
        """Remember what is wrong with the row at `line`."""
        self.problems.append(problem.at(file=self.file, line=line))

    def finish(
        self,
        *,
        prefixes: Sequence[Iterable[Hashable]] | None = None,
        prefix_block_tokens: int = 0,
        notes: Iterable[str] = (),
    ) -> Trace:
        """The trace of all rows, in order of time; `prefixes` holds what stands in each row's leading blocks.

        Raises InputError with every broken row found, or when no row is left.
        """
        arrival_ns, timed = self._times()
        if not self.prompt_tokens and not self.problems:
            self.problems.append(
                Problem(file=self.file, message=f"no request in this {self.format} trace{self._left_out()}")
            )
        if self.problems:
            raise InputError(self.problems[:_MOST_PROBLEMS])
        successor, delay_ns = self._links()
        order = np.argsort(_issue_keys(arrival_ns, successor), kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        start, ids = encode_prefixes([prefixes[row] for row in order] if prefixes else [()] * len(order))
        return Trace(
            format=self.format,
            file=self.file,
            arrival_ns=arrival_ns[order],
            prompt_tokens=np.array(self.prompt_tokens, dtype=np.int64)[order],
            output_tokens=np.array(self.output_tokens, dtype=np.int64)[order],
            session=_dense([self.session[row] for row in order]),
            successor=np.where(successor >= 0, rank[successor], -1)[order],
            successor_delay_ns=delay_ns[order],
            prefix_start=start,
            prefix_ids=ids,
            prefix_block_tokens=prefix_block_tokens if prefixes else 0,
            timed=timed,
            dropped=tuple(self.dropped.items()),
            notes=(*notes, *self._notes(timed)),
        )

    def _times(self) -> tuple[Ints, bool]:
        """Arrival of each row from the first one on (-1: it follows another), and whether there are times."""
        starts = [row for row, after_ns in enumerate(self.follows_after_ns) if after_ns is None]
        arrivals = [at for row in starts if (at := self.arrival_ns[row]) is not None]
        first = min(arrivals, default=0)
        times = np.full(len(self.arrival_ns), -1, dtype=np.int64)
        for row in starts:
            at = self.arrival_ns[row]
            if at is None and arrivals:
                missing = Problem(
                    field="timestamp", message="missing", allowed="other rows have a time, so must this"
                )
                self.broken(self.line[row], missing)
            since = 0 if at is None else at - first
            if since > LATEST_S * NS_PER_S:
                message = f"comes {since / NS_PER_S:.3g} s after the first"
                allowed = f"must be within {LATEST_S:.0e} s"
                self.broken(self.line[row], Problem(field="timestamp", message=message, allowed=allowed))
                if self.full:
                    break
                continue
            times[row] = since
        return times, bool(arrivals)

    def _links(self) -> tuple[Ints, Ints]:
        """For each row the one that follows it in its session (-1: none), and how long after it ends, ns."""
        successor = np.full(len(self.session), -1, dtype=np.int64)
        delay_ns = np.zeros(len(self.session), dtype=np.int64)
        last: dict[str, int] = {}
        for row, (name, after_ns) in enumerate(zip(self.session, self.follows_after_ns, strict=True)):
            if name is None:
                continue
            if after_ns is not None:
                successor[last[name]] = row
                delay_ns[last[name]] = after_ns
            last[name] = row
        return successor, delay_ns

    def _notes(self, timed: bool) -> list[str]:
        name = Path(self.file).name
        notes = (
            [f"{name}: {_counted(len(self.prompt_tokens), 'request')}{self._left_out()}"]
            if self.dropped
            else []
        )
        return notes if timed else [*notes, f"{name} has no times: all requests arrive at once"]

    def _left_out(self) -> str:
        return "".join(
            f", {_counted(count, 'row')} with {reason} dropped" for reason, count in self.dropped.items()
        )


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _issue_keys(arrival_ns: Ints, successor: Ints) -> Ints:
    """The time to sort by (n,): its own, or that of the row it follows."""
    keys = arrival_ns.copy()
    for row in np.flatnonzero(successor >= 0):  # a successor stands behind its predecessor in the file
        keys[successor[row]] = max(keys[row], keys[successor[row]])
    return keys


def _dense(names: Sequence[str | None]) -> Ints:
    """Names as 0, 1, … in order of appearance (n,); None as -1."""
    codes: dict[str, int] = {}
    return np.array(
        [-1 if name is None else codes.setdefault(name, len(codes)) for name in names], dtype=np.int64
    )
