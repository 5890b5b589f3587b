"""The committed measurement as one file: rows, fits, predictions, greedy texts, and all rounds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from calibration.acceptance.fits import Fit, fit_all
from calibration.acceptance.goodness import goodness
from calibration.acceptance.predict import predicted_length
from calibration.acceptance.report import groups_of
from calibration.acceptance.rows import estimate_json, row_of
from calibration.acceptance.samples import RequestSample, digits

FILE = Path(__file__).parents[1] / "data" / "acceptance-smollm2.json"
LONGEST_FITTED = 4
"""Largest draft length that is fitted; longer ones are predicted."""


def rounds_json(samples: Iterable[RequestSample]) -> list[dict[str, Any]]:
    """Return the rounds of all samples by row.

    Each request has its prompt and three strings with one base-36 digit per round: drafted levels (a single
    digit if equal in all rounds), accepted drafts and, for trees only, nodes.
    """
    groups = []
    for group in groups_of(samples, by_draft_length=True):
        first = group[0]
        requests = [
            [
                sample.prompt,
                sample.prompt_tokens,
                sample.max_tokens,
                _compressed(sample.drafted),
                digits(sample.accepted),
                *([digits(sample.nodes)] if sample.nodes != sample.drafted else []),
            ]
            for sample in group
        ]
        setting = first.setting
        groups.append(
            {
                "draft": first.draft,
                "domain": first.domain,
                "temperature": setting.temperature,
                "draft_length": setting.draft_length,
                "draft_sampling": setting.draft_sampling,
                "requests": requests,
            }
        )
    return groups


def predictions(samples: Sequence[RequestSample], unused: frozenset[str]) -> list[dict[str, Any]]:
    """Return what models fitted to short drafts on the fitted prompts predict for longer drafts and for other
    prompts.

    There is one entry per drafter, domain, temperature and draft sampling, with the fitted models. For every
    question (`draft lengths`: longer drafts on the same prompts; `prompts`: prompts that the fit has not
    used) and draft length, it has the measured mean acceptance length and each model's prediction.
    """
    entries = []
    for group in groups_of(samples, by_draft_length=False):
        used = [sample for sample in group if sample.prompt not in unused]
        fitted = [sample for sample in used if 1 <= sample.setting.draft_length <= LONGEST_FITTED]
        if len({sample.setting.draft_length for sample in fitted}) < LONGEST_FITTED:
            continue
        fits = fit_all(fitted)
        judged = [sample for sample in fitted if sample.setting.draft_length == LONGEST_FITTED]
        longer = [sample for sample in used if sample.setting.draft_length > LONGEST_FITTED]
        others = [sample for sample in group if sample.prompt in unused]
        comparisons = []
        for question, predicted_samples in (("draft lengths", longer), ("prompts", others)):
            for row in groups_of(predicted_samples, by_draft_length=True):
                length = row[0].setting.draft_length
                comparisons.append(
                    {
                        "question": question,
                        "draft_length": length,
                        "measured": estimate_json(row_of(row).mean_acceptance_length),
                        "predicted": {
                            fit.model.name: round(predicted_length(fit.model, length, row[0].max_tokens), 5)
                            for fit in fits
                        },
                    }
                )
        first = group[0]
        entries.append(
            {
                "draft": first.draft,
                "domain": first.domain,
                "temperature": first.setting.temperature,
                "draft_sampling": first.setting.draft_sampling,
                "fitted_requests": len(fitted),
                "models": {fit.model.name: _judged(fit, judged) for fit in fits},
                "best": fits[0].model.name,
                "predictions": comparisons,
            }
        )
    return entries


def _judged(fit: Fit, samples: Sequence[RequestSample]) -> dict[str, Any]:
    result = goodness(fit.model, samples)
    chances = {"p_counts": round(result.counts, 4), "p_spread": round(result.spread, 4)}
    return {"bic": round(fit.bic, 2), "entry": fit.entry, **chances, "refused": result.rejected}


def greedy_texts(samples: Iterable[RequestSample]) -> dict[str, Any]:
    """Return, per drafter, the number of greedy outputs compared with plain decoding, and where outputs
    differ.
    """
    plain: dict[tuple[str, int], tuple[int, ...]] = {}
    drafted: dict[str, list[RequestSample]] = {}
    for sample in samples:
        if sample.setting.temperature == 0.0 and sample.tokens:
            if sample.setting.draft_length == 0:
                plain[sample.prompt, sample.max_tokens] = sample.tokens
            else:
                drafted.setdefault(sample.draft, []).append(sample)
    entries: dict[str, Any] = {}
    for draft, draft_samples in drafted.items():
        pairs = [(sample, plain.get((sample.prompt, sample.max_tokens))) for sample in draft_samples]
        compared = [(sample, plain_tokens) for sample, plain_tokens in pairs if plain_tokens is not None]
        apart = [
            {
                "prompt": sample.prompt,
                "draft_length": sample.setting.draft_length,
                "token": _first_difference(sample.tokens, plain_tokens),
            }
            for sample, plain_tokens in compared
            if sample.tokens != plain_tokens
        ]
        if compared:
            tokens = sum(len(sample.tokens) for sample, _ in compared)
            entries[draft] = {"requests": len(compared), "tokens": tokens, "apart": apart}
    return entries


def _first_difference(left: Sequence[int], right: Sequence[int]) -> int:
    """Index of the first token that differs; the shorter length if none does."""
    pairs = zip(left, right, strict=False)
    return next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))


def _compressed(counts: Sequence[int]) -> str:
    return digits(counts[:1] if len(set(counts)) == 1 else counts)


def load() -> dict[str, Any]:
    """Return the committed file."""
    document: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return document
