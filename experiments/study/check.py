"""Checks a study before anything runs: every value of every axis must be valid in some cell.

A value is tried with the first values of all other axes and, if that fails, with others. For example, a
drafter on two GPUs is invalid with a target on four, and valid with a target on two. A value that is invalid
everywhere is reported at its line. An invalid combination becomes a failed cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import islice, product

from experiments.metrics import keep_problem
from experiments.study.refine import refine_problems
from experiments.study.study import Study, follow
from simulator.document import Document
from simulator.errors import InputError, Problem
from simulator.scenario import PLAIN, Scenario
from simulator.scenario.load import in_order, scenario_from_document
from simulator.scenario.overrides import set_field

_MAX_TRIES = 30
"""Cells that are built in search of one where a value is right."""
_MAX_VALUES_TRIED = 50
"""Values of an axis that are tried; of a longer one the ends and some between."""


def study_problems(study: Study, base: Document, document: Document) -> Iterator[Problem]:
    """All that is wrong with the values and the kept metrics of a study that was read from `document`."""
    variants = {PLAIN}
    problems: list[Problem] = []
    for axis, index in _values_to_try(study):
        scenario_or_problems = _first_valid_scenario(study, base, axis, index)
        if isinstance(scenario_or_problems, Scenario):
            variants |= {variant.name for variant in scenario_or_problems.speculation}
        else:
            problems += scenario_or_problems
    yield from in_order(problems)
    if not problems:
        for index, entry in enumerate(study.keep):
            problem = keep_problem(entry, sorted(variants), study.measures)
            if problem is not None:
                place = document.place(("keep", index))
                yield problem.at(place.file, place.line, place.column, "keep")
        yield from refine_problems(study, sorted(variants), document)


def _values_to_try(study: Study) -> Iterator[tuple[int, int]]:
    """(axis, value) of all that is tried; (-1, 0), the scenario alone, where nothing varies."""
    if not study.axes:
        yield -1, 0
    for number, axis in enumerate(study.axes):
        count = len(axis.values)
        step = max(1, (count - 1) // _MAX_VALUES_TRIED)
        yield from ((number, index) for index in sorted({*range(0, count, step), count - 1}))


def _first_valid_scenario(
    study: Study, base: Document, axis: int, index: int
) -> Scenario | Sequence[Problem]:
    """A scenario with this value that is right, or what is wrong with the first that was tried."""
    problems: Sequence[Problem] = ()
    for point in _points_with(study, axis, index):
        try:
            return _scenario_at(study, base, point)
        except InputError as error:
            problems = problems or error.problems
    return problems


def _points_with(study: Study, axis: int, index: int) -> Iterator[Mapping[int, int]]:
    """Positions by axis, those that go together together: the first value of all others, then other ones."""
    groups = study.groups
    lengths = [len(study.axes[group[0]].values) for group in groups]
    ranges = [
        (index,) if axis in group else range(length) for group, length in zip(groups, lengths, strict=True)
    ]
    for places in islice(product(*ranges), _MAX_TRIES):
        yield {n: place for group, place in zip(groups, places, strict=True) for n in group}


def _scenario_at(study: Study, base: Document, point: Mapping[int, int]) -> Scenario:
    document = Document(deepcopy(base.data), base.file, dict(base.values), dict(base.keys))
    for number, index in point.items():
        axis = study.axes[number]
        set_field(document, axis.path, deepcopy(axis.values[index]), axis.places[index])
        document.keys[axis.where] = base.keys[axis.where]
    follow(study, document.data)
    return scenario_from_document(document, study.base_dir)
