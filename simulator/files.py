"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


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
