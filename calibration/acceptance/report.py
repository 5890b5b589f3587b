"""The acceptance file: rows, effects and fitted models. Scenarios can name the file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from calibration.acceptance.effects import effects_of
from calibration.acceptance.fits import Fit, fit_all
from calibration.acceptance.goodness import goodness
from calibration.acceptance.predict import predicted_length
from calibration.acceptance.rows import row_of
from calibration.acceptance.samples import RequestSample

SCHEMA = "decodesim/accept-1"
_MIN_TRIALS = 200
"""With fewer trials, models cannot be told apart."""


def rows_json(samples: Iterable[RequestSample]) -> list[dict[str, Any]]:
    """Return the rows of the file, each with its effects."""
    rows = []
    for group in groups_of(samples, by_draft_length=True):
        if any(sample.accepted for sample in group):
            rows.append(row_of(group).to_json() | effects_of(group).to_json())
    return rows


def fits_json(samples: Iterable[RequestSample]) -> list[dict[str, Any]]:
    """Return the models fitted to each drafter, domain, temperature and draft sampling, best first.

    All draft lengths are fitted together. Goodness of fit is tested on the longest drafts, where every text
    occurs once.
    """
    fits = []
    for group in groups_of(samples, by_draft_length=False):
        if sum(sum(sample.drafted) for sample in group) < _MIN_TRIALS:
            continue
        group_fits = fit_all(group)
        fits += [_fit_json(fit, group_fits[0], group) for fit in group_fits]
    return fits


def groups_of(samples: Iterable[RequestSample], *, by_draft_length: bool) -> list[list[RequestSample]]:
    """Return samples grouped by drafter, domain, temperature and draft sampling, in order of first
    appearance.
    """
    groups: dict[tuple[Any, ...], list[RequestSample]] = {}
    for sample in samples:
        setting = sample.setting
        length = setting.draft_length if by_draft_length else 0
        key = (sample.draft, sample.domain, setting.temperature, setting.draft_sampling, length)
        groups.setdefault(key, []).append(sample)
    return list(groups.values())


def _fit_json(fit: Fit, best: Fit, samples: Sequence[RequestSample]) -> dict[str, Any]:
    """One fit with its goodness: likelihood, errors of mean acceptance lengths, and p-values.

    `describes`: whether simulations from the model match the data.
    """
    first = samples[0]
    lengths = {}
    rows = {group[0].setting.draft_length: group for group in groups_of(samples, by_draft_length=True)}
    for length, group in sorted(rows.items()):
        measured = row_of(group).mean_acceptance_length
        if measured is not None:
            predicted = predicted_length(fit.model, length, group[0].max_tokens)
            lengths[str(length)] = round(predicted / measured.value - 1.0, 5)
    result = goodness(fit.model, rows[max(rows)])
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
            "p_counts": round(result.counts, 4),
            "p_spread": round(result.spread, 4),
        },
        "describes": not result.rejected,
    }


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return round(value, 6) if isinstance(value, float) else value
