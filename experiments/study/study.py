"""A study: one scenario, what varies in it, and what is kept of each cell.

`load.py` reads it from a file, `grid.py` makes its cells.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from experiments.study.axes import TENSOR_PARALLEL, set_value
from experiments.study.axis import Axis
from simulator.document import DataPath, Place
from simulator.scenario.fields import value_at

_NOWHERE = Place(None)


@dataclass(frozen=True)
class Study:
    """What a study file says, checked. Paths are dotted, as `--set` takes them.

    `base` is the scenario's data, file names absolute, every axis at its first value. `zips` are groups of
    positions in `axes` that go together. `followers` are fields that take the tensor parallelism of the cell.
    """

    name: str
    base: Mapping[str, Any]
    base_dir: Path
    axes: tuple[Axis, ...]
    zips: tuple[tuple[int, ...], ...] = ()
    samples: int | None = None
    seeds: int = 1
    where: tuple[str, ...] = ()
    """Conditions in the words of `conditions.condition_sql`."""
    measures: tuple[str, ...] = ("simulate",)
    keep: tuple[str, ...] = ()
    refine: Mapping[str, Any] | None = None
    followers: tuple[DataPath, ...] = ()
    place: Place = _NOWHERE
    """Where the axes stand in the study file."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The axes by name."""
        return tuple(axis.path for axis in self.axes)

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The axes as positions, those that go together in one group: what the grid is the product of."""
        group_of_axis = {index: group for group in self.zips for index in group}
        return tuple(dict.fromkeys(group_of_axis.get(index, (index,)) for index in range(len(self.axes))))

    @property
    def first_seed(self) -> int:
        """The scenario's own seed."""
        seed = value_at(("run", "seed"), self.base)
        return seed if isinstance(seed, int) else 0

    @cached_property
    def document(self) -> dict[str, Any]:
        """The study as plain data with everything it rests on: what a store keeps of it."""
        return {
            "name": self.name,
            "scenario": self.base,
            "axes": {axis.path: list(axis.values) for axis in self.axes},
            "zip": [[self.axes[index].path for index in group] for group in self.zips],
            "sample": self.samples,
            "seeds": self.seeds,
            "where": list(self.where),
            "measure": list(self.measures),
            "keep": list(self.keep),
            "refine": self.refine,
        }

    @cached_property
    def sha256(self) -> str:
        """What two studies share whose cells may stand in one store: the scenario less what varies, the axes
        by name, and what is measured and kept. Values, conditions, samples and seeds may grow.
        """
        fixed = deepcopy(dict(self.base))
        for where in (*(axis.where for axis in self.axes), *self.followers):
            set_value(fixed, where, None)
        identity = [fixed, sorted(self.paths), self.measures, self.keep]
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


def follow(study: Study, data: Any) -> None:
    """Give the fields that follow it the tensor parallelism that stands in the data."""
    for where in study.followers:
        set_value(data, where, value_at(TENSOR_PARALLEL, data))
