"""Numbers in the options of a launch line."""

from __future__ import annotations

import math
import re

from calibration.launch.line import LaunchLine
from simulator.errors import InputError, Problem

_COUNT = re.compile(r"(-?\d{1,12})([kKmMgG]?)")
_UNITS = {"": 1, "k": 10**3, "K": 2**10, "m": 10**6, "M": 2**20, "g": 10**9, "G": 2**30}
"""Endings that vLLM takes (`human_readable_int`)."""


def whole_number(line: LaunchLine, *names: str) -> int | None:
    """The whole number of an option, None where it is not given. Raises InputError for another value."""
    text = line.value(*names)
    if text is None:
        return None
    match = _COUNT.fullmatch(text.strip())
    if match is None:
        raise _problem(names[0], text, "a whole number")
    return int(match[1]) * _UNITS[match[2]]


def fraction(line: LaunchLine, *names: str) -> float | None:
    """The number of an option, None where it is not given. Raises InputError for another value."""
    text = line.value(*names)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise _problem(names[0], text, "a number")
    return value


def _problem(name: str, text: str, allowed: str) -> InputError:
    return InputError(Problem(field=name, value=text, message=f"is not {allowed}", allowed=allowed))
