"""The one place where numba is met: `compiled()` turns a plain function into machine code on first use.

numba is imported only here, and only when a module of the step is imported, so that commands which simulate
nothing start fast. The on-disk cache lives in a folder named after the source of the whole `simulator`
package, numba, Python and the processor: numba checks only the file of the function itself, so after an edit
to a callee in another file it would hand back the old machine code.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def cache_folder() -> Path:
    """Return the folder for machine code of exactly this source, numba, Python and processor.

    numba creates it when it first writes there.
    """
    import numba

    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(source.name.encode())
        digest.update(source.read_bytes())
    digest.update(f"{numba.__version__} {sys.version} {platform.machine()}".encode())
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "decodesim" / digest.hexdigest()[:20]


_PREPARED = False


def _prepare() -> None:
    global _PREPARED
    if not _PREPARED:
        import numba

        if "NUMBA_CACHE_DIR" not in os.environ:
            numba.config.CACHE_DIR = str(cache_folder())  # type: ignore[attr-defined]
        _PREPARED = True


def compiled(*, inline: bool = False, entry: bool = False) -> Callable[[F], F]:
    """Compile a function with numba when it is first called.

    Integer wrap-around of the 64-bit hash is intended. `inline` pastes the function into its compiled
    callers; `entry` marks one that Python calls: its machine code, callees included, is kept on disk.
    """
    _prepare()
    import numba

    options: dict[str, Any] = {"error_model": "numpy", "boundscheck": False}
    options |= {"forceinline": inline, "cache": entry}

    def wrap(function: F) -> F:
        made: F = numba.njit(**options)(function)
        return made

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
