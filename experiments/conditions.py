"""Conditions on cells: SQL expressions over named columns, the one language of `where` in a study file and of
`results --where`.

A column is called by its full name (`workload.arrivals.concurrency`, quoted or not), or by the last parts of
it where only one column ends so (`concurrency`, `arrivals.concurrency`).
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from simulator.errors import InputError, Problem, did_you_mean

Value = float | str | None
"""What a column may hold: a number, text, or nothing."""

_QUOTED = r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\""
_BATCH = 1000
"""Rows looked at together."""
_CALLS = 2_000_000
"""Instructions of SQLite's virtual machine per batch of rows, which stops conditions that would never end."""
_LONGEST_TEXT = 1_000_000
"""Bytes of an intermediate value, which could otherwise reach a gigabyte in one instruction."""


def short_names(columns: Iterable[str]) -> dict[str, str]:
    """Short name → column, for all ends of names that one column alone has; the shortest comes last."""
    columns_by_end: dict[str, list[str]] = {}
    names = list(columns)
    for name in names:
        parts = name.split(".")
        for start in range(1, len(parts)):
            columns_by_end.setdefault(".".join(parts[start:]), []).append(name)
    return {short: full[0] for short, full in columns_by_end.items() if len(full) == 1 and short not in names}


def display_names(columns: Sequence[str]) -> list[str]:
    """The shortest unambiguous names of the columns, without those of intervals."""
    short = {full: name for name, full in short_names(columns).items()}
    return [short.get(column, column) for column in columns if column.rpartition(".")[0] not in columns]


def as_column(value: Any) -> Value:
    """A value of an axis as a column holds it: structured ones as compact JSON, true and false as 1 and 0."""
    if isinstance(value, dict | list):
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return int(value) if isinstance(value, bool) else value


def condition_sql(condition: str, columns: Sequence[str]) -> str:
    """The condition with every column by its full name, quoted, as SQLite takes it.

    Raises InputError, without a place, for what is no condition or names no column.
    """
    sql = _with_full_names(condition, columns)
    with closing(sqlite3.connect(":memory:")) as database:
        _create_table(database, columns)
        try:
            database.execute(f"SELECT n FROM cells WHERE {sql}\n")  # one that closes our bracket is none
            database.execute(f"SELECT n FROM cells WHERE ({sql}\n)").fetchall()
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
            raise InputError(_problem(condition, str(error), columns)) from None
    return sql


class Filter:
    """Which of many rows of columns hold all of some conditions, made by `condition_sql`."""

    def __init__(self, conditions: Sequence[str], columns: Sequence[str]) -> None:
        self.conditions, self.columns = tuple(conditions), tuple(columns)
        if conditions:
            self.database = sqlite3.connect(":memory:", check_same_thread=False)
            _create_table(self.database, columns)

    def matching(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """Those rows that hold, in their order; values as axes have them. Raises InputError."""
        if not self.conditions:
            yield from rows
            return
        batch: list[Mapping[str, Any]] = []
        for row in rows:
            batch.append(row)
            if len(batch) == _BATCH:
                yield from self._matching(batch)
                batch = []
        yield from self._matching(batch)

    def _matching(self, batch: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        marks = ", ".join("?" * (1 + len(self.columns)))
        where = " AND ".join(f"({condition}\n)" for condition in self.conditions)
        self.database.execute("DELETE FROM cells")
        self.database.executemany(
            f"INSERT INTO cells VALUES ({marks})",
            ((n, *(as_column(row[name]) for name in self.columns)) for n, row in enumerate(batch)),
        )
        self.database.set_progress_handler(lambda: 1, _CALLS)
        try:
            matches = self.database.execute(f"SELECT n FROM cells WHERE {where} ORDER BY n").fetchall()
        except sqlite3.Error as error:
            raise InputError(_problem(" AND ".join(self.conditions), str(error), self.columns)) from None
        return [batch[n] for (n,) in matches]


def quoted(name: str) -> str:
    """A column's name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def _create_table(database: sqlite3.Connection, columns: Sequence[str]) -> None:
    """The table of rows; its columns have no type, so that a number stays one and text stays text."""
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_TEXT)
    database.execute(f"CREATE TABLE cells ({', '.join(['n', *map(quoted, columns)])})")


def _with_full_names(condition: str, columns: Sequence[str]) -> str:
    names = {name: name for name in columns} | short_names(columns)
    by_case = {name.lower(): full for name, full in names.items()}
    alternatives = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True)) or r"(?!)"
    pattern = re.compile(rf"{_QUOTED}|(?<![\w.])(?:{alternatives})(?![\w.(])", re.IGNORECASE)

    def full(match: re.Match[str]) -> str:
        text = match[0]
        if text.startswith("'"):
            return text
        if text.startswith('"'):
            name = text[1:-1].replace('""', '"')
            if name.lower() not in by_case:  # SQLite would take it for a text
                raise InputError(_no_column(condition, name, columns))
            text = name
        return quoted(by_case[text.lower()])

    return pattern.sub(full, condition)


def _problem(condition: str, error: str, columns: Sequence[str]) -> Problem:
    missing = re.match(r"no such column: (.*)", error)
    if missing:
        return _no_column(condition, missing[1], columns)
    if error.startswith("unrecognized token") and "\n" in error:
        error = "a quote that nothing closes"
    message = "takes too long" if error == "interrupted" else f"is not a condition: {error}"
    allowed = "an SQL expression, such as concurrency <= 64 AND alpha > 0.5"
    return Problem(value=condition, message=message, allowed=allowed)


def _no_column(condition: str, name: str, columns: Sequence[str]) -> Problem:
    names = display_names(columns)
    guess = did_you_mean(name, [*columns, *names])
    message = f"has no column {name!r}" + (f", did you mean {guess!r}?" if guess else "")
    return Problem(value=condition, message=message, allowed=f"columns: {', '.join(names)}")
