"""The acceptance file: rows, what acceptance depends on, fitted models; scenarios take it as it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from calibration.acceptance.effects import effects_of
from calibration.acceptance.fits import Fit, fit_all
from calibration.acceptance.goodness import goodness
from calibration.acceptance.predict import shown_length
from calibration.acceptance.rows import row_of
from calibration.acceptance.samples import Sample

SCHEMA = "decodesim/accept-1"
_FEWEST_TRIALS = 200
"""Fewer trials say nothing of which model describes them."""


def rows_json(samples: Iterable[Sample]) -> list[dict[str, Any]]:
    """Return the rows of the file, with what acceptance depends on in each."""
    rows = []
    for group in groups_of(samples, by_draft_length=True):
        if any(sample.accepted for sample in group):
            rows.append(row_of(group).to_json() | effects_of(group).to_json())
    return rows


def fits_json(samples: Iterable[Sample]) -> list[dict[str, Any]]:
    """Return the models fitted to each drafter, domain, temperature and way of sampling, best first.

    Draft lengths are fitted together: the same trials, whatever the length. Goodness is judged on the longest
    drafts, where every text stands once.
    """
    fits = []
    for group in groups_of(samples, by_draft_length=False):
        if sum(sum(one.drafted) for one in group) < _FEWEST_TRIALS:
            continue
        found = fit_all(group)
        fits += [_fit_json(one, found[0], group) for one in found]
    return fits


def groups_of(samples: Iterable[Sample], *, by_draft_length: bool) -> list[list[Sample]]:
    """Return samples by drafter, domain, temperature and way of sampling, in the order in which they come."""
    groups: dict[tuple[Any, ...], list[Sample]] = {}
    for sample in samples:
        setting = sample.setting
        length = setting.draft_length if by_draft_length else 0
        key = (sample.draft, sample.domain, setting.temperature, setting.draft_sampling, length)
        groups.setdefault(key, []).append(sample)
    return list(groups.values())


def _fit_json(fit: Fit, best: Fit, samples: Sequence[Sample]) -> dict[str, Any]:
    """One fit with its goodness: by likelihood, by mean acceptance lengths it gives back, and whether runs
    drawn from it look like the data (`describes`).
    """
    first = samples[0]
    lengths = {}
    rows = {group[0].setting.draft_length: group for group in groups_of(samples, by_draft_length=True)}
    for length, group in sorted(rows.items()):
        measured = row_of(group).mean_acceptance_length
        if measured is not None:
            predicted = shown_length(fit.model, length, group[0].max_tokens)
            lengths[str(length)] = round(predicted / measured.value - 1.0, 5)
    judged = goodness(fit.model, rows[max(rows)])
    return {
        "draft": first.draft,
        "domain": first.domain,
        "temperature": first.setting.temperature,
        "draft_sampling": first.setting.draft_sampling,
        "model": fit.model.name,
        "parameters": {key: _rounded(value) for key, value in fit.entry.items() if key != "model"},
        "goodness": {
            "log_likelihood": round(fit.log_likelihood, 3),
            "trials": fit.trials,
            "fitted_parameters": fit.parameters,
            "bic": round(fit.bic, 3),
            "bic_above_best": round(fit.bic - best.bic, 3),
            "error_of_mean_acceptance_length": lengths,
            "p_counts": round(judged.counts, 4),
            "p_spread": round(judged.spread, 4),
        },
        "describes": not judged.refused,
    }


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return round(value, 6) if isinstance(value, float) else value
