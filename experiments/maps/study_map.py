"""The cells of a study as a map: one variant with one draft length at each load and place of the other axes.

A map is made from rows of a store. If they contain break-evens, `MapCell.required_alpha` is the acceptance
that speculation needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from simulator.results.estimate import Estimate, Interval
from simulator.results.verdict import UNREACHABLE

LOADS = ("workload.arrivals.concurrency", "workload.arrivals.rate_per_s", "workload.arrivals.rate_scale")
"""Settings that are loads. The first of them that varies is the load of the map."""

UNREACHABLE_ALPHA = math.inf
"""The required acceptance of a variant that does not pay at any acceptance."""

SPEEDUP = "throughput_speedup"
_NEEDED, _TOKENS, _VERDICT = "break_even_alpha", "break_even_acceptance_length", "break_even_verdict"
_SPEEDUP_AT = "speedup_at."
_SPECULATIVE_METRICS = (_NEEDED, _VERDICT, SPEEDUP, "verdict")
"""Metrics that only speculative variants have."""

SettingValue = float | str | None


@dataclass(frozen=True)
class MapCell:
    """One variant at one load and place. `place`: values of the map's axes. `row`: the row of the store.

    `draft_length` is None where the study does not vary it.
    """

    load: float
    place: tuple[SettingValue, ...]
    variant: str
    draft_length: int | None
    row: Mapping[str, Any] = field(repr=False)

    def estimate(self, metric: str) -> Estimate | None:
        """A metric of the variant with its stored intervals; None where the cell does not have it."""
        return estimate_in(self.row, f"{self.variant}.{metric}")

    @cached_property
    def needed(self) -> Estimate | None:
        """The break-even α."""
        return self.estimate(_NEEDED)

    @property
    def tokens(self) -> Estimate | None:
        """The mean acceptance length at the break-even."""
        return self.estimate(_TOKENS)

    @property
    def outcome(self) -> str:
        """The verdict on the scenario's α against the break-even, or the status of a cell without figures."""
        return str(self.row.get(f"{self.variant}.{_VERDICT}") or self.row.get("status") or "")

    @cached_property
    def speedups(self) -> Mapping[float, Estimate]:
        """α → throughput ÷ that of plain decoding, for the acceptances that the study kept."""
        prefix = f"{self.variant}.{_SPEEDUP_AT}"
        names = [name.removeprefix(prefix) for name in self.row if name.startswith(prefix)]
        alphas = [name for name in names if not name.endswith(("_low", "_high"))]
        estimates = {float(alpha): self.estimate(_SPEEDUP_AT + alpha) for alpha in alphas}
        return {alpha: speedup for alpha, speedup in estimates.items() if speedup is not None}

    def required_alpha(self, end: int | None = None) -> float | None:
        """The acceptance needed, or one end (0 or 1) of its band.

        `UNREACHABLE_ALPHA` where no acceptance is enough; None where there is no answer.
        """
        if self.needed is None:
            return UNREACHABLE_ALPHA if self.outcome == UNREACHABLE else None
        return self.needed.value if end is None or self.needed.band is None else self.needed.band[end]


MapLine = tuple[str, int | None, tuple[SettingValue, ...]]
"""What the cells of one line over the load have in common: variant, draft length, place."""


@dataclass(frozen=True)
class StudyMap:
    """The cells of a study's speculative variants. `load` is the setting along the map.

    `axes` are the settings of the places, in the order of the study.
    """

    load: str
    axes: tuple[str, ...]
    cells: tuple[MapCell, ...]

    @property
    def alphas(self) -> tuple[float, ...]:
        """The acceptances at which any cell has a speedup, ascending."""
        return tuple(sorted({alpha for cell in self.cells for alpha in cell.speedups}))

    def lines(self) -> dict[MapLine, tuple[MapCell, ...]]:
        """Line → its cells by rising load."""
        cells_by_line: dict[MapLine, list[MapCell]] = {}
        for cell in sorted(self.cells, key=lambda cell: cell.load):
            cells_by_line.setdefault((cell.variant, cell.draft_length, cell.place), []).append(cell)
        return {key: tuple(cells) for key, cells in cells_by_line.items()}


def study_map(
    rows: Iterable[Mapping[str, Any]], settings: Sequence[str], variants: Sequence[str] | None = None
) -> StudyMap:
    """The map in rows of `StoreReader.rows`. `settings` are the columns of settings.

    `variants` are the speculative variants, by default those in the names of the columns. Settings that are
    constant, or determined by another setting, are no axis.
    """
    rows = list(rows)
    varied = [name for name in settings if len({row.get(name) for row in rows}) > 1]
    load = next((name for name in LOADS if name in varied), None) or _longest_axis(rows, varied)
    variants = _variants(rows[0] if rows else {}) if variants is None else variants
    lengths = {variant: f"speculation.{variant}.draft_length" for variant in variants}
    own_axes = [name for name in (load, *lengths.values()) if name in varied]
    axes: list[str] = []
    for name in varied:
        if name not in own_axes and not any(_depends_on(rows, name, other) for other in (*own_axes, *axes)):
            axes.append(name)
    cells = tuple(_cell(row, variant, load, axes, lengths[variant]) for row in rows for variant in variants)
    return StudyMap(load, tuple(axes), cells)


def _variants(names: Iterable[str]) -> list[str]:
    """The variants with speculation among the columns, in their order."""
    variants = [
        name.removesuffix(f".{suffix}")
        for name in names
        for suffix in _SPECULATIVE_METRICS
        if name.endswith(f".{suffix}")
    ]
    return list(dict.fromkeys(variants))


def _longest_axis(rows: Sequence[Mapping[str, Any]], varied: Sequence[str]) -> str:
    """The numeric setting with the most values; without one, concurrency."""
    numeric = [name for name in varied if all(isinstance(row.get(name), int | float) for row in rows)]
    return max(numeric, key=lambda name: len({row[name] for row in rows}), default=LOADS[0])


def _depends_on(rows: Sequence[Mapping[str, Any]], name: str, other_name: str) -> bool:
    """Whether a setting has one value for each value of another."""
    pairs = {(row.get(other_name), row.get(name)) for row in rows}
    return len(pairs) == len({value for value, _ in pairs})


def _cell(row: Mapping[str, Any], variant: str, load: str, axes: Sequence[str], draft_length: str) -> MapCell:
    length = row.get(draft_length)
    return MapCell(
        load=float(row.get(load, 0)),
        place=tuple(row[name] for name in axes),
        variant=variant,
        draft_length=length if isinstance(length, int) else None,
        row=row,
    )


def estimate_in(row: Mapping[str, Any], name: str) -> Estimate | None:
    """The estimate under this name and the names of its intervals in a row of a store; None without one."""
    value = row.get(name)
    if not isinstance(value, int | float):
        return None
    return Estimate(float(value), _interval_in(row, f"{name}.ci95"), _interval_in(row, f"{name}.band"))


def _interval_in(row: Mapping[str, Any], name: str) -> Interval | None:
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    return None if low is None or high is None else (float(low), float(high))
