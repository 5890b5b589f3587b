"""What the columns of a store mean: name, unit and meaning of each, derived from its name.

A metric is `ARM.PATH`, as in the JSON of `simulate`. Its sampling interval and its band, where it has them,
are columns of their own: `ARM.PATH.ci95_low`, `.ci95_high`, `.band_low`, `.band_high`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from experiments.metrics import BREAK_EVEN_NOTE, BREAK_EVEN_VERDICT, REASON, SATURATED, SPEEDUP_AT, VERDICT
from simulator.results.catalogue import (
    BREAK_EVEN,
    CATALOGUE,
    CLASSES,
    COMPARED,
    without_class,
)
from simulator.results.metric import PART_TITLES

CELL, SETTING, METRIC = "cell", "setting", "metric"
INTEGER, REAL, TEXT = "integer", "real", "text"
KINDS = (INTEGER, REAL, TEXT)
"""From narrow to wide: a column is as wide as the widest of its values."""

CI95, BAND = ("ci95_low", "ci95_high"), ("band_low", "band_high")
INTERVALS: Mapping[str, str] = {
    "ci95_low": "low end of its 95 % sampling interval",
    "ci95_high": "high end of its 95 % sampling interval",
    "band_low": "low end of its band: sampling and the error of the cost model",
    "band_high": "high end of its band: sampling and the error of the cost model",
}
"""Suffix of a metric → what that column holds."""

CELL_COLUMNS: Mapping[str, tuple[str, str, str]] = {
    "key": (TEXT, "", "hash of all that the cell's figures follow from; names the cell"),
    "status": (TEXT, "", "done, failed, or does-not-fit the memory of the GPUs"),
    "error": (TEXT, "", "why a cell is not done"),
    "version": (TEXT, "", "decodesim's version, and a digest of its source and data"),
    "seconds_s": (REAL, "s", "computing time of the cell, on whatever machine it ran"),
}
"""Column of every store → (kind, unit, meaning)."""

_TEXT_METRICS: Mapping[str, str] = {
    VERDICT: "whether speculation pays, loses, or neither is certain (band)",
    BREAK_EVEN_VERDICT: "the scenario's α compared with the band of the break-even",
    SATURATED: "1 if the load is above capacity",
    REASON: "the verdict as a sentence",
    BREAK_EVEN_NOTE: "what the break-even leaves open",
}
"""Metrics that are no figures → meaning."""

_MEANINGS: Mapping[str, str] = {
    VERDICT: _TEXT_METRICS[VERDICT],
    **{name: ratio.definition for name, ratio in COMPARED.items()},
    **{name: metric.definition for name, metric in BREAK_EVEN.items()},
    SPEEDUP_AT: "throughput, speculative ÷ plain, if α were",
    **{name: f"{metric.title}: {metric.definition}" for name, metric in CATALOGUE.items()},
    **_TEXT_METRICS,
}
"""First part of a metric's path → meaning, most informative first: the order of columns."""

_RANK = {name: place for place, name in enumerate(_MEANINGS)}

_SETTING_UNITS = (
    ("_per_s", "1/s"),
    ("_s", "s"),
    ("_bytes", "bytes"),
    ("_tokens", "tokens"),
    ("draft_length", "tokens"),
    ("mean_acceptance_length", "tokens"),
    ("concurrency", "clients"),
    ("requests", "requests"),
    ("max_num_seqs", "requests"),
    ("tensor_parallel", "GPUs"),
)
"""End of a scenario's field → unit; other fields are plain numbers."""

_OF_A_FORM = frozenset(("low", "high", "median", "mean", "min", "max", "p95"))
"""Last parts of a field that leave the unit to the part before: `workload.prompt_tokens.median`."""


@dataclass(frozen=True)
class StoreColumn:
    """A column of a store. `role`: CELL, SETTING or METRIC; `kind`: INTEGER, REAL or TEXT; `unit` is `1` for
    plain numbers and empty for text.
    """

    name: str
    role: str
    kind: str
    unit: str
    meaning: str

    @property
    def is_interval(self) -> bool:
        """Whether it is an end of another column's interval."""
        return self.role == METRIC and self.name.rpartition(".")[2] in INTERVALS


def column_with_meaning(name: str, role: str, kind: str) -> StoreColumn:
    """A column with its unit and meaning."""
    if role == CELL:
        kind, unit, meaning = CELL_COLUMNS[name]
        return StoreColumn(name, role, kind, unit, meaning)
    if role == SETTING:
        meaning = (
            "seed of the cell's traffic and random numbers" if name == "seed" else f"the scenario's {name}"
        )
        return StoreColumn(name, role, kind, _setting_unit(name, kind), meaning)
    base, _, end = name.rpartition(".")
    if end in INTERVALS:
        base_column = column_with_meaning(base, METRIC, kind)
        return StoreColumn(name, role, kind, base_column.unit, f"{base_column.meaning}: {INTERVALS[end]}")
    variant, path = variant_and_path(name)
    return StoreColumn(name, role, kind, _metric_unit(path, kind), f"{variant}: {_meaning(path)}")


def sorted_columns(columns: Iterable[StoreColumn]) -> tuple[StoreColumn, ...]:
    """Columns in the order that does not depend on which cell came first: of the cell, settings as the study
    has them, metrics from the most informative on, plain decoding before other variants, intervals after
    their value.
    """

    def place(column: StoreColumn) -> tuple[object, ...]:
        if column.role != METRIC:
            return ((CELL, SETTING).index(column.role), 0, False, "", "", 0)
        base, _, end = column.name.rpartition(".")
        part = list(INTERVALS).index(end) + 1 if end in INTERVALS else 0
        variant, path = variant_and_path(base if part else column.name)
        return (2, _RANK.get(_first(path), len(_RANK)), path, variant != "plain", variant, part)

    return tuple(sorted(columns, key=place))


def kind_of(value: object) -> str | None:
    """The kind that a value needs; None for nothing."""
    if isinstance(value, int):
        return INTEGER
    if isinstance(value, float):
        return REAL
    return None if value is None else TEXT


def variant_and_path(name: str) -> tuple[str, str]:
    """The variant of a metric, whose name may hold dots itself, and the rest."""
    parts = name.split(".")
    starts = (place for place in range(1, len(parts)) if parts[place] in _MEANINGS or parts[place] == CLASSES)
    start = next(starts, 1)
    return ".".join(parts[:start]), ".".join(parts[start:])


def _first(path: str) -> str:
    """`tpot_s` of `tpot_s.p99` and of `classes.chat.tpot_s.p99`."""
    return without_class(path)[1].partition(".")[0]


def _meaning(path: str) -> str:
    traffic_class, class_path = without_class(path)
    figure_name, _, statistic = class_path.partition(".")
    meaning = _MEANINGS.get(figure_name, figure_name.replace("_", " "))
    if traffic_class is not None:
        meaning = f"{meaning}, requests of class {traffic_class}"
    return f"{meaning}, {PART_TITLES.get(statistic, statistic)}" if statistic else meaning


def _metric_unit(path: str, kind: str) -> str:
    if kind == TEXT:
        return ""
    metric = {**CATALOGUE, **BREAK_EVEN}.get(_first(path))
    return "1" if metric is None else metric.unit


def _setting_unit(path: str, kind: str) -> str:
    if kind == TEXT:
        return ""
    parts = path.split(".")
    while len(parts) > 1 and parts[-1] in _OF_A_FORM:
        parts.pop()
    return next((unit for end, unit in _SETTING_UNITS if parts[-1].endswith(end)), "1")
