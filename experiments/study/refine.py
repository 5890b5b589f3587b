"""The key `refine` of a study: the positions of its grid, and what is wrong with the key."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import product
from typing import TYPE_CHECKING, Any

from experiments.cell import SEED
from experiments.conditions import Filter
from experiments.contours import Position
from experiments.metrics import KeptMetrics, keep_problem
from simulator.errors import Problem

if TYPE_CHECKING:
    from experiments.study.study import Study
    from simulator.document import Document

_WORD_METRICS = ("verdict", "break_even_verdict")
"""Metrics that have no level: the contour runs between different words."""

MIN_VALUES = 4
"""Numeric axes with fewer values have nothing to leave out: each value is a grid of its own."""


class Positions:
    """The positions of a study: an axis per group of its axes that go together, and one for the seeds."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.groups = [[study.axes[n] for n in group] for group in study.groups]
        self.orders = [
            sorted(range(len(lead.values)), key=lead.values.__getitem__)
            if lead.ordered
            else range(len(lead.values))
            for lead, *_ in self.groups
        ]
        self.shape = (*map(len, self.orders), study.seeds)
        self.along = tuple(
            place
            for place, (lead, *_) in enumerate(self.groups)
            if lead.ordered and len(lead.values) >= MIN_VALUES
        )

    def settings(self, index: Position) -> dict[str, Any]:
        """The settings of a cell."""
        *places, seed = index
        settings = {
            axis.path: axis.values[order[place]]
            for group, order, place in zip(self.groups, self.orders, places, strict=True)
            for axis in group
        }
        return {**settings, SEED: self.study.first_seed + seed}

    def absent(self) -> frozenset[Position]:
        """The positions that the study's conditions leave out."""
        if not self.study.where:
            return frozenset()
        all_positions = list(product(*map(range, self.shape)))
        rows = ({**self.settings(index), "": index} for index in all_positions)
        condition_filter = Filter(self.study.where, [*self.study.paths, SEED])
        return frozenset(all_positions).difference(row[""] for row in condition_filter.matching(rows))


def refine_problems(study: Study, variants: Collection[str], document: Document) -> Iterator[Problem]:
    """What is wrong with the key `refine` of a study that was read from `document`."""
    refine = study.refine
    if refine is None:
        return
    if study.samples is not None:
        yield document.problem(
            ("refine",), None, "needs a grid", "leave sample out: samples have no neighbours"
        )
    elif not Positions(study).along:
        allowed = f"an axis of {MIN_VALUES} numbers or more"
        yield document.problem(("refine",), None, "has no axis to leave cells out of", allowed)
    metric: str = refine["metric"]
    at = ("refine", "metric")
    variant = next((variant for variant in variants if metric.startswith(f"{variant}.")), None)
    problem = keep_problem(metric, variants)
    if variant is None or problem is not None:
        message = problem.message if problem is not None else "does not say of which variant"
        allowed = f"ARM.METRIC, variants: {', '.join(variants)}"
        yield document.problem(at, metric, message, allowed)
        return
    name = metric.removeprefix(f"{variant}.")
    if not KeptMetrics(study.keep).holds(variant, name):
        yield document.problem(at, metric, "is not kept", "a metric that `keep` names, or the usual ones")
    if name in _WORD_METRICS and refine["level"] is not None:
        yield document.problem(
            ("refine", "level"), refine["level"], "has no meaning for words", "leave it out"
        )
    if name not in _WORD_METRICS and refine["level"] is None:
        yield document.problem(("refine",), None, "does not say the level of the contour", "level: a number")
