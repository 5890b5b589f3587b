"""Optional dependencies: imported when needed, with a one-line error if they are missing."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from simulator.errors import InputError, Problem

_INSTRUCTIONS = {
    "torch": "on a machine without a GPU install torch from PyTorch's CPU index first: "
    "pip install torch --index-url https://download.pytorch.org/whl/cpu; then "
}
"""Module → instructions before the extra is installed."""


def need(module: str, extra: str) -> ModuleType:
    """Import and return a module. Raises InputError that names the extra of decodesim with this module.

    If an installed module cannot be imported (for example, because its own dependency is missing), the error
    has that reason.
    """
    try:
        return import_module(module)
    except (ImportError, OSError) as error:  # OSError: a shared library is missing
        missing = getattr(error, "name", None) or ""
        not_installed = missing == module or module.startswith(f"{missing}.")
        message = f"{module} is not installed" if not_installed else f"{module} cannot be imported: {error}"
        first = _INSTRUCTIONS.get(module.partition(".")[0], "")
        raise InputError(
            Problem(message=message, allowed=f"{first}pip install 'decodesim[{extra}]'")
        ) from error
