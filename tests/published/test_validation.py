"""The gate: published measurements simulated and held to their targets; wrong cost models fail it.

That no published speed reaches a prediction is shown in `test_no_circularity.py`; here published speedups are
dealt to other cases, which must destroy the agreement.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import pytest

from calibration.validation.accuracy import accuracy_page
from calibration.validation.assumed import Move, moves
from calibration.validation.baselines import CLOSED_FORM, CONSTANT, SIMULATED, against_baselines
from calibration.validation.errors import errors_of
from calibration.validation.pool import worker_pool
from calibration.validation.row import Row
from calibration.validation.targets import Target
from calibration.validation.trials.cases import committed_cases
from calibration.validation.trials.trial import Trial
from calibration.validation.trials.trials import trials_of_cases
from calibration.validation.validate import (
    SPEEDUPS_KNOWN,
    SPEEDUPS_SPEC_BUNDLE,
    Validation,
    validate_trials,
)
from tests.shared_data import ROOT
from tests.wrong_costs import WRONG

pytestmark = pytest.mark.timeout(600)  # all published points are simulated once

MET = (
    ("speedup", "pooled P90"),
    ("shape over batch", "pooled P90"),
    ("shares of a step, the worst part, whose source also set a constant", "median difference"),
    ("step-time ratio verify ÷ plain", "median over sources"),
)
"""Those of the targets that are met which must stay so: gains alone and a tail within 30 % say little."""

KNOWN = ("given", "joined")


class Whole(NamedTuple):
    """All committed cases simulated, and how they move with the lengths that were assumed."""

    validation: Validation
    moved: tuple[Move, ...]


@pytest.fixture(scope="module")
def all_of_it() -> Whole:
    """Everything, once."""
    with worker_pool(2) as pool:
        validation = validate_trials(committed_cases(), trials(), pool)
        return Whole(validation, moves(trials(), validation.rows, pool))


@pytest.fixture(scope="module")
def whole(all_of_it: Whole) -> Validation:
    """All committed cases."""
    return all_of_it.validation


def test_the_page_of_errors_is_of_today(all_of_it: Whole) -> None:
    """`make accuracy` writes it, byte for byte."""
    assert accuracy_page(*all_of_it) == (ROOT / "ACCURACY.md").read_text(encoding="utf-8")


@cache
def trials() -> tuple[Trial, ...]:
    """All committed points."""
    return trials_of_cases(committed_cases())


def failed(targets: tuple[Target, ...]) -> set[tuple[str, str]]:
    """The targets of `MET` that do not hold."""
    return {(one.name, one.statistic) for one in targets if one.met is False} & set(MET)


def test_the_targets_that_are_met_stay_met(whole: Validation) -> None:
    judged = {(one.name, one.statistic): one for one in whole.targets}
    for name in MET:
        assert judged[name].met, judged[name]
        assert judged[name].n >= 25


def test_most_cases_are_simulated(whole: Validation) -> None:
    assert whole.coverage.of > 200
    assert (whole.coverage.value or 0) >= 0.78
    assert not [reason for reason in whole.coverage.reasons if reason.startswith("failed")]


def test_the_simulation_beats_the_closed_form_and_a_constant(whole: Validation) -> None:
    """On speedups with known acceptance, SpecBundle among them and apart."""
    for part in (SPEEDUPS_KNOWN, SPEEDUPS_SPEC_BUNDLE):
        errors = against_baselines(whole.speedups()[part])
        assert errors[SIMULATED].n > 100
        for statistic in ("median_abs_log_error", "p90_abs_log_error"):
            best = getattr(errors[SIMULATED], statistic)
            assert best < getattr(errors[CLOSED_FORM], statistic), statistic
            assert best < 0.5 * getattr(errors[CONSTANT], statistic), statistic


@pytest.fixture(scope="module")
def steps() -> tuple[Trial, ...]:
    """The points about single steps, which hold their targets at the right prices."""
    found = tuple(trial for trial in trials() if trial.uniform)
    assert failed(validate_trials((), found).targets) == set()
    return found


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_cost_model_fails_the_gate(name: str, steps: tuple[Trial, ...]) -> None:
    wrong = validate_trials((), steps, alter=WRONG[name])
    assert failed(wrong.targets)


def test_shuffled_speedups_agree_no_more(whole: Validation) -> None:
    """Published speedups dealt to other cases at random: the errors are those of no model at all."""
    rows = [row for row in whole.rows if row.quantity == "speedup" and row.acceptance_from in KNOWN]
    rows = [row for row in rows if row.predicted is not None]
    right = errors_of(rows).median_abs_log_error or 1.0
    for seed in range(20):
        shuffled = errors_of(dealt_again(rows, seed))
        assert (shuffled.median_abs_log_error or 0.0) > 3 * right


def dealt_again(rows: list[Row], seed: int) -> list[Row]:
    """The rows with their published figures in another order."""
    figures = [row.published for row in rows]
    random.Random(seed).shuffle(figures)
    return [replace(row, published=figure) for row, figure in zip(rows, figures, strict=True)]
