"""`validate(cases)`: published measurements, simulated and compared: all that tables and pages show."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from calibration.validation.baselines import against_baselines
from calibration.validation.coverage import Coverage, coverage_of
from calibration.validation.curves import Curve, curves_of
from calibration.validation.errors import Errors, errors_of
from calibration.validation.groups import SPEC_BUNDLE, fit_sources, held_out
from calibration.validation.pool import worker_pool
from calibration.validation.quantities import CROSSOVER, QUANTITIES, SPEEDUP
from calibration.validation.row import BOTH, NO_FIGURE, Row, row_of
from calibration.validation.run import answers, failure, run_trials
from calibration.validation.shape import Crossing, CurveAnswer, CurveQuestion, answer_curve
from calibration.validation.targets import Target, targets_of
from calibration.validation.trials.trials import trials_of_cases

if TYPE_CHECKING:
    from calibration.validation.predict import Alteration
    from calibration.validation.trials.cases import Case
    from calibration.validation.trials.trial import Trial
    from simulator.runs.replications import Progress

SCHEMA = "decodesim/validate-1"
SPEEDUPS_KNOWN, SPEEDUPS_SPEC_BUNDLE, SPEEDUPS_OTHERS = "acceptance known", "SpecBundle", "others"
"""Parts of the speedups: acceptance given or joined; of these SpecBundle's, and those of other sources."""

WORTH_A_PROCESS = 50
"""Trials that this process runs sooner than others start."""

ACCEPTANCE = ("given", "joined", "prior", "none")
"""Where the acceptance of a row is from; `none`: it needs none."""


@dataclass(frozen=True)
class Validation:
    """All rows: one per published figure, and one per crossing. `shape`: those of curves over batch whose
    acceptance is that of their smallest batch.
    """

    rows: tuple[Row, ...]
    shape: tuple[Row, ...]
    coverage: Coverage

    @cached_property
    def summary(self) -> dict[str, dict[str, Errors]]:
        """Quantity → where acceptance is from, or `all` → errors."""
        found = {}
        for quantity in QUANTITIES:
            rows = [row for row in self.rows if row.quantity == quantity]
            if rows:
                parts = {name: [row for row in rows if row.acceptance_from == name] for name in ACCEPTANCE}
                found[quantity] = {name: errors_of(part) for name, part in {**parts, "all": rows}.items()}
        return found

    @cached_property
    def targets(self) -> tuple[Target, ...]:
        """What the comparison is held to."""
        return targets_of(self.rows, self.shape)

    @property
    def extent(self) -> str:
        """How much was compared and simulated, in a sentence."""
        compared, coverage = sum(row.skipped is None for row in self.rows), self.coverage
        share = "" if coverage.value is None else f" ({coverage.value:.0%})"
        return (
            f"{compared:,} of {len(self.rows):,} published figures compared; of {coverage.of} cases on "
            f"H100, H200 and A100 whose source is good enough, {coverage.simulated} are simulated{share}"
        )

    @property
    def shape_speedups(self) -> list[Row]:
        """The rows of curves that are speedups, without crossings."""
        return [row for row in self.shape if row.quantity == SPEEDUP]

    def speedups(self) -> dict[str, list[Row]]:
        """The speedups of good sources in the parts that are reported apart; a row can be in several."""
        rows = [row for row in self.rows if row.quantity == SPEEDUP and row.gates]
        known = [row for row in rows if row.acceptance_from in ("given", "joined")]
        others = [row for row in known if row.source != SPEC_BUNDLE]
        return {
            SPEEDUPS_KNOWN: known,
            SPEEDUPS_SPEC_BUNDLE: [row for row in known if row.source == SPEC_BUNDLE],
            SPEEDUPS_OTHERS: others,
            "others, held out": [row for row in others if held_out(row)],
            "acceptance a prior": [row for row in rows if row.acceptance_from == "prior"],
        }

    def to_json(self) -> dict[str, Any]:
        """The document of `decodesim validate --json`."""
        return {
            "schema": SCHEMA,
            "cases": [row.to_json() for row in self.rows],
            "summary": {
                quantity: {name: errors.to_json() for name, errors in parts.items()}
                for quantity, parts in self.summary.items()
            },
            "coverage": self.coverage.to_json(),
            "shape": {
                "cases": [row.to_json() for row in self.shape],
                "summary": _named(against_baselines(self.shape_speedups)),
            },
            "baselines": {name: _named(against_baselines(rows)) for name, rows in self.speedups().items()},
            "targets": [target.to_json() for target in self.targets],
            "fit_sources": sorted(fit_sources()),
        }


def _named(errors: dict[str, Errors]) -> dict[str, Any]:
    return {name: one.to_json() for name, one in errors.items()}


def validate(cases: Sequence[Case], workers: int = 2, progress: Progress | None = None) -> Validation:
    """Simulate and compare all points of these cases."""
    trials = trials_of_cases(cases)
    with worker_pool(workers if len(trials) > WORTH_A_PROCESS else 1) as pool:
        return validate_trials(cases, trials, pool, progress)


def validate_trials(
    cases: Sequence[Case],
    trials: Sequence[Trial],
    pool: Executor | None = None,
    progress: Progress | None = None,
    alter: Alteration | None = None,
) -> Validation:
    """The same for trials that were made of the cases before; without a pool, in this process.

    `alter` changes every compiled variant, as the workers of the pool can import it.
    """
    curves = curves_of(trials)
    questions = [CurveQuestion.of(curve) for curve in curves]
    rows = run_trials(trials, pool, progress, alter)
    found = answers(AnswerCurve(alter), questions, lambda one: one.key, pool, at_once=1)
    pairs = list(zip(curves, found, strict=True))
    crossings = [row for curve, answer in pairs for row in _crossing_rows(curve, answer.crossing)]
    shape = [row for curve, answer in pairs for row in _shape_rows(curve, answer)]
    shape += [row for curve, answer in pairs for row in _crossing_rows(curve, answer.shape_crossing)]
    return Validation((*rows, *crossings), tuple(shape), coverage_of(cases, trials, rows))


@dataclass(frozen=True)
class AnswerCurve:
    """`answer_curve` as workers take it."""

    alter: Alteration | None = None

    def __call__(self, question: CurveQuestion) -> CurveAnswer:
        try:
            return answer_curve(question, self.alter)
        except Exception as error:  # as in `run.Predict`
            return CurveAnswer.failed(failure(error))


def _crossing_rows(curve: Curve, crossing: Crossing) -> Iterator[Row]:
    """One row where the published curve crosses 1, about its first point beyond the crossing."""
    published = curve.crossing
    if published is None:
        return
    after = next(at for at, batch in enumerate(curve.batches) if batch >= published)
    value = math.nan if crossing.batch is None else crossing.batch
    trial = curve.trials[after]
    yield row_of(trial, CROSSOVER, BOTH, published, value, crossing.missing, interval=crossing.interval)


def _shape_rows(curve: Curve, answer: CurveAnswer) -> Iterator[Row]:
    """One row per point after the first."""
    for at, trial in enumerate(curve.trials[1:]):
        value = answer.shape[at] if answer.shape else math.nan
        closed = answer.closed_form[at] if answer.closed_form else None
        reason = answer.missing or (None if value > 0 else NO_FIGURE)
        yield row_of(trial, SPEEDUP, BOTH, curve.published[at + 1], value, reason, closed_form=closed)
