"""The acceptance file: rows, what acceptance depends on, fitted models; scenarios take it as it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from calibration.acceptance.effects import effects_of
from calibration.acceptance.fits import Fit, fit_all
from calibration.acceptance.predict import shown_length
from calibration.acceptance.rows import row_of
from calibration.acceptance.samples import Sample

SCHEMA = "decodesim/accept-1"
_FEWEST_TRIALS = 200
"""Fewer trials say nothing of which model describes them."""
_OPTIONAL_STEP = 6.0
"""A model this much better by BIC is strongly preferred (Kass and Raftery 1995)."""


def rows_json(samples: Iterable[Sample]) -> list[dict[str, Any]]:
    """Return the rows of the file, with what acceptance depends on in each."""
    rows = []
    for group in groups_of(samples, by_draft_length=True):
        if any(sample.accepted for sample in group):
            rows.append(row_of(group).to_json() | effects_of(group).to_json())
    return rows


def fits_json(samples: Iterable[Sample], look_ups: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return the models fitted to each drafter, domain, temperature and way of sampling, best first.

    Draft lengths are fitted together: the same trials, whatever the length.
    """
    fits = []
    for group in groups_of(samples, by_draft_length=False):
        if sum(sum(one.accepted) + len(one.accepted) for one in group) < _FEWEST_TRIALS:
            continue
        found = fit_all(group, group[0].draft.partition(":")[0] in look_ups)
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
    """One fit with its goodness: by likelihood, and by the mean acceptance lengths it gives back."""
    first = samples[0]
    lengths = {}
    for group in groups_of(samples, by_draft_length=True):
        measured = row_of(group).mean_acceptance_length.value
        length = group[0].setting.draft_length
        lengths[str(length)] = round(shown_length(fit.model, length, group[0].max_tokens) / measured - 1.0, 5)
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
        },
        "describes": fit.bic - best.bic < _OPTIONAL_STEP,
    }


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return round(value, 6) if isinstance(value, float) else value


def provenance(target: str, network: Any, seconds: float | None = None) -> dict[str, Any]:
    """Return what the figures come from: weights, precision, versions, machine."""
    import platform
    from datetime import UTC, datetime
    from importlib.metadata import version

    import torch
    import transformers

    return {
        "decodesim": version("decodesim"),
        "target": target,
        "architecture": type(network.model).__name__,
        "layers": network.layer_count,
        "vocabulary": network.vocab_size,
        "dtype": str(network.dtype).removeprefix("torch."),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "machine": platform.processor() or platform.machine(),
        "date": datetime.now(UTC).date().isoformat(),
        **({} if seconds is None else {"seconds": round(seconds, 1)}),
    }
