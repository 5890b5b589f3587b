"""Fits the free parameters of the presets on half of the published sources, and says how the others fare.

    python -m calibration.validation.fit [--rounds 3] [--write]

Gauss–Newton on log errors; derivatives by running the trials again with one parameter changed. `--write` puts
the values into `simulator/data/engines/` and the record into `calibration/published/fit.json`.
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
from calibration.validation.fit.solve import Floats, Linear, from_scale, to_scale
from calibration.validation.fit.split import (
    BEGINNINGS,
    FIRST_TOKENS,
    FOLDS,
    STEPS,
    fit_half,
    fold_of,
    trials_for_fit,
    usable,
)
from calibration.validation.fit.write import rewrite_presets
from calibration.validation.groups import band_of, engine_of
from calibration.validation.pool import worker_pool
from calibration.validation.row import Row
from calibration.validation.run import run_trials
from calibration.validation.trials.cases import committed_cases
from calibration.validation.trials.trial import Trial
from calibration.validation.trials.trials import trials_of_cases

DIFFERENCE = 0.15
"""Step of the differences, on the scale of the fit."""
TYPICAL = np.array([one.typical_s for one in PARAMETERS])


class Runs:
    """Runs trials on candidate presets; `folder` holds the candidates."""

    def __init__(self, folder: Path, pool: Executor | None) -> None:
        self.folder, self.pool, self.count = folder, pool, 0

    def rows(self, trials: Sequence[Trial], values: Values) -> list[Row]:
        """The rows of the trials with these parameters."""
        self.count += 1
        paths = candidate_presets(values, self.folder / str(self.count))
        rows = run_trials(with_presets(trials, paths), pool=self.pool)
        return [*rows, *beginnings(rows)]

    def linear(self, trials: Sequence[Trial], values: Values) -> tuple[Linear, list[Row]]:
        """Log errors and derivatives of the usable rows at `values`; a parameter moves its own presets, and
        rows of its own quantities.
        """
        base = self.rows(trials, values)
        at = {_key(row): number for number, row in enumerate(base)}
        slopes = np.zeros((len(base), len(PARAMETERS)))
        u = to_scale(np.array([values[one.name] for one in PARAMETERS]), TYPICAL)
        for p, one in enumerate(PARAMETERS):
            moved = dict(values) | {one.name: float(from_scale(u + DIFFERENCE, TYPICAL)[p])}
            own = [trial for trial in trials if presets_of(trial) & set(one.presets)]
            for row in self.rows(own, moved):
                number = at.get(_key(row))
                if row.quantity in one.quantities and number is not None:
                    slopes[number, p] = (row.log_error - base[number].log_error) / DIFFERENCE
        good = [n for n, row in enumerate(base) if usable(row) and np.isfinite([row.log_error]).all()]
        good = [n for n in good if np.isfinite(slopes[n]).all()]
        kept = [base[n] for n in good]
        errors = np.array([row.log_error for row in kept])
        return Linear(errors, slopes[good], tuple(row.source for row in kept)), kept


def _key(row: Row) -> tuple[object, ...]:
    return row.case_id, row.point, row.quantity, row.variant, row.part, row.dataset, row.batch, row.published


def fit(trials: Sequence[Trial], runs: Runs, rounds: int) -> tuple[dict[str, float], list[str]]:
    """The values after so many rounds on these trials, and which of them were fitted: a parameter that fewer
    than two sources tell at the end stays where it started, and the others are fitted again without it.
    """
    fitted = [one.name for one in PARAMETERS]
    while True:
        values = _fit(trials, runs, rounds, fitted)
        linear, _ = runs.linear(trials, rounded(values))
        sources = dict(zip(values, linear.constraining(), strict=True))
        told = [name for name in fitted if len(sources[name]) >= 2]
        if told == fitted:
            return values, fitted
        fitted = told


def _fit(trials: Sequence[Trial], runs: Runs, rounds: int, fitted: Sequence[str]) -> dict[str, float]:
    """The values after so many rounds in which these parameters move."""
    values = start()
    moves = np.array([name in fitted for name in values])
    for number in range(rounds):
        linear, rows = runs.linear(trials, values)
        free = replace(linear, slopes=linear.slopes * moves)
        step = sum(part.solve() for part in blocks(free, rows))
        u = to_scale(np.array(list(values.values())), TYPICAL) + step
        values = dict(zip(values, from_scale(u, TYPICAL).tolist(), strict=True))
        told = ", ".join(f"{name} {1e6 * value:.4g}" for name, value in values.items())
        click.echo(f"round {number + 1}: µs: {told}", err=True)
    return values


def blocks(linear: Linear, rows: Sequence[Row]) -> list[Linear]:
    """The rows of every block; the other blocks' parameters move none of them."""
    return [_of(linear, rows, quantities) for quantities in BLOCKS]


def _of(linear: Linear, rows: Sequence[Row], quantities: Sequence[str]) -> Linear:
    return linear.of_rows([row.quantity in quantities for row in rows])


def rounded(values: Values) -> dict[str, float]:
    """Two significant digits: what the data can tell."""
    return {name: float(f"{value:.2g}") for name, value in values.items()}


def record(
    values: Values, fitted: Sequence[str], linear: Linear, rows: Sequence[Row], fit_sources: Sequence[str]
) -> dict[str, Any]:
    """What is written beside the values: intervals, errors of both halves, rotation, sensitivities."""
    kept = [source in fit_sources for source in linear.sources]
    own, own_rows = linear.of_rows(kept), [row for row, one in zip(rows, kept, strict=True) if one]
    u = to_scale(np.array([values[one.name] for one in PARAMETERS]), TYPICAL)
    half = sum(part.jackknife() for part in blocks(own, own_rows))
    low, high = from_scale(u - half, TYPICAL), from_scale(u + half, TYPICAL)
    rests = own.constraining()
    parameters = {
        one.name: {
            "value_us": round(1e6 * values[one.name], 3),
            "interval_us": [round(1e6 * float(low[p]), 3), round(1e6 * float(high[p]), 3)],
            "before_us": round(1e6 * one.start_s, 3),
            "presets": list(one.presets),
            "path": f"host.{one.leaf}",
            "what": one.what,
            "fitted": one.name in fitted,
            "rests_on": sorted(rests[p]),
        }
        for p, one in enumerate(PARAMETERS)
    }
    others = sorted(set(linear.sources) - set(fit_sources))
    steps, first_tokens, begins = (
        _of(linear, rows, quantities) for quantities in (STEPS, FIRST_TOKENS, BEGINNINGS)
    )
    return {
        "schema": "decodesim/fit-1",
        "parameter_count": sum(bool(one["fitted"]) for one in parameters.values()),
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


def _of_halves(linear: Linear, fit_sources: Sequence[str], others: Sequence[str]) -> dict[str, Any]:
    return {
        "fit": _errors(linear.errors, linear.sources, fit_sources),
        "others": _errors(linear.errors, linear.sources, others),
    }


def _errors(errors: Floats, sources: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    by_source = {
        name: [float(e) for e, s in zip(errors, sources, strict=True) if s == name] for name in sorted(names)
    }
    told = {name: found for name, found in by_source.items() if found}
    sizes = [abs(e) for found in told.values() for e in found]
    return {
        "n": len(sizes),
        "median_of_sources": round(median(median(map(abs, found)) for found in told.values()), 3),
        "p90": round(quantile(sizes, 0.9), 3),
        "by_source": {
            name: {
                "n": len(found),
                "median": round(median(map(abs, found)), 3),
                "bias": round(sum(found) / len(found), 3),
            }
            for name, found in told.items()
        },
    }


def rotation(linear: Linear) -> dict[str, Any]:
    """Each fold of sources predicted by a linear fit on the other four, all started from the final values."""
    found: dict[str, Any] = {}
    errors = linear.errors.copy()
    for fold in range(FOLDS):
        test = np.array([fold_of(source) == fold for source in linear.sources])
        errors[test] = linear.errors[test] + linear.slopes[test] @ linear.of_rows(list(~test)).solve()
    names = sorted(set(linear.sources))
    for fold in sorted({fold_of(name) for name in names}):
        found[str(fold)] = _errors(errors, linear.sources, [name for name in names if fold_of(name) == fold])
    found["all"] = {
        key: value
        for key, value in _errors(errors, linear.sources, names).items()
        if key in ("n", "median_of_sources", "p90")
    }
    return found


def sensitivity(linear: Linear, rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Error class → parameter → by how many per cent its median row moves when the parameter doubles."""
    doubled = np.array([_doubling(one.typical_s, one.start_s) for one in PARAMETERS])
    classes: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        classes.setdefault(f"{engine_of(row)} {row.quantity} {row.variant} batch {band_of(row)}", []).append(
            number
        )
    return {
        name: {
            one.name: round(100 * float(np.median(linear.slopes[numbers, p])) * doubled[p], 1)
            for p, one in enumerate(PARAMETERS)
            if abs(100 * float(np.median(linear.slopes[numbers, p])) * doubled[p]) >= 0.1
        }
        for name, numbers in sorted(classes.items())
    }


def _doubling(typical_s: float, value_s: float) -> float:
    value_s = max(value_s, typical_s)
    return float(np.arcsinh(2 * value_s / typical_s) - np.arcsinh(value_s / typical_s))


@click.command()
@click.option("--rounds", default=3, show_default=True, help="Gauss–Newton steps.")
@click.option("--write", is_flag=True, help="Rewrite the presets and calibration/published/fit.json.")
def main(rounds: int, write: bool) -> None:
    """Fit the free parameters of the presets."""
    every = trials_of_cases(committed_cases())
    trials, sources = trials_for_fit(every), fit_half(every)
    ours = [trial for trial in trials if trial.case.source_id in sources]
    with tempfile.TemporaryDirectory() as folder, worker_pool(2) as pool:
        runs = Runs(Path(folder), pool)
        exact, fitted = fit(ours, runs, rounds)
        values = rounded(exact)
        linear, rows = runs.linear(trials, values)
    document = record(values, fitted, linear, rows, [name for name in sources if name in linear.sources])
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    count, known = document["parameter_count"], document["source_count"]
    click.echo(f"{count} parameters fitted on {known} sources; {len(document['other_sources'])} others")
    click.echo(text)
    if write:
        rewrite_presets(values)
        Path(__file__).parents[2].joinpath("published", "fit.json").write_text(text, "utf-8")
