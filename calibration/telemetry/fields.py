"""Numbers and texts of a JSON record, checked where they enter: what cannot be true is left out and noted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from simulator.errors import show_value


class DamagedError(ValueError):
    """A line or record of a format that is known, but whose content cannot be used; the text says why."""


MOST = 1e15
"""Numbers above this are no measurement."""
LONGEST_DRAFT = 1000
"""Draft lengths above this are no draft length."""


def number_of(text: str) -> float:
    """A number as a tool prints it, `1,234.56` or `12`. Raises DamagedError for what cannot be measured."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        raise DamagedError(f"{show_value(text)} is not a number") from None
    if not 0.0 <= value <= MOST:
        raise DamagedError(f"{show_value(text)} is out of range")
    return value


def draft_length_of(rounds: float, drafted: float | None, positions: Sequence[float] = ()) -> int | None:
    """Draft length by positions, or where every round drafted as much; None where neither tells it."""
    if positions:
        return len(positions) if len(positions) <= LONGEST_DRAFT else None
    if not drafted or not rounds or drafted % rounds or drafted > LONGEST_DRAFT * rounds:
        return None
    return int(drafted / rounds)


class RecordFields:
    """A JSON object whose values are asked for by name. A missing key and `null` are None.

    `problems` lists every value that was asked for and cannot be true; parts share the list of the whole.
    """

    def __init__(self, record: Mapping[str, Any], path: str = "", problems: list[str] | None = None) -> None:
        self._record, self._path = record, path
        self.problems: list[str] = [] if problems is None else problems

    def __contains__(self, key: str) -> bool:
        return self._record.get(key) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._record)

    def number(self, key: str, low: float = 0.0, high: float = MOST) -> float | None:
        """A finite number from `low` to `high`."""
        return self._checked(self._record.get(key), key, low, high)

    def count(self, key: str) -> float | None:
        """A whole number from 0 on."""
        value = self.number(key)
        if value is not None and value != int(value):
            self._refuse(key, value, "is not a whole number")
            return None
        return value

    def numbers(self, key: str, low: float = 0.0, high: float = MOST) -> list[float] | None:
        """A list of finite numbers; None, with a problem, when one of them is not."""
        items = self._record.get(key)
        if items is None:
            return None
        if not isinstance(items, list):
            self._refuse(key, items, "is not a list")
            return None
        return self._all_checked(items, key, low, high)

    def lists(self, key: str) -> list[list[float]] | None:
        """A list of lists of finite numbers from 0 on; None, with a problem, when one of them is not."""
        items = self._record.get(key)
        if items is None:
            return None
        if not isinstance(items, list) or not all(isinstance(item, list) for item in items):
            self._refuse(key, items, "is not a list of lists")
            return None
        rows = [self._all_checked(item, f"{key}[{row}]", 0.0, MOST) for row, item in enumerate(items)]
        return None if any(row is None for row in rows) else [row for row in rows if row is not None]

    def text(self, key: str) -> str | None:
        """A text."""
        value = self._record.get(key)
        return value if isinstance(value, str) else None

    def is_list(self, key: str) -> bool:
        """Whether a value is a list."""
        return isinstance(self._record.get(key), list)

    def items(self, key: str) -> list[object]:
        """The list under a key, its items unchecked; an empty one when there is none."""
        value = self._record.get(key)
        return list(value) if isinstance(value, list) else []

    def texts(self) -> dict[str, str]:
        """Every value of the object that is a text."""
        return {key: value for key, value in self._record.items() if isinstance(value, str)}

    def is_infinite(self, key: str) -> bool:
        """Whether a value is the `Infinity` that some tools write for no limit."""
        value = self._record.get(key)
        return isinstance(value, float) and value == math.inf

    def part(self, key: str) -> RecordFields:
        """The object under a key; an empty one when there is none."""
        value = self._record.get(key)
        path = f"{self._path}{key}."
        return RecordFields(value if isinstance(value, Mapping) else {}, path, self.problems)

    def parts(self, key: str) -> list[RecordFields]:
        """The objects of the list under a key."""
        items = self._record.get(key)
        if not isinstance(items, list):
            return []
        numbered = enumerate(items)
        return [
            RecordFields(item, f"{self._path}{key}[{place}].", self.problems)
            for place, item in numbered
            if isinstance(item, Mapping)
        ]

    def _all_checked(self, items: Sequence[object], key: str, low: float, high: float) -> list[float] | None:
        values = [self._checked(item, f"{key}[{place}]", low, high) for place, item in enumerate(items)]
        return (
            None
            if any(value is None for value in values)
            else [value for value in values if value is not None]
        )

    def _checked(self, value: object, key: str, low: float, high: float) -> float | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._refuse(key, value, "is not a number")
            return None
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number) or not low <= number <= high:
            self._refuse(key, value, "is not finite" if not math.isfinite(number) else "is out of range")
            return None
        return number

    def _refuse(self, key: str, value: object, message: str) -> None:
        self.problems.append(f"{self._path}{key} {message} ({show_value(value)})")
