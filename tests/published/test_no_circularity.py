"""No prediction is fed by what it is compared with, nor by another speed of the same run.

Every speed of every committed case is changed at random, each on its own. The scenarios of every run must
stay as they were: an input that came from a speed would move. The one exception, tokens per step as ITL ÷
TPOT of one run, is marked, and moves with that ratio alone.
"""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from calibration.validation.reconstruction.acceptance_facts import facts_of
from calibration.validation.reconstruction.cases import PublishedCase, committed_cases
from calibration.validation.reconstruction.drafts import LENGTH_KEYS
from calibration.validation.reconstruction.evidence import AcceptanceEvidence
from calibration.validation.reconstruction.published_run import PublishedRun
from calibration.validation.reconstruction.reconstruct import published_runs_of

RATIO_OF_LATENCIES = "ITL ÷ TPOT"
SPEEDS = re.compile(
    r"tok_per_s|tpot|itl|ttft|e2e|_ms$|_ms_|ms_per_token|throughput|duration_s|speedup|verify|plain_step|draft_total"
    r"|ratio|chunks_per_s|overhead|pct$"
)
"""Names of what was measured with a clock: latencies, rates, shares of time, and their ratios."""

Change = Callable[[str, float], float]


def with_changed(case: PublishedCase, chosen: Callable[[str], bool], change: Change) -> PublishedCase:
    """The case with every number under a chosen name changed, however deep it lies."""

    def walk(value: Any, name: str) -> Any:
        if isinstance(value, Mapping):
            return {
                key: walk(inner, key if chosen(key) or not chosen(name) else name)
                for key, inner in value.items()
            }
        if isinstance(value, list):
            return [walk(inner, name) for inner in value]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return change(name, value) if number and chosen(name) else value

    return dataclasses.replace(case, points=tuple(walk(point, "") for point in case.points))


def is_speed(name: str) -> bool:
    return bool(SPEEDS.search(name))


def runs_by_name(cases: tuple[PublishedCase, ...]) -> dict[tuple[object, ...], PublishedRun]:
    """Trials by what they are about; which figures a point publishes is no part of that."""
    evidence = AcceptanceEvidence.of(cases)
    result: dict[tuple[object, ...], PublishedRun] = {}
    for case in cases:
        for run in published_runs_of(case, evidence):
            about = tuple(sorted({figure.quantity for figure in run.published}))
            result[case.source_id, case.case_id, run.point, run.dataset, about] = run
    return result


@pytest.fixture(scope="module")
def cases() -> tuple[PublishedCase, ...]:
    return committed_cases()


@pytest.fixture(scope="module")
def runs(cases: tuple[PublishedCase, ...]) -> dict[tuple[object, ...], PublishedRun]:
    return runs_by_name(cases)


def moved(
    before: Mapping[tuple[object, ...], PublishedRun], after: Mapping[tuple[object, ...], PublishedRun]
) -> list[PublishedRun]:
    """The runs that are simulated otherwise, or from other acceptance."""
    assert before.keys() == after.keys()
    return [
        run
        for name, run in before.items()
        if (run.plain, run.spec, dict(run.skipped), run.acceptance_note)
        != (after[name].plain, after[name].spec, dict(after[name].skipped), after[name].acceptance_note)
    ]


def test_no_speed_reaches_a_scenario(
    cases: tuple[PublishedCase, ...], runs: dict[tuple[object, ...], PublishedRun]
) -> None:
    rng = random.Random(7)
    other = tuple(
        with_changed(case, is_speed, lambda _, value: value * rng.uniform(0.5, 2.0)) for case in cases
    )
    after = runs_by_name(other)
    figures = [
        (figure.value, run)
        for run in runs.values()
        for figure in run.published
        if figure.quantity == "speedup"
    ]
    assert len(figures) > 300
    marked = [run for run in runs.values() if RATIO_OF_LATENCIES in run.acceptance_note]
    strays = [run for run in moved(runs, after) if run not in marked]
    assert [(run.case.case_id, run.point) for run in strays] == []
    assert 1 <= len(marked) < 20


def test_the_marked_exception_moves_with_its_ratio_alone(
    cases: tuple[PublishedCase, ...], runs: dict[tuple[object, ...], PublishedRun]
) -> None:
    """A machine twice as slow has the same tokens per step; a stream in larger chunks has more."""
    marked = {run.case.case_id for run in runs.values() if RATIO_OF_LATENCIES in run.acceptance_note}
    some = tuple(case for case in cases if case.case_id in marked)
    before = runs_by_name(some)
    slower = tuple(with_changed(case, is_speed, lambda _, value: 2 * value) for case in some)
    assert moved(before, runs_by_name(slower)) == []
    chunks = tuple(
        with_changed(case, lambda name: name == "itl_mean_ms", lambda _, value: 1.05 * value) for case in some
    )
    assert {run.case.case_id for run in moved(before, runs_by_name(chunks))} == marked


def test_what_acceptance_says_does_reach_the_scenarios(
    cases: tuple[PublishedCase, ...],
) -> None:
    """Without this control the first test would pass for runs that are deaf."""
    some = tuple(case for case in cases if case.source_id in ("vllm#20780", "specforge:spec_bundle"))
    before = runs_by_name(some)
    lower = tuple(with_changed(case, is_acceptance, lambda _, value: 1 + 0.9 * (value - 1)) for case in some)
    stated_runs = [run for run in before.values() if run.acceptance_from == "given" and run.spec is not None]
    assert len(stated_runs) > 100
    assert moved(before, runs_by_name(lower)) == stated_runs


def test_a_prior_knows_nothing_of_its_own_source(
    cases: tuple[PublishedCase, ...], runs: dict[tuple[object, ...], PublishedRun]
) -> None:
    """Of the sources whose own statements would matter most: they state the same method elsewhere."""
    prior = [run for run in runs.values() if run.acceptance_from == "prior"]
    stated = {(fact.source_id, fact.method) for case in cases for fact in facts_of(case) if not fact.tree}
    leaky = {run.case.source_id for run in prior if (run.case.source_id, run.method) in stated}
    assert len(leaky) > 1
    for source in sorted(leaky):
        own = tuple(case for case in cases if case.source_id == source)
        others = tuple(case for case in cases if case.source_id != source)
        changed = tuple(
            with_changed(case, is_acceptance, lambda _, value: 1 - 0.5 * (1 - value)) for case in own
        )
        assert [fact.length for case in changed for fact in facts_of(case)] != [
            fact.length for case in own for fact in facts_of(case)
        ]
        evidence = AcceptanceEvidence.of((*changed, *others))
        again = {
            (run.case.case_id, run.point, run.dataset): run
            for case in changed
            for run in published_runs_of(case, evidence)
            if run.acceptance_from == "prior"
        }
        for run in prior:
            if run.case.source_id == source:
                assert again[run.case.case_id, run.point, run.dataset].spec == run.spec


def is_acceptance(name: str) -> bool:
    return name in (
        *("acceptance_length", "mean_acceptance_length", "tokens_per_step"),
        *("survival_by_position", "position_survival_cumulative", "draft_acceptance_rate", "alpha"),
    )


def test_a_compared_acceptance_length_is_not_its_own_input(
    cases: tuple[PublishedCase, ...], runs: dict[tuple[object, ...], PublishedRun]
) -> None:
    compared = [
        run
        for run in runs.values()
        if run.spec is not None and any(figure.quantity == "acceptance_length" for figure in run.published)
    ]
    assert len(compared) > 10
    for run in compared:
        assert run.acceptance_from != "given"
        points = list(run.case.points)
        points[run.point] = {
            key: value
            for key, value in points[run.point].items()
            if "survival" not in key and "hist" not in key and key not in LENGTH_KEYS
        } | {"mean_acceptance_length": 1.01}
        case = dataclasses.replace(run.case, points=tuple(points))
        evidence = AcceptanceEvidence.of(
            (case, *(other_case for other_case in cases if other_case.case_id != case.case_id))
        )
        (again,) = [figure for figure in published_runs_of(case, evidence) if figure.point == run.point]
        assert again.spec == run.spec
        assert again.published[-1].value == 1.01
