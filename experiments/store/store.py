"""The store of a study: one SQLite file, one row per cell, written by the driver alone.

A cell is on disk as soon as it is added: whatever is killed afterwards, it is there. Readers never wait
(write-ahead log), and see the store grow. Columns come as figures do; `columns` documents each.
"""

from __future__ import annotations

import json
import math
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from experiments.conditions import as_column, quoted
from experiments.store.columns import (
    BAND,
    CELL_COLUMNS,
    CI95,
    KINDS,
    METRIC,
    SETTING,
    column_with_meaning,
    kind_of,
)
from experiments.store.file import bad_store, explained, require_local, writers_lock
from experiments.store.reader import StoreReader, compress_scenario
from experiments.store.tables import create_tables, remove_store, require_same_study, write_about

if TYPE_CHECKING:
    from experiments.cell import Cell, CellResult, MetricValue

MAX_COLUMNS = 1900
"""SQLite takes 2,000."""
SYNCED_EVERY_S = 0.5
"""Within this time a finished cell survives a loss of power; the death of the process it survives at once."""


class Store(StoreReader):
    """A store open for writing; a context manager. A file has one writer at a time."""

    def __init__(self, path: Path, writer: sqlite3.Connection, resources: ExitStack) -> None:
        super().__init__(path)
        self._writer, self._resources = writer, resources
        self._kinds = self._known_kinds()
        self._dictionary = self.about.get("dictionary")
        self._synced_s = -SYNCED_EVERY_S

    @classmethod
    def create_or_open(
        cls, path: str | Path, study: Mapping[str, Any], study_sha: str, *, fresh: bool = False
    ) -> Self:
        """The store at a path, made on demand; `fresh` does away with one that is there.

        `study`: the document that is kept with the cells; `study_sha`: what makes it this study, the same
        when it is only enlarged. Raises InputError when the place cannot hold a store, or holds something
        else, another study, or cells of other code.
        """
        from experiments.cell import code_version

        path = Path(path)
        if path.is_dir():
            raise bad_store(path, "is a folder", "the name of a file in it")
        if path.exists() and not path.is_file():  # a device, say: it must not give way to a file
            raise bad_store(path, "is no plain file", "the name of a file that is not there yet")
        if not path.parent.is_dir():
            raise bad_store(path, "cannot be written: its folder is not there")
        require_local(path)
        with ExitStack() as resources, explained(path):
            resources.enter_context(writers_lock(path))
            if fresh and path.exists():
                remove_store(path)
            about = {
                "study": json.dumps(study, ensure_ascii=False),
                "study_sha256": study_sha,
                "version": code_version(),
            }
            if not path.exists() or not path.stat().st_size:
                create_tables(path, about)
            writer = sqlite3.connect(path, isolation_level=None, timeout=30)
            resources.callback(writer.close)
            require_same_study(path, writer, about)
            if writer.execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
                raise bad_store(path, "cannot be read here while it grows", "choose a local disk with --out")
            write_about(writer, about)
            return cls(path, writer, resources.pop_all())

    def close(self) -> None:
        """Let the file go; the log is written back into it."""
        super().close()
        with explained(self.path):
            self._resources.close()

    def __contains__(self, key: str) -> bool:
        """Whether the cell of this key is there, done or not."""
        with explained(self.path):
            return self._writer.execute("SELECT 1 FROM cells WHERE key = ?", (key,)).fetchone() is not None

    def add(self, cell: Cell, result: CellResult) -> None:
        """Keep what came of a cell, in place of what was there. Raises InputError: the disk is full, say."""
        from experiments.cell import code_version

        about = (result.key, result.status, result.error, code_version(), result.seconds_s)
        settings = {path: as_column(value) for path, value in cell.settings.items()}
        metrics = {name: value for pair in result.metrics.items() for name, value in _metric_columns(*pair)}
        with self._transaction():
            self._add_columns(settings, SETTING)
            self._add_columns(metrics, METRIC)
            row = dict(zip(CELL_COLUMNS, about, strict=True)) | settings | metrics
            row = {name: value for name, value in row.items() if name in self._kinds}
            names, marks = ", ".join(map(quoted, row)), ", ".join("?" * len(row))
            self._writer.execute(
                f"INSERT OR REPLACE INTO cells ({names}) VALUES ({marks})", tuple(row.values())
            )
            if self._dictionary is None:
                self._dictionary = cell.scenario
                write_about(self._writer, {"dictionary": cell.scenario})
            scenario = compress_scenario(cell.scenario, self._dictionary)
            self._writer.execute("INSERT OR REPLACE INTO scenarios VALUES (?, ?)", (result.key, scenario))

    def _add_columns(self, values: Mapping[str, Any], role: str) -> None:
        """Make the columns that these values need, or note that one holds more than it did."""
        for name, value in values.items():
            kind, known_kind = kind_of(value), self._kinds.get(name)
            if kind is None or (known_kind is not None and KINDS.index(kind) <= KINDS.index(known_kind)):
                continue
            if known_kind is None:
                if len(self._kinds) >= MAX_COLUMNS:
                    message = f"cannot hold more than {MAX_COLUMNS:,} columns"
                    raise bad_store(self.path, message, "name the metrics that you need under `keep`")
                self._writer.execute(f"ALTER TABLE cells ADD COLUMN {quoted(name)} {kind.upper()}")
            column = column_with_meaning(name, role, kind)
            self._writer.execute(
                "INSERT OR REPLACE INTO columns VALUES (?, ?, ?, ?, ?)",
                (name, role, kind, column.unit, column.meaning),
            )
            self._kinds[name] = kind

    def _known_kinds(self) -> dict[str, str]:
        return {column.name: column.kind for column in self.columns()}

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing of what the block writes; now and then it waits until that is on the disk."""
        sync = time.monotonic() - self._synced_s >= SYNCED_EVERY_S
        with explained(self.path):
            self._writer.execute(f"PRAGMA synchronous = {'FULL' if sync else 'NORMAL'}")
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._writer.execute("COMMIT")
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                self._kinds, self._dictionary = self._known_kinds(), self.about.get("dictionary")
                raise
        if sync:
            self._synced_s = time.monotonic()


def _metric_columns(name: str, metric: MetricValue) -> Iterator[tuple[str, float | str]]:
    """The columns of a metric: its value, and the ends of the intervals that it has."""
    if not isinstance(metric, Mapping):
        if isinstance(metric, str) or math.isfinite(metric):
            yield name, metric
        return
    yield name, metric["value"]
    for kind, ends in (("ci95", CI95), ("band", BAND)):
        if metric.get(kind) is not None:
            yield from ((f"{name}.{end}", value) for end, value in zip(ends, metric[kind], strict=True))
