"""Files that are there whole or not at all, and files that are read only up to a size."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from simulator.errors import InputError, Problem, reason

MOST_JSON_BYTES = 1 << 28
"""Of a JSON file that a command reads: more than any result has."""


def read_json(path: Path, most_bytes: int = MOST_JSON_BYTES) -> Any:
    """The data of a JSON file. Raises InputError: missing, too large, no text, or as `parse_json`."""
    file = str(path)
    try:
        with path.open("rb") as stream:
            content = stream.read(most_bytes + 1)
        text = content.decode("utf-8-sig") if len(content) <= most_bytes else None
    except OSError as error:
        raise InputError(Problem(file, message=f"cannot be read: {reason(error)}")) from error
    except UnicodeDecodeError as error:
        raise InputError(Problem(file, message="is not UTF-8 text")) from error
    if text is None:
        raise InputError(Problem(file, message=f"is larger than {most_bytes / 1e6:,.0f} MB"))
    return parse_json(text, file)


def parse_json(text: str, file: str | None) -> Any:
    """The data of a JSON text. Raises InputError with the place where it stops being JSON."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        problem = Problem(file, error.lineno, error.colno, message=f"is not JSON: {error.msg}")
        raise InputError(problem) from None
    except RecursionError:
        raise InputError(Problem(file, message="is not JSON: nested too deeply")) from None
    except ValueError as error:  # a whole number of thousands of digits
        raise InputError(Problem(file, message=f"is not usable: {error}")) from None


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a file next to `path` to write; it takes that name when the block ends without an error, else it
    is deleted.

    What was there before stays until then. Raises OSError where it cannot be written.
    """
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        yield part
        os.replace(part, path)
    finally:
        with suppress(OSError):  # a name that is too long, for example, has none
            part.unlink(missing_ok=True)
