"""Makes the names of decodesim's four packages mean decodesim's, whatever the current folder holds.

Python searches the current folder first under `python -m` and in notebooks, and many projects have a folder
`experiments` there. `claim` puts a finder in front of the search path. It answers for the names in `PACKAGES`
alone; every other import works as before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

PACKAGES = ("simulator", "calibration", "experiments", "dashboards")

ROOT = next(folder for folder in Path(__file__).parents if (folder / "experiments" / "cli.py").is_file())
"""The folder of the four packages: `site-packages`, or the checkout of an editable install."""

T = TypeVar("T")


class _OwnPackages:
    """A finder for `sys.meta_path` that finds the four packages in `ROOT`."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [str(ROOT)]) if name in PACKAGES else None


class _MissingModules:
    """A finder for the end of `sys.meta_path`: it explains why a module of a user's package is not found."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package = name.partition(".")[0]
        if package in PACKAGES:
            message = f"No module named {name!r}: decodesim was imported, so {package!r} is {ROOT / package}"
            raise ModuleNotFoundError(message, name=name)
        return None


def claim() -> None:
    """Install the finders. Raises ImportError when another package already has one of the names."""
    for name in PACKAGES:
        module = sys.modules.get(name)
        if module is not None and not _is_own(module, name):
            raise ImportError(
                f"{name!r} is already imported from {_place(module)}. decodesim has a package of that name, "
                "and a process can hold only one of them: use decodesim in another process, or rename yours.",
                name=name,
            )
    if _OwnPackages not in sys.meta_path:
        sys.meta_path.insert(0, _OwnPackages)
        sys.meta_path.append(_MissingModules)


def call(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function with arguments.

    A pickle names what it calls before what it passes. So a process that unpickles `partial(call, function)`
    imports decodesim before it looks `function` up in one of the four packages.
    """
    return function(*arguments)


def _is_own(module: ModuleType, name: str) -> bool:
    return _place(module).resolve() == (ROOT / name).resolve()


def _place(module: ModuleType) -> Path:
    """The folder of a package, or the file of a module."""
    places = [*getattr(module, "__path__", ()), getattr(module, "__file__", None) or "memory"]
    return Path(places[0])
