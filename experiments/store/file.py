"""The file of a store: checks, the writer's lock, and errors of SQLite as one line."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from simulator.errors import InputError, Problem, reason

APPLICATION_ID = 0x64656373
"""In the header of every store (`PRAGMA application_id`): "decs"."""
SCHEMA = 1
"""Version of the tables (`PRAGMA user_version`)."""

MOUNTS = Path("/proc/mounts")
NETWORK = frozenset(
    "nfs nfs4 cifs smb3 smbfs afs ceph lustre gpfs beegfs pvfs2 glusterfs fuse.glusterfs fuse.sshfs "
    "fuse.s3fs fuse.gcsfuse fuse.rclone davfs fuse.davfs2 ncpfs".split()
)
"""File systems on which several machines may write: SQLite's write-ahead log needs shared memory instead."""

_RERUN_HINT = "all finished cells are kept; a second run does the rest"


def bad_store(path: Path, message: str, allowed: str | None = None) -> InputError:
    """The error for a problem with a store."""
    return InputError(Problem(file=str(path), message=message, allowed=allowed))


def require_local(path: Path) -> None:
    """Raises InputError for a path on a network file system."""
    file_system = network_file_system(path)
    if file_system:
        allowed = "choose a local disk, e.g. --out /tmp/study.db, and copy the store when it is done"
        raise bad_store(
            path, f"is on a network file system ({file_system}), which cannot hold a store", allowed
        )


def network_file_system(path: Path) -> str | None:
    """The network file system that holds a path; None for a local disk, or where it is unknown."""
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    real_path = os.path.realpath(path)
    longest_mount, kind = "", None
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        mount = fields[1].replace("\\040", " ")
        if len(mount) >= len(longest_mount) and os.path.commonpath([real_path, mount]) == mount:
            longest_mount, kind = mount, fields[2]
    return kind if kind in NETWORK else None


def require_store(path: Path, connection: sqlite3.Connection) -> None:
    """Raises InputError unless the open file is a store of this schema."""
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (schema,) = connection.execute("PRAGMA user_version").fetchone()
    if application_id != APPLICATION_ID:
        raise bad_store(path, "is not a store of decodesim", "STORE is a file that `decodesim sweep` wrote")
    if schema != SCHEMA:
        older = "older" if schema < SCHEMA else "newer"
        message = f"is a store of schema {schema}, and this version reads schema {SCHEMA}"
        raise bad_store(path, message, f"use the {older} decodesim that wrote it, or sweep anew with --fresh")
    about = dict(connection.execute("SELECT name, value FROM about"))
    try:
        complete = isinstance(json.loads(about["study"]), dict) and {"study_sha256", "version"} <= set(about)
    except (KeyError, TypeError, ValueError):
        complete = False
    if not complete:
        raise bad_store(path, "is damaged: it does not name its study", "sweep anew with --fresh")


def _is_full(path: Path) -> bool:
    """Whether the disk is full; SQLite may then report another error, for example at the log's index."""
    try:
        return shutil.disk_usage(path.parent).free < 1 << 16
    except OSError:
        return False


@contextmanager
def undamaged(path: Path) -> Iterator[None]:
    """Turns what values of a wrong kind lead to into InputError."""
    try:
        yield
    except InputError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        allowed = "sweep anew with --fresh; `decodesim results --columns` may still read other columns"
        raise bad_store(path, f"is damaged: {error or type(error).__name__}", allowed) from error


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turns errors of SQLite into InputError."""
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        text = str(error)
        no_room = name.startswith("SQLITE_IOERR") and _is_full(path)
        if name.startswith("SQLITE_FULL") or "disk is full" in text or no_room:
            raise bad_store(path, "the disk is full", f"make room: {_RERUN_HINT}") from error
        if name.startswith("SQLITE_NOTADB") or "not a database" in text:
            allowed = "STORE is a file that `decodesim sweep` wrote"
            raise bad_store(path, "is not a store of decodesim", allowed) from error
        if name.startswith("SQLITE_CORRUPT"):
            allowed = "sweep anew with --fresh"
            raise bad_store(path, f"is damaged: {text}", allowed) from error
        if name.startswith("SQLITE_READONLY"):
            raise bad_store(path, "cannot be written", "choose another place with --out") from error
        raise bad_store(path, f"cannot be used: {text}") from error


@contextmanager
def writers_lock(path: Path) -> Iterator[None]:
    """Locks a store for writing until the block or this process ends.

    Raises InputError when another process writes it, or the path cannot be written.
    """
    place = path.with_name(path.name + "-lock")
    while True:
        try:
            descriptor = os.open(place, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise bad_store(path, f"cannot be written: {reason(error)}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            allowed = "wait for it, or choose another store with --out"
            raise bad_store(path, "another run is writing this store", allowed) from None
        if _is_open_file(descriptor, place):
            break
        os.close(descriptor)  # its last holder removed it between our opening and our locking
    try:
        yield
    finally:
        place.unlink(missing_ok=True)
        os.close(descriptor)


def _is_open_file(descriptor: int, place: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(place))
    except FileNotFoundError:
        return False
