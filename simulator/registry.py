"""Records known by name: a folder of files that each register one record when they are imported."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Generic, Protocol, TypeVar

from simulator.errors import InputError, unknown_name


class Named(Protocol):
    """A record with the name that scenarios call it by."""

    @property
    def name(self) -> str:
        """The name."""


T = TypeVar("T", bound=Named)


class Registry(Generic[T]):
    """The records of one package by name; its files are imported on the first request.

    `kind` is the word for such a record ("method"), `field` the place in a scenario that names one.
    """

    def __init__(self, kind: str, field: str, package: str, path: Iterable[str]) -> None:
        self.kind, self.field = kind, field
        self._package, self._path = package, path
        self._records: dict[str, T] = {}
        self._imported = False

    def register(self, record: T) -> T:
        """Make a record known by its name. Raises ValueError when the name is taken by another."""
        if self._records.setdefault(record.name, record) != record:
            raise ValueError(f"a {self.kind} named {record.name!r} is registered already")
        return record

    @contextmanager
    def registered(self, record: T) -> Iterator[T]:
        """Make a record known within the block: for trying one out."""
        self.all()
        self.register(record)
        try:
            yield record
        finally:
            del self._records[record.name]

    def all(self) -> Mapping[str, T]:
        """Return all records by name."""
        if not self._imported:
            for module in pkgutil.iter_modules(self._path):
                import_module(f"{self._package}.{module.name}")
            self._imported = True
        return dict(sorted(self._records.items()))

    def find(self, name: str) -> T:
        """Return the record of that name; InputError lists the known ones."""
        known = self.all()
        if name not in known:
            raise InputError(unknown_name(self.kind, name, known, field=self.field))
        return known[name]
