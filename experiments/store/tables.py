"""The tables of a store: creating, checking and deleting them."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import astuple
from pathlib import Path

from experiments.store.columns import CELL, CELL_COLUMNS, TEXT, column_with_meaning
from experiments.store.file import APPLICATION_ID, SCHEMA, bad_store, require_store

_TABLES = (
    "CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE columns (name TEXT PRIMARY KEY, role TEXT, kind TEXT, unit TEXT, meaning TEXT)",
    "CREATE TABLE cells (key TEXT PRIMARY KEY, status TEXT, error TEXT, version TEXT, seconds_s REAL)",
    "CREATE TABLE scenarios (key TEXT PRIMARY KEY, scenario BLOB)",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA}",
)
"""`cells` gets a column for each setting and metric; `StoreReader.scenario` unpacks scenarios."""


def create_tables(path: Path, about: Mapping[str, str]) -> None:
    """Create a store without cells, which appears under its name when it is complete.

    It has its write-ahead log from the start. Only a writer can undo a switch that was killed half-way, and
    the store could not be read until then.
    """
    part = path.with_name(path.name + "-new")
    _unlink(part)
    with closing(sqlite3.connect(part, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        for statement in _TABLES:
            connection.execute(statement)
        for column in (column_with_meaning(name, CELL, TEXT) for name in CELL_COLUMNS):
            connection.execute("INSERT INTO columns VALUES (?, ?, ?, ?, ?)", astuple(column))
        write_about(connection, about)
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode = WAL")
    os.replace(part, path)


def write_about(writer: sqlite3.Connection, about: Mapping[str, str]) -> None:
    """Store facts about the store, by name."""
    writer.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", about.items())


def require_same_study(path: Path, writer: sqlite3.Connection, about: Mapping[str, str]) -> None:
    """Raises InputError for a store of another study, or with cells that other code made."""
    require_store(path, writer)
    stored = dict(writer.execute("SELECT name, value FROM about"))
    if stored["study_sha256"] != about["study_sha256"]:
        name = json.loads(stored["study"]).get("name") or "no name"
        allowed = "choose another one with --out, or replace it with --fresh"
        raise bad_store(path, f"is the store of another study ({name})", allowed)
    if stored["version"] != about["version"] and writer.execute("SELECT 1 FROM cells LIMIT 1").fetchone():
        message = f"holds cells of decodesim {stored['version']}, and this is {about['version']}"
        allowed = "its figures may differ: --fresh, or another store with --out; `results` reads both"
        raise bad_store(path, message, allowed)


def remove_store(path: Path) -> None:
    """Delete a store. Raises InputError for any other file."""
    with closing(sqlite3.connect(path)) as connection:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION_ID:
        raise bad_store(path, "is not a store of decodesim", "the name of a new file")
    _unlink(path)


def _unlink(path: Path) -> None:
    """Remove a database and the files that SQLite keeps next to it."""
    for end in ("", "-journal", "-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
