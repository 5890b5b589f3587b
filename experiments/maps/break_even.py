"""Break-even maps: the acceptance that speculation needs, over load, draft length and whatever else a study
varies.

A map is read from the rows of a store whose study measures `breakeven`. What it is asked: where speculation
stops paying at a given α, which method and draft length is best there, and what a wrong one costs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from simulator.results.estimate import Estimate, Interval
from simulator.results.verdict import UNREACHABLE

LOADS = ("workload.arrivals.concurrency", "workload.arrivals.rate_per_s", "workload.arrivals.rate_scale")
"""Settings that say how much is asked: the first of them that varies runs along the map."""

BEYOND = math.inf
"""What an arm needs that no acceptance lets pay."""

_VERDICT, _NEEDED, _TOKENS = "break_even_verdict", "break_even_alpha", "break_even_acceptance_length"
_SPEEDUP = "speedup_at."

Setting = float | str | None


@dataclass(frozen=True)
class MapCell:
    """One arm with one draft length at one load and place.

    `place`: values of the map's axes. `draft_length` is None where the study does not vary it. `needed`: the
    break-even α, `tokens` the mean acceptance length there, None where `verdict` says why. `speedups`: α →
    throughput ÷ that of plain decoding, where the study kept it.
    """

    load: float
    place: tuple[Setting, ...]
    arm: str
    draft_length: int | None
    verdict: str
    needed: Estimate | None = None
    tokens: Estimate | None = None
    speedups: Mapping[float, Estimate] = field(default_factory=dict)

    def needs(self, end: int | None = None) -> float | None:
        """The acceptance needed, or one end (0 or 1) of its band: `BEYOND` where none is enough, None where
        there is no answer.
        """
        if self.needed is None:
            return BEYOND if self.verdict == UNREACHABLE else None
        return self.needed.value if end is None or self.needed.band is None else self.needed.band[end]


@dataclass(frozen=True)
class BreakEvenMap:
    """The cells of a study. `load` is the setting that runs along the map, `axes` the settings of the places,
    in the order of the study.
    """

    load: str
    axes: tuple[str, ...]
    cells: tuple[MapCell, ...]

    @property
    def alphas(self) -> tuple[float, ...]:
        """The acceptances at which every cell with an answer has a speedup, ascending."""
        known = [set(cell.speedups) for cell in self.cells if cell.needs() is not None]
        return tuple(sorted(set.intersection(*known))) if known else ()

    def lines(self) -> dict[tuple[str, int | None, tuple[Setting, ...]], tuple[MapCell, ...]]:
        """(arm, draft length, place) → its cells by rising load."""
        found: dict[tuple[str, int | None, tuple[Setting, ...]], list[MapCell]] = {}
        for cell in sorted(self.cells, key=lambda cell: cell.load):
            found.setdefault((cell.arm, cell.draft_length, cell.place), []).append(cell)
        return {key: tuple(cells) for key, cells in found.items()}


def break_even_map(rows: Iterable[Mapping[str, Any]], settings: Sequence[str]) -> BreakEvenMap:
    """The map in the rows of a store, as `StoreReader.rows` gives them; `settings` are its columns of
    settings.

    Settings that do not vary, and those that go with the load or a draft length value by value, make no axis.
    Without break-evens the map has no cells.
    """
    rows = list(rows)
    varied = [name for name in settings if len({row.get(name) for row in rows}) > 1]
    load = next((name for name in LOADS if name in varied), None) or _longest(rows, varied)
    arms = _arms(rows)
    lengths = {arm: f"speculation.{arm}.draft_length" for arm in arms}
    special = [name for name in (load, *lengths.values()) if name in varied]
    axes = [
        name
        for name in varied
        if name not in special and not any(_goes_with(rows, name, other) for other in special)
    ]
    cells = tuple(_cell(row, arm, load, axes, lengths[arm]) for row in rows for arm in arms)
    return BreakEvenMap(load, tuple(axes), cells)


def _arms(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The arms that have break-evens, in the order of the columns."""
    names = rows[0] if rows else {}
    ends = [
        name.removesuffix(f".{end}")
        for name in names
        for end in (_NEEDED, _VERDICT)
        if name.endswith(f".{end}")
    ]
    return list(dict.fromkeys(ends))


def _longest(rows: Sequence[Mapping[str, Any]], varied: Sequence[str]) -> str:
    """The numeric setting with the most values; without one, concurrency."""
    numeric = [name for name in varied if all(isinstance(row.get(name), int | float) for row in rows)]
    return max(numeric, key=lambda name: len({row[name] for row in rows}), default=LOADS[0])


def _goes_with(rows: Sequence[Mapping[str, Any]], name: str, other: str) -> bool:
    """Whether a setting has one value for each value of another."""
    pairs = {(row.get(other), row.get(name)) for row in rows}
    return len(pairs) == len({value for value, _ in pairs})


def _cell(row: Mapping[str, Any], arm: str, load: str, axes: Sequence[str], draft_length: str) -> MapCell:
    """One arm of a row. A cell without figures has its status for a verdict."""
    length, start = row.get(draft_length), f"{arm}.{_SPEEDUP}"
    names = [name for name in row if name.startswith(start) and not name.endswith(("_low", "_high"))]
    speedups = {float(name.removeprefix(start)): estimate_in(row, name) for name in names}
    return MapCell(
        load=float(row.get(load, 0.0) or 0.0),
        place=tuple(row[name] for name in axes),
        arm=arm,
        draft_length=length if isinstance(length, int) else None,
        verdict=str(row.get(f"{arm}.{_VERDICT}") or row.get("status") or ""),
        needed=estimate_in(row, f"{arm}.{_NEEDED}"),
        tokens=estimate_in(row, f"{arm}.{_TOKENS}"),
        speedups={alpha: found for alpha, found in speedups.items() if found is not None},
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
