"""Scrapes of a `/metrics` endpoint: the series that readers use, and what happened between two scrapes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from calibration.telemetry.fields import MOST, DamagedError
from simulator.errors import InputError, Problem

MOST_SERIES = 100_000
"""Label sets of one scrape; an engine writes a few hundred."""

MOST_SCRAPES = 1000
"""Scrapes that one command takes."""

STARTED = "process_start_time_seconds"


class Series(NamedTuple):
    """A name as exposed, less `_total`, and its labels in order of their names."""

    name: str
    labels: tuple[tuple[str, str], ...]

    def label(self, name: str) -> str | None:
        """The value of a label; None where the series has none."""
        return next((value for key, value in self.labels if key == name), None)

    def without(self, *names: str) -> Series:
        """The series with labels left out."""
        return Series(self.name, tuple(pair for pair in self.labels if pair[0] not in names))


@dataclass
class Scrape:
    """One scrape: the value of each series. `started` is the start time of the process, None where unknown.

    `name` is what people are shown of the file's path.
    """

    file: str
    name: str
    values: dict[Series, float] = field(default_factory=dict)
    started: float | None = None

    def add(self, series: Series, value: float) -> None:
        """Keep one sample. Raises DamagedError for a second value, InputError for too many series."""
        if series.name == STARTED:
            self.started = value
            return
        if self.values.setdefault(series, value) != value:
            raise DamagedError(f"{series.name} has two values for the same labels")
        if len(self.values) > MOST_SERIES:
            message = f"has more than {MOST_SERIES:,} label sets"
            raise InputError(Problem(file=self.file, message=message, allowed="the scrape of one server"))

    def repeats(self, series: Series) -> bool:
        """Whether a sample begins the next scrape: it is the first series of this one again."""
        return bool(self.values) and next(iter(self.values)) == series


def sample_of(text: str, names: frozenset[str]) -> tuple[Series, float] | None:
    """The sample on a line if its name, less `_total`, is one of `names`; None for comments and other names.

    Raises DamagedError when the line is cut, is not a sample, or its value is NaN, infinite or negative.
    """
    name = canonical(text.partition("{")[0].partition(" ")[0])
    if name not in names:
        return None
    try:
        (sample,) = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        series = Series(name, tuple(sorted(sample.labels.items())))
        value = float(sample.value)
    except (ValueError, IndexError, KeyError, TypeError, OverflowError):
        raise DamagedError(f"{name} is not a sample of the Prometheus text format") from None
    if not 0.0 <= value <= MOST:
        raise DamagedError(f"{name} is {sample.value}")
    return series, value


def canonical(name: str) -> str:
    """The name of a counter without `_total`; some collectors write `vllm_` for `vllm:`."""
    for engine in ("vllm", "sglang"):
        if name.startswith(f"{engine}_"):
            name = f"{engine}:{name.removeprefix(f'{engine}_')}"
    return name.removesuffix("_total")


@dataclass(frozen=True)
class Increase:
    """What counters grew by between scrapes, one mapping per pair of scrapes, or since the server started.

    `scrapes` are all of them in order of time, `last` the last of each process, for gauges. `since_start`:
    there was one scrape only. `resets`: how often counters began anew. `crossed`: counters that fell while
    others grew; they are left out.
    """

    steps: tuple[Mapping[Series, float], ...]
    scrapes: tuple[Scrape, ...]
    last: tuple[Scrape, ...]
    since_start: bool = False
    resets: int = 0
    crossed: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What people are shown of the files, in order of time."""
        return " → ".join(dict.fromkeys(scrape.name for scrape in self.scrapes))

    @property
    def total(self) -> dict[Series, float]:
        """Growth over all scrapes."""
        growth: dict[Series, float] = {}
        for step in self.steps:
            for series, value in step.items():
                growth[series] = growth.get(series, 0.0) + value
        return growth


def increase_of(scrapes: Sequence[Scrape], counters: frozenset[str]) -> Increase:
    """What happened between scrapes of one server, or of several (by start time).

    Scrapes of one process are put in the order of their counters. A process that starts anew counts from 0.
    `counters` are the names that only grow.
    """
    if len(scrapes) == 1:
        return Increase((_counters(scrapes[0], counters),), (scrapes[0],), (scrapes[0],), since_start=True)
    steps: list[Mapping[Series, float]] = []
    crossed: dict[str, None] = {}
    ordered: list[Scrape] = []
    last: list[Scrape] = []
    resets = 0
    for place, group in enumerate(_by_process(scrapes)):
        if len(group) == 1 and place:
            steps.append(_counters(group[0], counters))
            resets += 1
        for before, after in _pairs(group, counters):
            step, reset = _between(before, after, counters, crossed)
            steps.append(step)
            resets += reset
        ordered += group
        last.append(group[-1])
    return Increase(tuple(steps), tuple(ordered), tuple(last), resets=resets, crossed=tuple(crossed))


def _by_process(scrapes: Sequence[Scrape]) -> list[list[Scrape]]:
    groups: dict[float | None, list[Scrape]] = {}
    for scrape in scrapes:
        groups.setdefault(scrape.started, []).append(scrape)
    return list(groups.values())


def _pairs(group: list[Scrape], counters: frozenset[str]) -> Iterator[tuple[Scrape, Scrape]]:
    if group[0].started is not None:
        group.sort(key=lambda scrape: math.fsum(_counters(scrape, counters).values()))
    yield from pairwise(group)


def _between(
    before: Scrape, after: Scrape, counters: frozenset[str], crossed: dict[str, None]
) -> tuple[Mapping[Series, float], bool]:
    earlier, later = _counters(before, counters), _counters(after, counters)
    fallen = [series for series, value in later.items() if value < earlier.get(series, 0.0)]
    fallen += [series for series in earlier if series not in later]
    if fallen and (after.started is None or before.started is None):
        return later, True
    crossed.update(dict.fromkeys(series.name for series in fallen))
    grown = {series: value - earlier.get(series, 0.0) for series, value in later.items()}
    return {series: value for series, value in grown.items() if series.name not in crossed}, False


def _counters(scrape: Scrape, counters: frozenset[str]) -> dict[Series, float]:
    return {series: value for series, value in scrape.values.items() if series.name in counters}
