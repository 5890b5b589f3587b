"""The axes of a study file: read, tied together, and the fields that have to go with them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments.cell import SEED
from experiments.study.axis import Axis, axis_values, collision_problems
from experiments.study.file import StudyFile
from simulator.document import DataPath, Document
from simulator.errors import Problem, did_you_mean
from simulator.scenario.fields import value_at
from simulator.scenario.overrides import set_field
from simulator.scenario.write import with_files

TENSOR_PARALLEL: DataPath = ("hardware", "tensor_parallel")


def set_value(data: Any, where: DataPath, value: Any) -> None:
    """Set the value at an existing place."""
    *parents, key_of_value = where
    for key in parents:
        data = data[key]
    data[key_of_value] = value


def absolute(file: Path) -> str:
    """The absolute path of a file."""
    return str(file.resolve())


def read_axes(document: Document, file: StudyFile, base: Document, folder: Path) -> tuple[Axis, ...]:
    """The axes; the scenario's data in `base` gets the first value of each. Problems join the documents'."""
    axes = []
    for path in file.axes:
        at: DataPath = ("axes", path)
        of_key = document.place(at, of_key=True)
        entry = document.data["axes"][path]
        first = entry[0] if isinstance(entry, list) and entry else None
        where = set_field(base, path, first, document.place((*at, 0)) if first is not None else of_key)
        if where is None:
            continue
        base.keys[where] = of_key
        values, span = axis_values(document, path, where, base.data, file.sample is not None)
        values = tuple(_with_files(value, where, folder) for value in values)
        if not values:
            continue
        set_value(base.data, where, values[0])
        places = tuple(document.place((*at, index)) for index in range(len(values)))
        axes.append(Axis(path, where, values, places, span))
    document.problems += collision_problems(document, axes)
    if file.seeds > 1 and any(axis.where == ("run", SEED) for axis in axes):
        allowed = "leave seeds out: the axis says which there are"
        document.problems.append(document.problem(("seeds",), file.seeds, "collides with run.seed", allowed))
    return tuple(axes)


def _with_files(value: Any, where: DataPath, folder: Path) -> Any:
    key = str(where[-1])
    return with_files({key: value}, folder, absolute)[key]


def read_zips(document: Document, file: StudyFile, axes: Sequence[Axis]) -> tuple[tuple[int, ...], ...]:
    """The groups of axes that go together, as positions; problems join the document's."""
    names = [axis.path for axis in axes]
    groups = []
    for index, group in enumerate(file.zip):
        for place, path in enumerate(group):
            if path not in file.axes:
                guess = did_you_mean(path, file.axes)
                message = "is not an axis" + (f", did you mean {guess}?" if guess else "")
                allowed = f"axes: {', '.join(file.axes)}"
                document.problems.append(document.problem(("zip", index, place), path, message, allowed))
        if not set(group) <= set(names):
            continue
        members = [axes[names.index(path)] for path in group]
        if len({len(axis.values) for axis in members if axis.span is None}) > 1:
            counts = ", ".join(f"{axis.path} {len(axis.values)}" for axis in members)
            message = f"joins axes of different numbers of values: {counts}"
            document.problems.append(document.problem(("zip", index), None, message, "equally many"))
        if len({axis.span is None for axis in members}) > 1:
            message = "joins a list and a range that is sampled"
            document.problems.append(document.problem(("zip", index), None, message, "lists, or ranges"))
        groups.append(tuple(names.index(path) for path in group))
    return tuple(groups)


def repeated_value_problems(
    document: Document, axes: Sequence[Axis], groups: Sequence[Sequence[int]]
) -> Iterator[Problem]:
    """Problems of values that occur twice on an axis or on zipped axes, which would repeat a cell."""
    for group in groups:
        if any(axes[number].span is not None for number in group):
            continue
        earlier_values: set[str] = set()
        for index, values in enumerate(zip(*(axes[number].values for number in group), strict=True)):
            text = json.dumps(values, sort_keys=True)
            if text in earlier_values:
                value = values[0] if len(values) == 1 else text
                at: DataPath = ("axes", axes[group[0]].path, index)
                yield document.problem(at, value, "occurs twice", "each value of an axis once")
            earlier_values.add(text)


def followers_of(data: Any, ranks: object, axes: Sequence[Axis]) -> tuple[DataPath, ...]:
    """The fields that repeat the scenario's tensor parallelism, and follow it where it varies."""
    varied_places = [axis.where for axis in axes]
    if TENSOR_PARALLEL not in varied_places or ranks in (None, 1):
        return ()
    speculation = data.get("speculation")
    variants = range(len(speculation) if isinstance(speculation, list) else 0)
    fields: list[DataPath] = [("hardware", "expert_parallel"), ("hardware", "attention_dp")]
    fields += [("speculation", variant, "draft_tensor_parallel") for variant in variants]
    return tuple(
        field
        for field in fields
        if value_at(field, data) == ranks and not any(field[: len(where)] == where for where in varied_places)
    )
