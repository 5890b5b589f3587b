"""What a preset declares of each of its fields: unit, meaning, where values come from, and what is allowed.

A field is `Annotated[type, PresetField]` in its record. The reader of preset files takes the bounds from
there, pages the words, docs/engines.md its table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Annotated, get_args, get_origin, get_type_hints

BELOW_LIMIT = 0.99
"""Share of `limit` that a preset's file may reach, where the value stays below it."""

ENGINE = "engine's source"
"""The value is a constant or a rule of the engine's code."""


@dataclass(frozen=True)
class PresetField:
    """One field. `unit` is SI or what is counted, empty for text and switches. `source` says where the values
    of the shipped presets come from; each preset names its own in `sources`. Numbers lie in `low` to `high`.
    `choices` are the words that are allowed, none where any is. `label` is a short name for tables.
    """

    unit: str
    meaning: str
    source: str
    low: float = 0.0
    high: float = 1.0
    choices: tuple[str, ...] = ()
    label: str = ""


def seconds(meaning: str, source: str, *, label: str = "", limit: float = 1.0) -> PresetField:
    """A time. It stays below `limit`, s: a longer one is a mistake of the unit."""
    return PresetField("s", meaning, source, high=BELOW_LIMIT * limit, label=label)


def count(unit: str, meaning: str, source: str, *, low: int = 1) -> PresetField:
    """A whole number of something. `low` is 0 where 0 means that the engine has no such rule."""
    return PresetField(unit, meaning, source, low, 1_000_000)


def memory(meaning: str, source: str) -> PresetField:
    """A number of bytes."""
    return PresetField("bytes", meaning, source, high=10**12)


def share(meaning: str, source: str) -> PresetField:
    """A fraction of something, 0 to 1."""
    return PresetField("fraction", meaning, source)


def switch(meaning: str, source: str) -> PresetField:
    """True or false."""
    return PresetField("", meaning, source)


def word(meaning: str, source: str, *choices: str) -> PresetField:
    """A text, one of `choices` where there are any."""
    return PresetField("", meaning, source, choices=choices)


@cache
def declared(record: type) -> Mapping[str, PresetField]:
    """Field of a record → what it declares, in their order. Fields without a declaration are left out."""
    fields = {}
    for name, annotation in get_type_hints(record, include_extras=True).items():
        if get_origin(annotation) is Annotated:
            fields[name] = next(entry for entry in get_args(annotation) if isinstance(entry, PresetField))
    return MappingProxyType(fields)
