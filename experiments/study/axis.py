"""The axes of a study: which field varies, over which values, and where in the scenario's data it stands."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from simulator.document import DataPath, Document, Place
from simulator.errors import Problem, did_you_mean
from simulator.scenario.base import as_number
from simulator.scenario.fields import annotation_at, options

MOST_VALUES = 10_000
"""Values an axis may have."""

_DIGITS = 12
"""Significant digits of a computed value: 0.3 and not 0.30000000000000004."""

_RANGE_KEYS = ("from", "to", "steps", "scale")
_RANGE = "a list of values, or {from, to, steps, scale: linear | log}"


class Span(NamedTuple):
    """A range of numbers, both ends included."""

    low: float
    high: float
    is_log: bool
    integer: bool

    def at(self, share: float) -> float:
        """The number that lies `share` (0 to 1) of the way from one end to the other.

        Whole numbers on a linear scale are all as likely for even shares, those at the ends too.
        """
        low, high = self.low, self.high
        if self.is_log:
            value = low * (high / low) ** share
        else:
            beyond = math.copysign(0.5, high - low) if self.integer else 0.0
            value = (low - beyond) * (1 - share) + (high + beyond) * share
        value = min(max(value, min(low, high)), max(low, high))
        return round(value) if self.integer else float(f"{value:.{_DIGITS}g}")

    def spread(self, steps: int) -> Iterator[float]:
        """`steps` numbers, evenly spaced on the scale; a single step is the first end."""
        return (self.at(step / max(steps - 1, 1)) for step in range(steps))


@dataclass(frozen=True)
class Axis:
    """One field that varies. `where` leads to it in the scenario's data.

    `values` in the order of the study, plain data; of a sampled range its two ends. `places` (one per value)
    say where each stands in the study file. `span` is the range that samples are drawn from.
    """

    path: str
    where: DataPath
    values: tuple[Any, ...]
    places: tuple[Place, ...]
    span: Span | None = None

    @property
    def ordered(self) -> bool:
        """Whether the values are numbers, so that some lie between others."""
        return all(isinstance(value, int | float) and not isinstance(value, bool) for value in self.values)

    def at(self, share: float) -> Any:
        """The value `share` (from 0, below 1) of the way along the axis: of a list all are as likely."""
        return self.values[int(share * len(self.values))] if self.span is None else self.span.at(share)


def axis_values(
    document: Document, path: str, where: DataPath, base: object, sampled: bool
) -> tuple[tuple[Any, ...], Span | None]:
    """The values of the axis `path` of a study's document, and its range when samples are drawn from it.

    `base`: the scenario's data, which says whether the field holds whole numbers. What is wrong joins the
    document's problems; then there are no values.
    """
    entry = document.data["axes"][path]
    at: DataPath = ("axes", path)
    if isinstance(entry, list):
        if not entry:
            document.problems.append(document.problem(at, None, "has no values", f"must be {_RANGE}"))
        if len(entry) > MOST_VALUES:
            document.problems.append(_count_problem(document, at, len(entry)))
            return (), None
        return tuple(entry), None
    if not isinstance(entry, dict):
        document.problems.append(document.problem(at, entry, "has the wrong type", f"must be {_RANGE}"))
        return (), None
    problems = list(_range_problems(document, at, entry, sampled))
    document.problems += problems
    if problems:
        return (), None
    kinds = options(annotation_at(where, base))
    integer = int in kinds and float not in kinds
    span = Span(entry["from"], entry["to"], entry.get("scale", "linear") == "log", integer)
    if sampled:
        return (span.at(0), span.at(1)), span
    return tuple(dict.fromkeys(span.spread(entry["steps"]))), None


def _range_problems(
    document: Document, at: DataPath, entry: Mapping[str, Any], sampled: bool
) -> Iterator[Problem]:
    for key in entry:
        if key not in _RANGE_KEYS:
            guess = did_you_mean(key, _RANGE_KEYS)
            message = "unknown key" + (f", did you mean {guess}?" if guess else "")
            yield document.problem((*at, key), None, message, f"keys: {', '.join(_RANGE_KEYS)}", of_key=True)
    required_keys = ("from", "to") if sampled else ("from", "to", "steps")
    for key in required_keys:
        if key not in entry:
            yield document.problem((*at, key), None, "is missing", f"must be {_RANGE}")
    scale = entry.get("scale", "linear")
    if scale not in ("linear", "log"):
        yield document.problem((*at, "scale"), scale, "is not known", "linear or log")
    for key in ("from", "to"):
        value = entry.get(key, 1)
        if (number := as_number(value)) is None:
            yield document.problem((*at, key), value, "is not a number", "must be a finite number")
        elif scale == "log" and number <= 0:
            yield document.problem((*at, key), value, "has no logarithm", "above 0 on a log scale")
    steps = entry.get("steps", 2)
    if sampled and "steps" in entry:
        allowed = "leave it out: sample says how many there are"
        yield document.problem((*at, "steps"), steps, "has no meaning for samples", allowed)
    elif not isinstance(steps, int) or isinstance(steps, bool) or not 1 <= steps <= MOST_VALUES:
        allowed = f"a whole number, 1 to {MOST_VALUES:,}"
        yield document.problem((*at, "steps"), steps, "is not a number of values", allowed)


def _count_problem(document: Document, at: DataPath, count: int) -> Problem:
    return document.problem(at, None, f"has {count:,} values", f"at most {MOST_VALUES:,}")


def collision_problems(document: Document, axes: Sequence[Axis]) -> Iterator[Problem]:
    """Axes that set the same field, or a section and a field inside it."""
    for later, axis in enumerate(axes):
        for earlier in axes[:later]:
            shorter, longer = sorted((axis.where, earlier.where), key=len)
            if longer[: len(shorter)] == shorter:
                message = "sets the same field as" if len(shorter) == len(longer) else "collides with"
                allowed = "one of the two: a section and a field inside it cannot both vary"
                yield document.problem(
                    ("axes", axis.path), None, f"{message} {earlier.path}", allowed, of_key=True
                )
