"""Fits the free parameters of the presets on half of the published sources and reports the errors on the
others.

    python -m calibration.validation.fit [--rounds 3] [--write]

Gauss–Newton on log errors; the derivatives come from simulating the runs again with one parameter changed.
`--write` puts the values into `simulator/data/engines/` and the record into `calibration/published/fit.json`.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np

from calibration.validation.compare import compare_runs
from calibration.validation.errors import quantile
from calibration.validation.fit.beginnings import beginnings
from calibration.validation.fit.parameters import (
    ALSO_USED,
    BLOCKS,
    PARAMETERS,
    Values,
    candidate_presets,
    presets_of,
    start,
    with_presets,
)
from calibration.validation.fit.solve import LinearisedErrors, from_scale, to_scale
from calibration.validation.fit.split import (
    BEGINNINGS,
    FIRST_TOKENS,
    FOLDS,
    STEPS,
    fit_half,
    fold_of,
    runs_for_fit,
    usable,
)
from calibration.validation.fit.write import rewrite_presets
from calibration.validation.groups import band_of, engine_of
from calibration.validation.pool import worker_pool
from calibration.validation.reconstruction.cases import committed_cases
from calibration.validation.reconstruction.published_run import PublishedRun
from calibration.validation.reconstruction.reconstruct import published_runs_of_cases
from calibration.validation.row import ComparisonRow
from simulator.numerics.arrays import Floats

DIFFERENCE = 0.15
"""Step of the finite differences, on the scale of the fit."""
TYPICAL = np.array([parameter.typical_s for parameter in PARAMETERS])


class PresetSimulations:
    """Simulates published runs on candidate presets, whose files are in `folder`."""

    def __init__(self, folder: Path, pool: Executor | None) -> None:
        self.folder, self.pool, self.count = folder, pool, 0

    def rows(self, runs: Sequence[PublishedRun], values: Values) -> list[ComparisonRow]:
        """The rows of the runs with these parameter values."""
        self.count += 1
        paths = candidate_presets(values, self.folder / str(self.count))
        rows = compare_runs(with_presets(runs, paths), pool=self.pool)
        return [*rows, *beginnings(rows)]

    def linear(
        self, runs: Sequence[PublishedRun], values: Values
    ) -> tuple[LinearisedErrors, list[ComparisonRow]]:
        """Log errors and derivatives of the usable rows at `values`.

        A parameter affects only its own presets and the rows of its own quantities.
        """
        base_rows = self.rows(runs, values)
        row_indices = {_key(row): index for index, row in enumerate(base_rows)}
        slopes = np.zeros((len(base_rows), len(PARAMETERS)))
        u = to_scale(np.array([values[parameter.name] for parameter in PARAMETERS]), TYPICAL)
        for p, parameter in enumerate(PARAMETERS):
            changed_values = dict(values) | {parameter.name: float(from_scale(u + DIFFERENCE, TYPICAL)[p])}
            affected_runs = [run for run in runs if presets_of(run) & set(parameter.presets)]
            for row in self.rows(affected_runs, changed_values):
                index = row_indices.get(_key(row))
                if row.quantity in parameter.quantities and index is not None:
                    slopes[index, p] = (row.log_error - base_rows[index].log_error) / DIFFERENCE
        usable_indices = [
            n for n, row in enumerate(base_rows) if usable(row) and np.isfinite([row.log_error]).all()
        ]
        usable_indices = [n for n in usable_indices if np.isfinite(slopes[n]).all()]
        rows = [base_rows[n] for n in usable_indices]
        errors = np.array([row.log_error for row in rows])
        return LinearisedErrors(errors, slopes[usable_indices], tuple(row.source for row in rows)), rows


def _key(row: ComparisonRow) -> tuple[object, ...]:
    return row.case_id, row.point, row.quantity, row.variant, row.part, row.dataset, row.batch, row.published


def fit(
    runs: Sequence[PublishedRun], simulations: PresetSimulations, rounds: int
) -> tuple[dict[str, float], list[str]]:
    """The values after `rounds` rounds on these runs, and the names of the fitted parameters.

    A parameter that fewer than two sources constrain at the end keeps its start value, and the others are
    fitted again without it.
    """
    fitted = [parameter.name for parameter in PARAMETERS]
    while True:
        values = _fit(runs, simulations, rounds, fitted)
        linear, _ = simulations.linear(runs, rounded(values))
        sources = dict(zip(values, linear.constraining(), strict=True))
        constrained = [name for name in fitted if len(sources[name]) >= 2]
        if constrained == fitted:
            return values, fitted
        fitted = constrained


def _fit(
    runs: Sequence[PublishedRun], simulations: PresetSimulations, rounds: int, fitted: Sequence[str]
) -> dict[str, float]:
    """The values after `rounds` rounds in which only these parameters move."""
    values = start()
    free_parameters = np.array([name in fitted for name in values])
    for round_index in range(rounds):
        linear, rows = simulations.linear(runs, values)
        free_part = replace(linear, slopes=linear.slopes * free_parameters)
        step = sum(part.solve() for part in blocks(free_part, rows))
        u = to_scale(np.array(list(values.values())), TYPICAL) + step
        values = dict(zip(values, from_scale(u, TYPICAL).tolist(), strict=True))
        summary = ", ".join(f"{name} {1e6 * value:.4g}" for name, value in values.items())
        click.echo(f"round {round_index + 1}: µs: {summary}", err=True)
    return values


def blocks(linear: LinearisedErrors, rows: Sequence[ComparisonRow]) -> list[LinearisedErrors]:
    """The rows of every block; the parameters of other blocks do not affect them."""
    return [_of(linear, rows, quantities) for quantities in BLOCKS]


def _of(
    linear: LinearisedErrors, rows: Sequence[ComparisonRow], quantities: Sequence[str]
) -> LinearisedErrors:
    return linear.of_rows([row.quantity in quantities for row in rows])


def rounded(values: Values) -> dict[str, float]:
    """The values to two significant digits, which is all that the data determine."""
    return {name: float(f"{value:.2g}") for name, value in values.items()}


def record(
    values: Values,
    fitted: Sequence[str],
    linear: LinearisedErrors,
    rows: Sequence[ComparisonRow],
    fit_sources: Sequence[str],
) -> dict[str, Any]:
    """The record written next to the values: intervals, errors of both halves, rotation, sensitivities."""
    in_fit = [source in fit_sources for source in linear.sources]
    fit_part, fit_rows = linear.of_rows(in_fit), [row for row, use in zip(rows, in_fit, strict=True) if use]
    u = to_scale(np.array([values[parameter.name] for parameter in PARAMETERS]), TYPICAL)
    half = sum(part.jackknife() for part in blocks(fit_part, fit_rows))
    low, high = from_scale(u - half, TYPICAL), from_scale(u + half, TYPICAL)
    constraining_sources = fit_part.constraining()
    parameters = {
        parameter.name: {
            "value_us": round(1e6 * values[parameter.name], 3),
            "interval_us": [round(1e6 * float(low[p]), 3), round(1e6 * float(high[p]), 3)],
            "before_us": round(1e6 * parameter.start_s, 3),
            "presets": list(parameter.presets),
            "path": f"host.{parameter.preset_field}",
            "what": parameter.description,
            "fitted": parameter.name in fitted,
            "rests_on": sorted(constraining_sources[p]),
        }
        for p, parameter in enumerate(PARAMETERS)
    }
    others = sorted(set(linear.sources) - set(fit_sources))
    steps, first_tokens, begins = (
        _of(linear, rows, quantities) for quantities in (STEPS, FIRST_TOKENS, BEGINNINGS)
    )
    return {
        "schema": "decodesim/fit-1",
        "parameter_count": sum(bool(entry["fitted"]) for entry in parameters.values()),
        "source_count": len(fit_sources),
        "fit_sources": sorted(fit_sources),
        "other_sources": others,
        "also_used": {source: list(quantities) for source, quantities in ALSO_USED.items()},
        "parameters": parameters,
        "errors": _of_halves(steps, fit_sources, others),
        "rotation": rotation(steps),
        "first_tokens": _of_halves(first_tokens, fit_sources, others),
        "beginnings": _of_halves(begins, fit_sources, others),
        "sensitivity": sensitivity(linear, rows),
    }


def _of_halves(linear: LinearisedErrors, fit_sources: Sequence[str], others: Sequence[str]) -> dict[str, Any]:
    return {
        "fit": _errors(linear.errors, linear.sources, fit_sources),
        "others": _errors(linear.errors, linear.sources, others),
    }


def _errors(errors: Floats, sources: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    by_source = {
        name: [float(e) for e, s in zip(errors, sources, strict=True) if s == name] for name in sorted(names)
    }
    non_empty = {name: source_errors for name, source_errors in by_source.items() if source_errors}
    abs_errors = [abs(e) for source_errors in non_empty.values() for e in source_errors]
    return {
        "n": len(abs_errors),
        "median_of_sources": round(
            median(median(map(abs, source_errors)) for source_errors in non_empty.values()), 3
        ),
        "p90": round(quantile(abs_errors, 0.9), 3),
        "by_source": {
            name: {
                "n": len(source_errors),
                "median": round(median(map(abs, source_errors)), 3),
                "bias": round(sum(source_errors) / len(source_errors), 3),
            }
            for name, source_errors in non_empty.items()
        },
    }


def rotation(linear: LinearisedErrors) -> dict[str, Any]:
    """Errors of each fold of sources, predicted by a linear fit on the other folds from the final values."""
    errors_by_fold: dict[str, Any] = {}
    errors = linear.errors.copy()
    for fold in range(FOLDS):
        in_fold = np.array([fold_of(source) == fold for source in linear.sources])
        errors[in_fold] = (
            linear.errors[in_fold] + linear.slopes[in_fold] @ linear.of_rows(list(~in_fold)).solve()
        )
    names = sorted(set(linear.sources))
    for fold in sorted({fold_of(name) for name in names}):
        errors_by_fold[str(fold)] = _errors(
            errors, linear.sources, [name for name in names if fold_of(name) == fold]
        )
    errors_by_fold["all"] = {
        key: value
        for key, value in _errors(errors, linear.sources, names).items()
        if key in ("n", "median_of_sources", "p90")
    }
    return errors_by_fold


def sensitivity(linear: LinearisedErrors, rows: Sequence[ComparisonRow]) -> dict[str, dict[str, float]]:
    """Error class → parameter → change of the median row, in per cent, when the parameter doubles."""
    doublings = np.array([_doubling(parameter.typical_s, parameter.start_s) for parameter in PARAMETERS])
    classes: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        classes.setdefault(f"{engine_of(row)} {row.quantity} {row.variant} batch {band_of(row)}", []).append(
            index
        )
    return {
        name: {
            parameter.name: round(100 * float(np.median(linear.slopes[indices, p])) * doublings[p], 1)
            for p, parameter in enumerate(PARAMETERS)
            if abs(100 * float(np.median(linear.slopes[indices, p])) * doublings[p]) >= 0.1
        }
        for name, indices in sorted(classes.items())
    }


def _doubling(typical_s: float, value_s: float) -> float:
    value_s = max(value_s, typical_s)
    return float(np.arcsinh(2 * value_s / typical_s) - np.arcsinh(value_s / typical_s))


@click.command()
@click.option("--rounds", default=3, show_default=True, help="Gauss–Newton steps.")
@click.option("--write", is_flag=True, help="Rewrite the presets and calibration/published/fit.json.")
def main(rounds: int, write: bool) -> None:
    """Fit the free parameters of the presets."""
    all_runs = published_runs_of_cases(committed_cases())
    runs, sources = runs_for_fit(all_runs), fit_half(all_runs)
    fit_runs = [run for run in runs if run.case.source_id in sources]
    with tempfile.TemporaryDirectory() as folder, worker_pool(2) as pool:
        simulations = PresetSimulations(Path(folder), pool)
        exact_values, fitted = fit(fit_runs, simulations, rounds)
        values = rounded(exact_values)
        linear, rows = simulations.linear(runs, values)
    document = record(values, fitted, linear, rows, [name for name in sources if name in linear.sources])
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    fitted_count, source_count = document["parameter_count"], document["source_count"]
    click.echo(
        f"{fitted_count} parameters fitted on {source_count} sources; {len(document['other_sources'])} others"
    )
    click.echo(text)
    if write:
        rewrite_presets(values)
        Path(__file__).parents[2].joinpath("published", "fit.json").write_text(text, "utf-8")
