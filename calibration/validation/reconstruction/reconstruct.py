"""Turns published cases into published runs: scenarios to simulate and figures to compare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from calibration.validation.reconstruction.acceptance_facts import DATASET_KEYS
from calibration.validation.reconstruction.cases import PublishedCase, committed_cases, named_datasets
from calibration.validation.reconstruction.evidence import AcceptanceEvidence
from calibration.validation.reconstruction.figures import in_terms_of_load
from calibration.validation.reconstruction.names import datasets_of
from calibration.validation.reconstruction.point import PublishedPoint
from calibration.validation.reconstruction.published_run import PublishedRun
from calibration.validation.reconstruction.sections import Facts


def published_runs_of_cases(cases: Sequence[PublishedCase]) -> tuple[PublishedRun, ...]:
    """The runs of all cases; acceptance comes from these and the committed cases."""
    evidence = AcceptanceEvidence.of((*cases, *committed_cases()))
    return tuple(run for case in cases for run in published_runs_of(case, evidence))


def published_runs_of(case: PublishedCase, evidence: AcceptanceEvidence) -> tuple[PublishedRun, ...]:
    """The runs of a case: one per point, more for a point with several data sets or with single steps.

    Whatever a source states, nothing is raised: what cannot be simulated has its reason in
    `PublishedRun.skipped`. `evidence` must include the case.
    """
    runs = (
        run
        for index, point in enumerate(case.points)
        for dataset, facts in _by_dataset(point)
        for run in PublishedPoint(
            in_terms_of_load(case.at(facts), facts), index, facts, dataset, evidence
        ).runs()
    )
    return tuple(_without_repeats(runs))


def _by_dataset(point: Facts) -> Iterator[tuple[str | None, Facts]]:
    """(data set, facts) of a point: one pair, or one for each data set that it holds."""
    inner = [key for key in DATASET_KEYS if isinstance(point.get(key), Mapping)]
    shared = {key: value for key, value in point.items() if key not in inner}
    for key in inner:
        yield key, {**shared, **point[key]}
    if not inner:
        yield next((name for name in named_datasets(point) if datasets_of(name)), None), point


def _without_repeats(runs: Iterator[PublishedRun]) -> Iterator[PublishedRun]:
    """The runs with each plain figure once: sources repeat a plain run in every comparison with it.

    Equal figures at other lengths are no repeats.
    """
    seen: set[tuple[object, ...]] = set()
    for run in runs:
        figures = []
        lengths = tuple(sorted(run.mean_tokens.items()))
        for figure in run.published:
            key = (run.load, run.dataset, lengths, figure)
            if figure.variant != "plain" or key not in seen:
                figures.append(figure)
            seen.add(key)
        if figures or not run.published:
            yield replace(run, published=tuple(figures))
