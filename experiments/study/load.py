"""Reads a study file and checks all of it, every value of every axis included, before anything runs.

Problems are reported at their lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path

from experiments.cell import SEED
from experiments.conditions import condition_sql
from experiments.study.axes import (
    TENSOR_PARALLEL,
    absolute,
    followers_of,
    read_axes,
    read_zips,
    repeated_value_problems,
)
from experiments.study.axis import Axis
from experiments.study.check import study_problems
from experiments.study.file import StudyFile
from experiments.study.study import Study
from simulator.document import DataPath, Document, parse_yaml
from simulator.errors import InputError, Problem
from simulator.scenario import Scenario
from simulator.scenario.fields import value_at
from simulator.scenario.load import checked, in_order, read_text, require_mapping
from simulator.scenario.overrides import apply_override
from simulator.scenario.write import with_files


def load_study(path: str | Path, overrides: Sequence[str] = ()) -> Study:
    """The study in a YAML or JSON file, with `--set` overrides of its scenario.

    Raises InputError with all problems, each at its line.
    """
    path = Path(path)
    document = parse_yaml(read_text(path), str(path))
    require_mapping(document, StudyFile)
    if "scenario" not in document.data and {"target", "hardware", "workload"} & set(document.data):
        allowed = "scenario: FILE and axes in a file of its own; decodesim simulate runs a scenario"
        raise InputError(document.problem((), None, "is a scenario, not a study", allowed))
    file, problems = checked(document, StudyFile)
    if file is None or problems:
        raise InputError(in_order(problems))
    base, base_dir = _base(document, file, path)
    require_mapping(base, Scenario)
    _name_variants(base)
    for override in overrides:
        apply_override(base, override)
    _name_variants(base)  # an override may bring variants
    base.data = with_files(base.data, base_dir, absolute)
    ranks = value_at(TENSOR_PARALLEL, base.data)
    axes = read_axes(document, file, base, path.parent)
    study = Study(
        name=file.name or _title(base) or path.name.partition(".")[0],
        base=base.data,
        base_dir=base_dir.resolve(),
        axes=axes,
        zips=read_zips(document, file, axes),
        samples=file.sample.n if file.sample is not None else None,
        seeds=file.seeds,
        where=_conditions(document, file),
        measures=(file.measure,) if isinstance(file.measure, str) else tuple(dict.fromkeys(file.measure)),
        keep=file.keep,
        refine=None if file.refine is None else file.refine.model_dump(),
        followers=followers_of(base.data, ranks, axes),
        place=document.place(("axes",), of_key=True),
    )
    problems = [*document.problems, *base.problems, *_override_problems(overrides, axes)]
    if not problems:
        problems = [
            *repeated_value_problems(document, axes, study.groups),
            *study_problems(study, base, document),
        ]
    if problems:
        raise InputError(in_order(problems))
    return study


def _base(document: Document, file: StudyFile, path: Path) -> tuple[Document, Path]:
    """The scenario that the study rests on, and the folder that its file names are relative to."""
    if isinstance(file.scenario, str):
        scenario = path.parent / file.scenario
        try:
            text = read_text(scenario)
        except InputError as error:
            message = error.problems[0].message
            allowed = "a scenario file, relative to the study, or the scenario itself"
            raise InputError(document.problem(("scenario",), file.scenario, message, allowed)) from None
        return parse_yaml(text, str(scenario)), scenario.parent
    inner = Document(deepcopy(document.data["scenario"]), document.file)
    for outer, inner_places in ((document.values, inner.values), (document.keys, inner.keys)):
        inner_places.update(
            {where[1:]: place for where, place in outer.items() if where[0:1] == ("scenario",)}
        )
    return inner, path.parent


def _title(base: Document) -> str | None:
    name = base.data.get("name")
    return name if isinstance(name, str) else None


def _name_variants(base: Document) -> None:
    """Name variants without a name after their method, because the draft length may vary."""
    variants = base.data.get("speculation")
    entries = [
        variant for variant in (variants if isinstance(variants, list) else ()) if isinstance(variant, dict)
    ]
    methods = [variant.get("method") for variant in entries]
    for variant in entries:
        if (
            "name" not in variant
            and isinstance(variant.get("method"), str)
            and methods.count(variant["method"]) == 1
        ):
            variant["name"] = variant["method"]


def _conditions(document: Document, file: StudyFile) -> tuple[str, ...]:
    entries = (file.where,) if isinstance(file.where, str) else file.where
    conditions = []
    for index, condition in enumerate(entries):
        try:
            conditions.append(condition_sql(condition, [*file.axes, SEED]))
        except InputError as error:
            at: DataPath = ("where",) if isinstance(file.where, str) else ("where", index)
            place = document.place(at)
            document.problems += error.at(place.file, place.line, place.column, "where").problems
    return tuple(conditions)


def _override_problems(overrides: Sequence[str], axes: Sequence[Axis]) -> list[Problem]:
    """Overrides of what varies anyway."""
    paths = [override.partition("=")[0].strip() for override in overrides]
    return [
        Problem(
            file=f"--set {path}", message=f"sets what the axis {axis.path} varies", allowed="another field"
        )
        for path in paths
        for axis in axes
        if f"{path}.".startswith(f"{axis.path}.") or f"{axis.path}.".startswith(f"{path}.")
    ]
