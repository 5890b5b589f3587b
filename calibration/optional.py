"""Optional dependencies: imported when they are needed, and one clear line where they are missing."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from simulator.errors import InputError, Problem

_FIRST = {
    "torch": "on a machine without a GPU install torch from PyTorch's CPU index first: "
    "pip install torch --index-url https://download.pytorch.org/whl/cpu; then "
}
"""What to do before the extra, per module."""


def need(module: str, extra: str) -> ModuleType:
    """The module, imported. Raises InputError that names the extra of decodesim which brings it.

    A module that is there but lacks something of its own (an `ImportError` that names another one) is said
    with that reason.
    """
    try:
        return import_module(module)
    except (ImportError, OSError) as error:  # OSError: a shared library of it is not there
        lacking = getattr(error, "name", None) or ""
        own = lacking == module or module.startswith(f"{lacking}.")
        message = f"{module} is not installed" if own else f"{module} cannot be imported: {error}"
        first = _FIRST.get(module.partition(".")[0], "")
        raise InputError(
            Problem(message=message, allowed=f"{first}pip install 'decodesim[{extra}]'")
        ) from error
