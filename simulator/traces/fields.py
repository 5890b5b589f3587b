"""One field of one row: from what stands in a CSV or JSON file to tokens and nanoseconds."""

from __future__ import annotations

import math

from simulator.errors import Problem
from simulator.units import NS_PER_S

MOST_TOKENS = 1_000_000_000
"""Tokens of one prompt or output above which a row counts as broken."""

_MOST_NS = 9_000_000_000 * NS_PER_S
_TOKENS_ALLOWED = f"must be a whole number from 0 to {MOST_TOKENS}"
_TIME_ALLOWED = "must be a number from 0 on"


class RowError(ValueError):
    """A field that cannot be used; the reader knows file and line and adds them to `problem`."""

    def __init__(self, field: str, value: object, message: str, allowed: str | None = None) -> None:
        super().__init__(message)
        self.problem = Problem(field=field, value=value, message=message, allowed=allowed)


def whole_tokens(value: object, field: str) -> int:
    """A count of tokens; `472`, `"472"` and `472.0` all will do. Raises RowError."""
    number = _number(value, field, _TOKENS_ALLOWED)
    if number != int(number) or not 0 <= number <= MOST_TOKENS:
        raise RowError(field, value, "not a number of tokens", _TOKENS_ALLOWED)
    return int(number)


def time_ns(value: object, field: str, unit_ns: int) -> int:
    """A time or delay, `unit_ns` nanoseconds a unit, as integer ns. Raises RowError."""
    number = _number(value, field, _TIME_ALLOWED)
    if not 0 <= number <= _MOST_NS // unit_ns:
        raise RowError(field, value, "not a time", _TIME_ALLOWED)
    return round(number * unit_ns)


def _number(value: object, field: str, allowed: str) -> int | float:
    """`value` as a finite number, whole where it is written so. Raises RowError."""
    if value is None or value == "":
        raise RowError(field, None, "missing", allowed)
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float | str)
        or (isinstance(value, str) and "_" in value)
    ):
        raise RowError(field, value, "not a number", allowed)
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            pass
    try:
        number = float(value)
    except ValueError:
        raise RowError(field, value, "not a number", allowed) from None
    if not math.isfinite(number):
        raise RowError(field, value, "not a finite number", allowed)
    return number
