"""Speculation methods, one file each: what is drafted and scored.
A new method is a new file here that calls `register`.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module

from simulator.errors import InputError, unknown_name
from simulator.speculation.base import Method

__all__ = ["Method", "method", "methods", "register", "registered"]

_REGISTERED: dict[str, Method] = {}


def register(method: Method) -> Method:
    """Make a method known by its name. Raises ValueError when the name is taken by another."""
    if _REGISTERED.setdefault(method.name, method) != method:
        raise ValueError(f"a speculation method named {method.name!r} is registered already")
    return method


@contextmanager
def registered(method: Method) -> Iterator[Method]:
    """Make a method known for a while: for trying one out."""
    methods()
    register(method)
    try:
        yield method
    finally:
        del _REGISTERED[method.name]


@cache
def _load() -> None:
    for module in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")


def methods() -> Mapping[str, Method]:
    """Return all methods by name."""
    _load()
    return dict(sorted(_REGISTERED.items()))


def method(name: str) -> Method:
    """Return the method of that name; InputError lists the known ones."""
    known = methods()
    if name not in known:
        raise InputError(unknown_name("method", name, known, field="method"))
    return known[name]
