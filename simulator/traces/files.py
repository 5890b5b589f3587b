"""Opening trace files: plain or gzip, any line ends, with what goes wrong as an input error."""

from __future__ import annotations

import csv
import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO, cast

from simulator.errors import InputError, Problem
from simulator.traces.fields import RowError

_HEAD_CHARACTERS = 1 << 20
_LINE_CHARACTERS = 1 << 24
"""Of one line: more than a request with its whole prompt has."""
_DOCUMENT_CHARACTERS = 1 << 29
"""Of a file that is read at once, unpacked."""
_BETWEEN = re.compile(r"[\s,]*")


@contextmanager
def opened(path: Path) -> Iterator[TextIO]:
    """The file's text as UTF-8 (a byte order mark is skipped), unpacked when the name ends in `.gz`.

    Raises InputError for a file that cannot be opened or read, also while the caller reads.
    """
    try:
        with _open(path) as text:
            yield text
    except FileNotFoundError:
        raise _cannot(path, "no such file") from None
    except IsADirectoryError:
        raise _cannot(path, "this is a folder, not a file") from None
    except UnicodeDecodeError as error:
        raise _cannot(
            path, f"not a UTF-8 text file (byte {error.start} is {error.object[error.start]:#04x})"
        ) from None
    except (OSError, EOFError, zlib.error) as error:
        raise _cannot(path, f"cannot be read: {error}") from None


def head_of(path: Path) -> str:
    """The first line that is not blank (its first million characters), by which formats are recognised.

    Where that line is only the bracket that opens a JSON document, as much of the document.
    """
    with opened(path) as text:
        for line in iter(lambda: text.readline(_HEAD_CHARACTERS), ""):
            if line.strip() in ("{", "["):
                return (line + text.read(_HEAD_CHARACTERS)).strip()
            if line.strip():
                return line.strip()
    raise _cannot(path, "the file is empty")


def whole_text(path: Path) -> str:
    """The text of a file that is read at once. Raises InputError where it is too large for that."""
    with opened(path) as source:
        text = source.read(_DOCUMENT_CHARACTERS + 1)
    if len(text) > _DOCUMENT_CHARACTERS:
        limit = f"at most {_DOCUMENT_CHARACTERS:,} characters, unpacked"
        raise InputError(Problem(str(path), message="is too large", allowed=limit))
    return text


def lines_of(text: TextIO, path: Path) -> Iterator[str]:
    """The lines of a file. Raises InputError for a line that is longer than memory should hold: a small
    compressed file can unpack to one of gigabytes.
    """
    for number, line in enumerate(iter(lambda: text.readline(_LINE_CHARACTERS), ""), start=1):
        if len(line) == _LINE_CHARACTERS:
            limit = f"at most {_LINE_CHARACTERS:,} characters"
            raise InputError(Problem(str(path), number, message="the line is too long", allowed=limit))
        yield line


TraceRow = Mapping[str, object]
"""One row: values by lower-case column name (CSV), or a JSON object."""


def csv_rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, TraceRow | RowError]]:
    """Line number and row of each line that is not blank; a RowError where it has too many fields.

    Fields go by name, whatever the order of columns. A row that is too short lacks its last fields. Raises
    InputError when the header lacks one of `columns`.
    """
    with opened(path) as text:
        rows = csv.reader(lines_of(text, path))
        try:
            names = [name.strip().lower() for name in next(rows, [])]
            lacking = [column for column in columns if column.lower() not in names]
            if lacking:
                header = ", ".join(names) or "nothing"
                raise InputError(
                    Problem(
                        file=str(path),
                        line=1,
                        message=f"no column {lacking[0]!r}",
                        allowed=f"the header has {header}",
                    )
                )
            for row in rows:
                if any(row[len(names) :]):
                    yield (
                        rows.line_num,
                        RowError("", len(row), "too many fields", f"the header has {len(names)}"),
                    )
                elif any(row):
                    yield rows.line_num, dict(zip(names, (value.strip() for value in row), strict=False))
        except csv.Error as error:
            raise InputError(
                Problem(file=str(path), line=rows.line_num, message=f"not CSV: {error}")
            ) from None


def json_lines(path: Path) -> Iterator[tuple[int, TraceRow | RowError]]:
    """Line number and object of each line that is not blank; a RowError where a line is not a JSON object."""
    with opened(path) as text:
        for number, line in enumerate(lines_of(text, path), start=1):
            if line.strip():
                yield number, _object(line)


def json_objects(path: Path) -> Iterator[tuple[int, TraceRow | RowError]]:
    """Line number and object of each JSON document in a file, or of each element of a list."""
    text = whole_text(path)
    decoder = json.JSONDecoder()
    listed = text.lstrip().startswith("[")
    at = _skip(text, text.index("[") + 1 if listed else 0)
    line, counted = 1, 0
    while at < len(text) and not (listed and text[at] == "]"):
        line, counted = line + text.count("\n", counted, at), at
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            yield line, RowError("", None, f"not JSON: {error}")
            return
        yield line, as_object(value)
        at = _skip(text, at)
    if listed and at >= len(text):
        yield line, RowError("", None, "the list has no end", "must end in ]")


def as_object(value: object) -> TraceRow | RowError:
    """`value` when it is a JSON object, else what is wrong with it."""
    if isinstance(value, dict):
        return cast(TraceRow, value)
    return RowError("", value, "not a JSON object", 'must be {"name": value, …}')


def _skip(text: str, at: int) -> int:
    """The next position that is neither white space nor a comma."""
    match = _BETWEEN.match(text, at)
    return match.end() if match else at


def _object(line: str) -> TraceRow | RowError:
    try:
        return as_object(json.loads(line))
    except (ValueError, RecursionError) as error:
        return RowError("", None, f"not JSON: {error}")


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return cast(TextIO, gzip.open(path, "rt", encoding="utf-8-sig", newline=""))
    return path.open(encoding="utf-8-sig", newline="")


def _cannot(path: Path, message: str) -> InputError:
    return InputError(Problem(file=str(path), message=message))
