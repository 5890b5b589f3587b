"""Chooses the sources and rows that the presets' free parameters are fitted on, without looking at errors."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from calibration.validation.fit.beginnings import BEGINNING
from calibration.validation.groups import KNOWN_ACCEPTANCE, MEASURED_GPUS, RESEARCH, engine_of, gpu_of
from calibration.validation.reconstruction.published_run import PublishedRun
from calibration.validation.row import ComparisonRow, good_source

STEPS = ("speedup", "throughput", "tpot_mean", "itl_mean")
"""Figures that depend on steps alone. They select the sources and their runs, and constrain the parameters of
steps. First tokens and tails also depend on the client and the arrivals.
"""
FIRST_TOKENS = ("ttft_mean",)
"""Reported as well, but not fitted."""
BEGINNINGS = (BEGINNING,)
"""The figures that constrain the parameters of the front end, and no others."""
MAX_RUNS = 12
"""Runs used of one source, evenly spaced: a source with a hundred points costs no more than others."""
FOLDS = 5


def usable(row: ComparisonRow) -> bool:
    """Whether a row of `runs_for_fit` takes part: serving engine, known acceptance, measured GPU.

    Beginnings need no gate, because they do not depend on which board the GPU is.
    """
    known_acceptance = row.acceptance_from in KNOWN_ACCEPTANCE
    measured_engine = gpu_of(row) in MEASURED_GPUS and engine_of(row) != RESEARCH
    fitted_figure = (row.gates and row.quantity in STEPS + FIRST_TOKENS) or row.quantity in BEGINNINGS
    return fitted_figure and known_acceptance and measured_engine


def runs_for_fit(runs: Sequence[PublishedRun], max_runs: int = MAX_RUNS) -> list[PublishedRun]:
    """The runs that can give usable rows, at most `max_runs` of each source."""
    by_source: dict[str, list[PublishedRun]] = {}
    for run in runs:
        has_steps = any(figure.quantity in STEPS for figure in run.published)
        known_acceptance = run.acceptance_from in KNOWN_ACCEPTANCE or any(
            p.variant == "plain" for p in run.published
        )
        simulated = run.plain is not None or run.spec is not None
        measured_engine = run.gpu[:4].upper() in MEASURED_GPUS and not run.research
        if (
            has_steps
            and known_acceptance
            and simulated
            and measured_engine
            and good_source(run)
            and not run.uniform
        ):
            by_source.setdefault(run.case.source_id, []).append(run)
    return [run for source in sorted(by_source) for run in _spaced(by_source[source], max_runs)]


def _spaced(runs: list[PublishedRun], max_runs: int) -> list[PublishedRun]:
    count = min(len(runs), max_runs)
    return [runs[round(i * (len(runs) - 1) / max(count - 1, 1))] for i in range(count)]


def fit_half(runs: Sequence[PublishedRun]) -> tuple[str, ...]:
    """The sources of the fit, chosen from all runs.

    Sources are classed by serving engine and by whether they state an acceptance. Within a class they are
    sorted by the SHA-256 of their names, and the fit takes every second one.
    """
    candidate_runs = runs_for_fit(runs, max_runs=len(runs))
    by_source: dict[str, list[PublishedRun]] = {}
    for run in candidate_runs:
        by_source.setdefault(run.case.source_id, []).append(run)
    classes: dict[tuple[str, bool], set[str]] = {}
    for source, source_runs in by_source.items():
        states_acceptance = any(run.acceptance_from in ("given", "joined") for run in source_runs)
        classes.setdefault((_engine(source_runs), states_acceptance), set()).add(source)
    chosen: list[str] = []
    for sources in classes.values():
        ordered = sorted(sources, key=name_hash)
        chosen += ordered[1::2]
    return tuple(sorted(chosen))


def _engine(runs: Sequence[PublishedRun]) -> str:
    """The engine of most of a source's runs, so that a source with several engines is in one class."""
    names = [_family(run) for run in runs]
    return max(sorted(set(names)), key=names.count)


def _family(run: PublishedRun) -> str:
    scenario = run.spec or run.plain
    assert scenario is not None
    return scenario.engine.preset.split("-")[0]


def fold_of(source: str) -> int:
    """The fold of a source, 0 … FOLDS − 1, by the hash of its name."""
    return int(name_hash(source), 16) % FOLDS


def name_hash(source: str) -> str:
    """Hexadecimal SHA-256 of a source's name."""
    return hashlib.sha256(source.encode()).hexdigest()
