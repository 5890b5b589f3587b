"""Reads a store: its columns, and its cells as rows or arrays, filtered by SQL. It may grow meanwhile."""

from __future__ import annotations

import json
import os
import sqlite3
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from experiments.conditions import condition_sql, display_names, quoted, short_names
from experiments.store.columns import SETTING, TEXT, StoreColumn, sorted_columns
from experiments.store.file import bad_store, explained, network_file_system, require_store
from simulator.errors import InputError, Problem, unknown_name

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_ROWS = 2000
"""Rows fetched together."""

_LONGEST_BYTES = 50_000_000
"""Bytes of an intermediate value of a condition."""
_LONGEST_S = 60.0
"""Time limit of a condition for the next rows, s; those of 100,000 cells take a second."""
_STEPS = 1_000_000
"""Instructions of SQLite's virtual machine between checks of the time."""

_READING = frozenset((sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION))
"""The only operations that a condition may use: it cannot write, attach or set anything."""


class StoreReader:
    """An open store, read only; a context manager.

    Each call sees the cells that are there when it begins. With `one_state`, all calls see the same cells,
    whatever a sweep writes meanwhile. Raises InputError for what is no store.
    """

    def __init__(self, path: str | Path, one_state: bool = False) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            message = "is a folder" if self.path.is_dir() else "is not there"
            raise bad_store(self.path, message, "STORE is a file that `decodesim sweep` wrote")
        with explained(self.path):
            self._connection = _connect(self.path)
            if one_state:
                self._connection.execute("BEGIN")
            require_store(self.path, self._connection)
            self._connection.set_authorizer(_authorize)
            self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_BYTES)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the file go."""
        self._connection.close()

    @property
    def about(self) -> Mapping[str, str]:
        """`study`: the study's document as JSON; `version`: that of the code which computed the cells."""
        with explained(self.path):
            return dict(self._connection.execute("SELECT name, value FROM about"))

    def study(self) -> Any:
        """The document of the study."""
        return json.loads(self.about["study"])

    def columns(self) -> tuple[StoreColumn, ...]:
        """The columns there are now, in an order that does not depend on the order of the cells."""
        with explained(self.path):
            rows = self._connection.execute("SELECT name, role, kind, unit, meaning FROM columns")
            return sorted_columns(StoreColumn(*row) for row in rows.fetchall())

    def counts(self, where: str | None = None) -> dict[str, int]:
        """Status → number of cells."""
        sql = "SELECT status, count(*) FROM cells {where} GROUP BY status ORDER BY status"
        return dict(self._query(sql, where))

    def reasons(self, where: str | None = None) -> list[tuple[str, str, int]]:
        """(status, error, number of cells) of the cells that have no figures, most frequent first."""
        sql = (
            "SELECT status, error, count(*) FROM cells {where} AND status != 'done' "
            "GROUP BY status, error ORDER BY count(*) DESC, status, error"
        )
        return list(self._query(sql, where))

    def shared(self, where: str | None = None) -> dict[str, Any]:
        """Setting → its value, of those that have the same in all cells."""
        settings = [column.name for column in self.columns() if column.role == SETTING]
        if not settings:
            return {}
        ends = ", ".join(f"min({quoted(name)}), max({quoted(name)})" for name in settings)
        (bounds,) = self._query(f"SELECT {ends} FROM cells {{where}}", where)
        pairs = zip(settings, bounds[::2], bounds[1::2], strict=True)
        return {name: low for name, low, high in pairs if low == high}

    def rows(
        self, where: str | None = None, columns: Sequence[str] | None = None
    ) -> Iterator[dict[str, Any]]:
        """The cells: column → value, None where there is none, of the columns asked for or of all.

        `where`: an SQL expression over the columns. In order of the settings. Raises InputError.
        """
        names = [column.name for column in self.columns_named(columns)]
        for values in self.values(where, names):
            yield dict(zip(names, values, strict=True))

    def values(self, where: str | None, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """`rows` as bare tuples, in the order of the columns."""
        names = [quoted(column.name) for column in self.columns_named(columns)]
        settings = [quoted(column.name) for column in self.columns() if column.role == SETTING]
        order = ", ".join([*settings, "key"])
        return self._query(f"SELECT {', '.join(names)} FROM cells {{where}} ORDER BY {order}", where)

    def arrays(
        self, where: str | None = None, columns: Sequence[str] | None = None
    ) -> dict[str, npt.NDArray[np.float64] | npt.NDArray[np.object_]]:
        """Column → its values (cells,): float64 with NaN for what is missing, text as objects."""
        import numpy as np

        named_columns = self.columns_named(columns)
        kinds = [object if column.kind == TEXT else np.float64 for column in named_columns]
        rows = self.values(where, [column.name for column in named_columns])
        pieces = [[np.array((), kind)] for kind in kinds]
        while piece := list(islice(rows, _ROWS)):
            for parts, kind, values in zip(pieces, kinds, zip(*piece, strict=True), strict=True):
                parts.append(np.array(values, kind))
        return {
            column.name: np.concatenate(parts) for column, parts in zip(named_columns, pieces, strict=True)
        }

    def columns_named(self, names: Sequence[str] | None) -> tuple[StoreColumn, ...]:
        """The columns with these names, in full or by a unique last part; None: all.

        Raises InputError for an unknown column.
        """
        columns = {column.name: column for column in self.columns()}
        if names is None:
            return tuple(columns.values())
        if not names:
            allowed = f"one or more of {', '.join(display_names(list(columns)))}"
            raise InputError(Problem(message="names no column", allowed=allowed))
        short = short_names(columns)
        missing = [name for name in names if name not in columns and name not in short]
        if missing:
            raise InputError([unknown_name("column", name, display_names(list(columns))) for name in missing])
        return tuple(columns[short.get(name, name)] for name in names)

    def scenario(self, key: str) -> str:
        """The scenario of the only cell whose key starts with `key`, as JSON. Raises InputError."""
        with explained(self.path):
            rows = self._connection.execute(
                "SELECT scenario FROM scenarios WHERE key >= ? AND key < ? LIMIT 2", (key, key + "g")
            ).fetchall()
        if len(rows) != 1:
            message = "names several cells" if rows else "names no cell"
            raise InputError(Problem(file=str(self.path), field="key", value=key, message=message))
        return decompress_scenario(rows[0][0], self.about["dictionary"])

    def _query(self, sql: str, where: str | None) -> Iterator[tuple[Any, ...]]:
        """The rows of a statement with the placeholder `{where}`. Raises InputError."""
        condition = "TRUE"
        if where is not None:
            condition = condition_sql(where, [column.name for column in self.columns()])
        statement = sql.replace("{where}", f"WHERE ({condition}\n)")
        return self._rows_of(statement, where)

    def _rows_of(self, statement: str, where: str | None) -> Iterator[tuple[Any, ...]]:
        started_s = time.monotonic()

        def too_long() -> bool:
            return time.monotonic() - started_s > _LONGEST_S

        with explained(self.path):
            self._connection.set_progress_handler(too_long if where is not None else None, _STEPS)
            try:
                cursor = self._connection.execute(statement)
                while rows := cursor.fetchmany(_ROWS):
                    yield from rows
                    started_s = time.monotonic()
            except sqlite3.DatabaseError as error:
                if where is None:
                    raise
                if str(error) != "interrupted":
                    raise InputError(Problem(value=where, message=f"is not a condition: {error}")) from error
                if not too_long():  # Ctrl-C stopped it, and SQLite does not pass that on
                    raise KeyboardInterrupt from None
                message = f"takes more than {_LONGEST_S:.0f} s"
                raise InputError(Problem(value=where, message=message)) from error


def compress_scenario(scenario: str, dictionary: str) -> bytes:
    """A scenario, compressed against one that is much like it."""
    packer = zlib.compressobj(level=6, zdict=dictionary.encode())
    return packer.compress(scenario.encode()) + packer.flush()


def decompress_scenario(data: bytes, dictionary: str) -> str:
    """The scenario that `packed` packed."""
    return zlib.decompressobj(zdict=dictionary.encode()).decompress(data).decode()


def _connect(path: Path) -> sqlite3.Connection:
    """A read-only connection. Without write access to the folder, SQLite needs `immutable`."""
    log = path.with_name(path.name + "-wal")
    network = network_file_system(path)
    if network and log.exists():
        message = f"is on a network file system ({network}), and its last run did not end"
        raise bad_store(path, message, "copy it to a local disk, together with its -wal file")
    immutable = (network or not os.access(path.parent, os.W_OK)) and not log.exists()
    uri = f"{path.resolve().as_uri()}?mode=ro{'&immutable=1' if immutable else ''}"
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)


def _authorize(action: int, *_: object) -> int:
    return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY
