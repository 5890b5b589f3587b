"""`validate(cases)` simulates published measurements and compares them: the data of all tables and pages."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from calibration.validation.baselines import against_baselines
from calibration.validation.compare import compare_runs, failure, results_of
from calibration.validation.coverage import Coverage, coverage_of
from calibration.validation.curve_prediction import Crossing, CurveInput, CurvePrediction, predict_curve
from calibration.validation.errors import ErrorSummary, errors_of
from calibration.validation.groups import SPEC_BUNDLE, fit_sources, held_out
from calibration.validation.pool import worker_pool
from calibration.validation.quantities import CROSSOVER, QUANTITIES, SPEEDUP
from calibration.validation.reconstruction.reconstruct import published_runs_of_cases
from calibration.validation.row import BOTH, NO_FIGURE, ComparisonRow, row_of
from calibration.validation.speedup_curves import SpeedupCurve, curves_of
from calibration.validation.targets import AccuracyTarget, targets_of

if TYPE_CHECKING:
    from calibration.validation.predict import Alteration
    from calibration.validation.reconstruction.cases import PublishedCase
    from calibration.validation.reconstruction.published_run import PublishedRun
    from simulator.runs.replications import Progress

SCHEMA = "decodesim/validate-1"
SPEEDUPS_KNOWN, SPEEDUPS_SPEC_BUNDLE, SPEEDUPS_OTHERS = "acceptance known", "SpecBundle", "others"
"""Parts of the speedups: those with acceptance given or joined; of these, SpecBundle's; and the others."""

WORTH_A_PROCESS = 50
"""With fewer runs than this, starting worker processes takes longer than the work."""

ACCEPTANCE = ("given", "joined", "prior", "none")
"""Origins of a row's acceptance; `none`: plain decoding needs none."""


@dataclass(frozen=True)
class Validation:
    """All rows: one per published figure and one per crossing.

    `shape`: the rows of curves over batch, predicted with the acceptance of their smallest batch.
    """

    rows: tuple[ComparisonRow, ...]
    shape: tuple[ComparisonRow, ...]
    coverage: Coverage

    @cached_property
    def summary(self) -> dict[str, dict[str, ErrorSummary]]:
        """Quantity → origin of the acceptance, or `all` → errors."""
        summary = {}
        for quantity in QUANTITIES:
            rows = [row for row in self.rows if row.quantity == quantity]
            if rows:
                parts = {name: [row for row in rows if row.acceptance_from == name] for name in ACCEPTANCE}
                summary[quantity] = {name: errors_of(part) for name, part in {**parts, "all": rows}.items()}
        return summary

    @cached_property
    def targets(self) -> tuple[AccuracyTarget, ...]:
        """The accuracy targets with their values."""
        return targets_of(self.rows, self.shape)

    @property
    def extent(self) -> str:
        """One sentence on how much was compared and simulated."""
        compared, coverage = sum(row.skipped is None for row in self.rows), self.coverage
        share = "" if coverage.value is None else f" ({coverage.value:.0%})"
        return (
            f"{compared:,} of {len(self.rows):,} published figures compared; of {coverage.of} cases on "
            f"H100, H200 and A100 whose source is good enough, {coverage.simulated} are simulated{share}"
        )

    @property
    def shape_speedups(self) -> list[ComparisonRow]:
        """The speedups among the rows of curves, without crossings."""
        return [row for row in self.shape if row.quantity == SPEEDUP]

    def speedups(self) -> dict[str, list[ComparisonRow]]:
        """The speedups of good sources by the parts reported apart; a row can be in several parts."""
        rows = [row for row in self.rows if row.quantity == SPEEDUP and row.gates]
        known_acceptance = [row for row in rows if row.acceptance_from in ("given", "joined")]
        others = [row for row in known_acceptance if row.source != SPEC_BUNDLE]
        return {
            SPEEDUPS_KNOWN: known_acceptance,
            SPEEDUPS_SPEC_BUNDLE: [row for row in known_acceptance if row.source == SPEC_BUNDLE],
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


def _named(errors: dict[str, ErrorSummary]) -> dict[str, Any]:
    return {name: summary.to_json() for name, summary in errors.items()}


def validate(
    cases: Sequence[PublishedCase], workers: int = 2, progress: Progress | None = None
) -> Validation:
    """Simulate and compare all points of the cases."""
    runs = published_runs_of_cases(cases)
    with worker_pool(workers if len(runs) > WORTH_A_PROCESS else 1) as pool:
        return validate_runs(cases, runs, pool, progress)


def validate_runs(
    cases: Sequence[PublishedCase],
    runs: Sequence[PublishedRun],
    pool: Executor | None = None,
    progress: Progress | None = None,
    alter: Alteration | None = None,
) -> Validation:
    """Simulate and compare runs that were already reconstructed from `cases`.

    Without a pool, this process does the work.

    `alter` changes every compiled variant; workers must be able to import it.
    """
    curves = curves_of(runs)
    inputs = [CurveInput.of(curve) for curve in curves]
    rows = compare_runs(runs, pool, progress, alter)
    predictions = results_of(
        PredictCurve(alter), inputs, lambda curve_input: curve_input.key, pool, chunk_size=1
    )
    pairs = list(zip(curves, predictions, strict=True))
    crossings = [row for curve, answer in pairs for row in _crossing_rows(curve, answer.crossing)]
    shape = [row for curve, answer in pairs for row in _shape_rows(curve, answer)]
    shape += [row for curve, answer in pairs for row in _crossing_rows(curve, answer.shape_crossing)]
    return Validation((*rows, *crossings), tuple(shape), coverage_of(cases, runs, rows))


@dataclass(frozen=True)
class PredictCurve:
    """`predict_curve` for workers: an unforeseen error becomes the result."""

    alter: Alteration | None = None

    def __call__(self, task: CurveInput) -> CurvePrediction:
        try:
            return predict_curve(task, self.alter)
        except Exception as error:  # as in `compare.Predict`
            return CurvePrediction.failed(failure(error))


def _crossing_rows(curve: SpeedupCurve, crossing: Crossing) -> Iterator[ComparisonRow]:
    """A row at the first point beyond the crossing, if the published curve crosses 1."""
    published = curve.crossing
    if published is None:
        return
    next_index = next(index for index, batch in enumerate(curve.batches) if batch >= published)
    value = math.nan if crossing.batch is None else crossing.batch
    run = curve.runs[next_index]
    yield row_of(run, CROSSOVER, BOTH, published, value, crossing.missing, interval=crossing.interval)


def _shape_rows(curve: SpeedupCurve, answer: CurvePrediction) -> Iterator[ComparisonRow]:
    """One row for each point after the first."""
    for index, run in enumerate(curve.runs[1:]):
        value = answer.shape[index] if answer.shape else math.nan
        closed = answer.closed_form[index] if answer.closed_form else None
        reason = answer.missing or (None if value > 0 else NO_FIGURE)
        yield row_of(run, SPEEDUP, BOTH, curve.published[index + 1], value, reason, closed_form=closed)
