"""Published points made into trials: what was run, as scenarios, and what was measured, to compare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from calibration.validation.trials.acceptance_facts import DATASET_KEYS
from calibration.validation.trials.cases import Case, Facts, committed_cases, named_datasets
from calibration.validation.trials.evidence import Evidence
from calibration.validation.trials.names import datasets_of
from calibration.validation.trials.point import PointOfView
from calibration.validation.trials.trial import Trial


def trials_of_cases(cases: Sequence[Case]) -> tuple[Trial, ...]:
    """The trials of all cases; acceptance comes from them and from the committed evidence."""
    evidence = Evidence.of((*cases, *committed_cases()))
    return tuple(trial for case in cases for trial in trials_of(case, evidence))


def trials_of(case: Case, evidence: Evidence) -> tuple[Trial, ...]:
    """The trials of a case: one per point, more where a point tells of several data sets or of single steps.

    Nothing that a source says raises: what cannot be simulated has its reason in `Trial.skipped`. `evidence`
    must hold the case.
    """
    found = (
        trial
        for index, point in enumerate(case.points)
        for dataset, facts in _views(point)
        for trial in PointOfView(case, index, facts, dataset, evidence).trials()
    )
    return tuple(_once(found))


def _views(point: Facts) -> Iterator[tuple[str | None, Facts]]:
    """A point, or in place of it each of the data sets that it holds."""
    inner = [key for key in DATASET_KEYS if isinstance(point.get(key), Mapping)]
    shared = {key: value for key, value in point.items() if key not in inner}
    for key in inner:
        yield key, {**shared, **point[key]}
    if not inner:
        yield next((name for name in named_datasets(point) if datasets_of(name)), None), point


def _once(trials: Iterator[Trial]) -> Iterator[Trial]:
    """The trials with each plain figure once: sources repeat a plain run beside all they compare with it."""
    seen: set[tuple[object, ...]] = set()
    for trial in trials:
        kept = []
        for figure in trial.published:
            key = (trial.load, trial.dataset, figure)
            if figure.variant != "plain" or key not in seen:
                kept.append(figure)
            seen.add(key)
        if kept or not trial.published:
            yield replace(trial, published=tuple(kept))
