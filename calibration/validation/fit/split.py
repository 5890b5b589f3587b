"""Which sources the presets' free parameters are fitted on, which of their rows: chosen without errors."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from calibration.validation.fit.beginnings import BEGINNING
from calibration.validation.groups import KNOWN_ACCEPTANCE, MEASURED_GPUS, RESEARCH, engine_of, gpu_of
from calibration.validation.row import Row, good_source
from calibration.validation.trials.trial import Trial

STEPS = ("speedup", "throughput", "tpot_mean", "itl_mean")
"""Figures of steps: they choose the sources and their trials, and tell the parameters of steps. First tokens
and tails hang on the client and on arrivals as well.
"""
FIRST_TOKENS = ("ttft_mean",)
"""Reported beside, and fitted to nothing."""
BEGINNINGS = (BEGINNING,)
"""What tells the parameters of the front end, one each, and no other."""
MOST_TRIALS = 12
"""Of one source: evenly spaced, so that a source of a hundred points costs no more than others."""
FOLDS = 5


def usable(row: Row) -> bool:
    """Whether a row of `trials_for_fit` may take part: serving engine, known acceptance, known GPU.

    When a burst begins to be served does not depend on the GPU.
    """
    known = row.acceptance_from in KNOWN_ACCEPTANCE
    measured = gpu_of(row) in MEASURED_GPUS and engine_of(row) != RESEARCH
    wanted = (row.gates and row.quantity in STEPS + FIRST_TOKENS) or row.quantity in BEGINNINGS
    return wanted and known and measured


def trials_for_fit(trials: Sequence[Trial], most: int = MOST_TRIALS) -> list[Trial]:
    """The trials that can give usable rows, at most so many of a source."""
    by_source: dict[str, list[Trial]] = {}
    for trial in trials:
        wanted = any(one.quantity in STEPS for one in trial.published)
        known = trial.acceptance_from in KNOWN_ACCEPTANCE or any(
            p.variant == "plain" for p in trial.published
        )
        simulated = trial.plain is not None or trial.spec is not None
        measured = trial.gpu[:4].upper() in MEASURED_GPUS and not trial.research
        if wanted and known and simulated and measured and good_source(trial) and not trial.uniform:
            by_source.setdefault(trial.case.source_id, []).append(trial)
    return [trial for source in sorted(by_source) for trial in _spaced(by_source[source], most)]


def _spaced(trials: list[Trial], most: int) -> list[Trial]:
    count = min(len(trials), most)
    return [trials[round(i * (len(trials) - 1) / max(count - 1, 1))] for i in range(count)]


def fit_half(trials: Sequence[Trial]) -> tuple[str, ...]:
    """The sources of the fit.

    `trials`: all of them. Classes: serving engine, and whether the source tells an acceptance. Within a class
    the sources stand in the order of the SHA-256 of their names, and the fit takes every second one.
    """
    good = trials_for_fit(trials, most=len(trials))
    by_source: dict[str, list[Trial]] = {}
    for trial in good:
        by_source.setdefault(trial.case.source_id, []).append(trial)
    classes: dict[tuple[str, bool], set[str]] = {}
    for source, own in by_source.items():
        told = any(trial.acceptance_from in ("given", "joined") for trial in own)
        classes.setdefault((_engine(own), told), set()).add(source)
    chosen: list[str] = []
    for sources in classes.values():
        ordered = sorted(sources, key=name_hash)
        chosen += ordered[1::2]
    return tuple(sorted(chosen))


def _engine(trials: Sequence[Trial]) -> str:
    """The engine of most of a source's trials: a source of several engines is in one class."""
    names = [_family(one) for one in trials]
    return max(sorted(set(names)), key=names.count)


def _family(trial: Trial) -> str:
    scenario = trial.spec or trial.plain
    assert scenario is not None
    return scenario.engine.preset.split("-")[0]


def fold_of(source: str) -> int:
    """0 … FOLDS − 1, by the hash of the name."""
    return int(name_hash(source), 16) % FOLDS


def name_hash(source: str) -> str:
    """Hexadecimal SHA-256."""
    return hashlib.sha256(source.encode()).hexdigest()
