"""The only module that imports numba: `compiled()` turns a plain function into machine code on first use.

It is imported when a module of the step is imported, so that commands which simulate nothing start fast.

The on-disk cache is a folder named after the source of all of `simulator/`, numba, Python and the processor.
numba itself checks only the file of the function, so after an edit to a callee in another file it would
return the old machine code.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def cache_folder() -> Path:
    """Return the folder for machine code of exactly this source, at its path, numba, Python and processor.

    It lies below `NUMBA_CACHE_DIR` where that is set, else in the user's cache.
    """
    import numba

    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(str(source).encode())  # numba looks machine code up by the path of its source too
        digest.update(source.read_bytes())
    digest.update(f"{numba.__version__} {sys.version} {platform.machine()}".encode())
    root = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    return Path(root or Path.home() / ".cache") / "decodesim" / digest.hexdigest()[:20]


@cache
def kept_in() -> Path | None:
    """Return the folder, made on demand, in which numba keeps machine code; None where it cannot be written.

    numba would then use folders next to the source, which no digest protects from old code.
    """
    import numba

    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    numba.config.CACHE_DIR = str(folder)  # type: ignore[attr-defined]
    return folder if os.access(folder, os.W_OK) else None


def is_compiled() -> bool:
    """Return whether an earlier run has left its machine code."""
    folder = kept_in()
    return folder is not None and any(folder.rglob("*.nbi"))


def compiled(*, inline: bool = False, entry: bool = False) -> Callable[[F], F]:
    """Compile a function with numba when it is first called.

    Integers may wrap around, as the 64-bit hash intends. `inline` copies the function into its compiled
    callers. `entry` marks a function that Python calls: its machine code, callees included, is kept on disk.
    """
    import numba

    options: dict[str, Any] = {"error_model": "numpy", "boundscheck": False}
    options |= {"forceinline": inline, "cache": entry and kept_in() is not None}

    def wrap(function: F) -> F:
        machine_code: F = numba.njit(**options)(function)
        return machine_code

    return wrap


def _pointer() -> Any:
    from numba import types
    from numba.extending import intrinsic

    def typed(context: Any, address: Any) -> Any:
        def build(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], target.get_value_type(signature.return_type))

        return types.voidptr(address), build

    return intrinsic(typed)


pointer: Callable[[int], Any] = _pointer()
"""For compiled callers: the memory at an address, as an untyped pointer."""


def _float_bits() -> Any:
    from numba import types
    from numba.extending import intrinsic

    def typed(context: Any, value: Any) -> Any:
        def build(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.bitcast(arguments[0], target.get_value_type(signature.return_type))

        return types.int64(types.float64), build

    return intrinsic(typed)


float_bits: Callable[[float], int] = _float_bits()
"""For compiled callers: the 64 bits of a float64 as an integer."""
