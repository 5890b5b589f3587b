"""The cells of a study, one after another, in an order that gives an overview early.

The grid is the product of the axes; zipped axes count as one. A coarse sub-grid comes first: the ends of
every axis, then the middles, then the quarters, so that the finished cells always cover the whole grid.
Settings of speculation vary fastest, because neighbours then share prices, requests and the runs of plain
decoding. Cells are generated one at a time, so that large studies need no memory.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice, product
from pathlib import Path
from typing import Any

from experiments.cell import SEED, Cell
from experiments.conditions import Filter
from experiments.study.axes import TENSOR_PARALLEL
from experiments.study.axis import Axis
from experiments.study.study import Study
from simulator.document import DataPath
from simulator.errors import InputError, Problem
from simulator.scenario.fields import value_at
from simulator.scenario.write import named_files

MAX_CELLS = 20_000
"""A study of more cells needs `--yes`."""
MAX_POINTS = 10_000_000
"""Points that conditions are tried on."""

_SECTIONS_BY_COST = ("target", "hardware", "engine", "workload", "slo", "run", "speculation")
"""Sections from those whose values are dearest to change to the cheapest."""

Settings = Mapping[str, Any]


class StudyGrid:
    """The points of a study: positions on the axes, settings, cells."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self._axes = study.axes
        self._filter = Filter(study.where, [*study.paths, SEED])
        groups = sorted(study.groups, key=lambda group: min(_rank(study.axes[n].where) for n in group))
        self._groups: Sequence[tuple[int, ...]] = groups
        self._levels = [levels_of(study.axes[group[0]]) for group in groups]

    @property
    def points(self) -> int:
        """Points before conditions, seeds included."""
        count = self.study.seeds
        if self.study.samples is not None:
            return count * self.study.samples
        for levels in self._levels:
            count *= len(levels)
        return count

    def count(self, limit: int) -> int:
        """How many cells there are, or `most` when there are at least so many. Raises InputError."""
        if self.points > MAX_POINTS:
            message, allowed = f"multiply to {self.points:,} points", f"at most {MAX_POINTS:,}"
            raise InputError(Problem(*self.study.place, field="axes", message=message, allowed=allowed))
        if not self.study.where and self.study.samples is None:
            return min(self.points, limit)
        return sum(1 for _ in islice(self.settings(), limit))

    def settings(self) -> Iterator[Settings]:
        """The settings of every cell: path → value, and `seed`."""
        for seed in range(self.study.first_seed, self.study.first_seed + self.study.seeds):
            rows = ({**point, SEED: seed} for point in self._points())
            try:
                yield from self._filter.matching(rows)
            except InputError as error:
                raise error.at(file=self.study.place.file, field="where") from error

    def cells(self) -> Iterator[Cell]:
        """Every cell."""
        return (cell_at(self.study, settings) for settings in self.settings())

    def _points(self) -> Iterator[Settings]:
        if self.study.samples is not None:
            return _samples(self.study)
        return (self._values(indices) for indices in indices_by_level(self._levels))

    def _values(self, indices: Iterable[int]) -> Settings:
        place = {n: index for group, index in zip(self._groups, indices, strict=True) for n in group}
        return {axis.path: axis.values[place[n]] for n, axis in enumerate(self._axes)}


def cell_at(study: Study, settings: Settings) -> Cell:
    """The cell with these settings: a value for each axis, on the grid or between, and perhaps `seed`."""
    data: dict[str, Any] = dict(study.base)
    for axis in study.axes:
        data = _with_value(data, axis.where, settings[axis.path])
    seed = settings.get(SEED, study.first_seed)
    data["run"] = {**(data.get("run") or {}), SEED: seed}
    ranks = value_at(TENSOR_PARALLEL, data)
    for where in study.followers:
        data = _with_value(data, where, ranks)
    return Cell(
        settings={**{axis.path: settings[axis.path] for axis in study.axes}, SEED: seed},
        scenario=json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False),
        measures=study.measures,
        keep=study.keep,
        files=_files(data),
    )


def _with_value(data: Any, where: DataPath, value: Any) -> Any:
    """The data with another value at a place; what does not lead there is shared with the old."""
    if not where:
        return value
    key, *rest = where
    copy: Any = list(data) if isinstance(data, list) else dict(data)
    copy[key] = _with_value(copy[key], tuple(rest), value)
    return copy


def _files(data: Any) -> str:
    """A digest of the files that a scenario names, empty where it names none."""
    files = sorted(set(named_files(data)))
    return hashlib.sha256("".join(map(_content, files)).encode()).hexdigest() if files else ""


def _content(file: str) -> str:
    path = Path(file)
    if not path.is_file():
        return ""
    status = path.stat()
    return _digest(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=1024)
def _digest(path: Path, changed_ns: int, size_bytes: int) -> str:
    """Hash of a file, read again when it has changed."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _rank(where: DataPath) -> tuple[int, int]:
    """Where an axis stands from the slowest to the fastest."""
    acceptance = int("acceptance" in where)  # the same prices and settings serve every acceptance
    section = str(where[0])
    return (
        _SECTIONS_BY_COST.index(section) if section in _SECTIONS_BY_COST else len(_SECTIONS_BY_COST),
        acceptance,
    )


def levels_of(axis: Axis) -> list[int]:
    """When each value of an axis has its turn: 0 for both ends, 1 for the middle, 2 for the quarters, …

    Values that are no numbers have nothing between them, and are all of level 0.
    """
    count = len(axis.values)
    levels = [0] * count
    if not axis.ordered:
        return levels
    order = sorted(range(count), key=lambda index: axis.values[index])
    stretches, level = [(0, count - 1)], 1
    while stretches:
        halves = []
        for low, high in stretches:
            middle = (low + high) // 2
            if low < middle:
                levels[order[middle]] = level
                halves += [(low, middle), (middle, high)]
        stretches, level = halves, level + 1
    return levels


def indices_by_level(levels: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """Every position of a grid, level by level."""
    for level in range(max((max(axis) for axis in levels), default=0) + 1):
        within = [[index for index, axis_level in enumerate(axis) if axis_level <= level] for axis in levels]
        for indices in product(*within):
            if level == 0 or any(axis[index] == level for axis, index in zip(levels, indices, strict=True)):
                yield indices


def _samples(study: Study) -> Iterator[Settings]:
    """Points of a scrambled Sobol sequence, the same for the same study; each once.

    Axes that are ranges are sampled between their ends, of lists every value is as likely. Zipped axes share
    a coordinate.
    """
    from scipy.stats import qmc

    assert study.samples is not None
    groups = study.groups
    sequence = qmc.Sobol(len(groups), seed=study.first_seed)
    shares = sequence.random_base2((study.samples - 1).bit_length())[: study.samples]
    earlier: set[str] = set()
    for row in shares:
        share_of = {n: float(share) for group, share in zip(groups, row, strict=True) for n in group}
        settings = {axis.path: axis.at(share_of[n]) for n, axis in enumerate(study.axes)}
        if (text := json.dumps(settings, sort_keys=True)) not in earlier:
            earlier.add(text)
            yield settings
