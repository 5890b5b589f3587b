"""The committed measurement as one file: rows, fits, predictions, greedy texts, and the rounds themselves."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from calibration.acceptance.fits import Fit, fit_all
from calibration.acceptance.goodness import goodness
from calibration.acceptance.predict import shown_length
from calibration.acceptance.report import groups_of
from calibration.acceptance.rows import estimate_json, row_of
from calibration.acceptance.samples import DIGITS, Sample

FILE = Path(__file__).parents[1] / "data" / "acceptance-smollm2.json"
LONGEST_FITTED = 4
"""Draft lengths up to this one are fitted; longer ones are predicted."""


def rounds_json(samples: Iterable[Sample]) -> list[dict[str, Any]]:
    """Return the rounds of all samples, by row: per request its prompt and, a digit to the base 36 a round,
    the drafted levels (one digit: the same in all rounds), the accepted drafts and, of trees, the nodes.
    """
    found = []
    for group in groups_of(samples, by_draft_length=True):
        first = group[0]
        requests = [
            [
                sample.prompt,
                sample.prompt_tokens,
                sample.max_tokens,
                _short(sample.drafted),
                _digits(sample.accepted),
                *([_digits(sample.nodes)] if sample.nodes != sample.drafted else []),
            ]
            for sample in group
        ]
        setting = first.setting
        found.append(
            {
                "draft": first.draft,
                "domain": first.domain,
                "temperature": setting.temperature,
                "draft_length": setting.draft_length,
                "draft_sampling": setting.draft_sampling,
                "requests": requests,
            }
        )
    return found


def predictions(samples: Sequence[Sample], unused: frozenset[str]) -> list[dict[str, Any]]:
    """Return what models fitted to short drafts on the used prompts say of longer drafts, and of the others.

    One entry per drafter, domain, temperature, way of sampling: the models with their parameters, and per
    question (`draft lengths`: longer drafts on the same prompts; `prompts`: prompts not used) and draft
    length the measured mean acceptance length and what each model predicts.
    """
    found = []
    for group in groups_of(samples, by_draft_length=False):
        fitted = [
            one
            for one in group
            if one.prompt not in unused and 1 <= one.setting.draft_length <= LONGEST_FITTED
        ]
        if len({one.setting.draft_length for one in fitted}) < LONGEST_FITTED:
            continue
        fits = fit_all(fitted)
        judged = [one for one in fitted if one.setting.draft_length == LONGEST_FITTED]
        longer = [
            one for one in group if one.prompt not in unused and one.setting.draft_length > LONGEST_FITTED
        ]
        others = [one for one in group if one.prompt in unused]
        asked = []
        for question, chosen in (("draft lengths", longer), ("prompts", others)):
            for row in groups_of(chosen, by_draft_length=True):
                length = row[0].setting.draft_length
                asked.append(
                    {
                        "question": question,
                        "draft_length": length,
                        "measured": estimate_json(row_of(row).mean_acceptance_length),
                        "predicted": {
                            fit.model.name: round(shown_length(fit.model, length, row[0].max_tokens), 5)
                            for fit in fits
                        },
                    }
                )
        first = group[0]
        found.append(
            {
                "draft": first.draft,
                "domain": first.domain,
                "temperature": first.setting.temperature,
                "draft_sampling": first.setting.draft_sampling,
                "fitted_requests": len(fitted),
                "models": {fit.model.name: _judged(fit, judged) for fit in fits},
                "best": fits[0].model.name,
                "predictions": asked,
            }
        )
    return found


def _judged(fit: Fit, samples: Sequence[Sample]) -> dict[str, Any]:
    found = goodness(fit.model, samples)
    chances = {"p_counts": round(found.counts, 4), "p_spread": round(found.spread, 4)}
    return {"bic": round(fit.bic, 2), "entry": fit.entry, **chances, "refused": found.refused}


def greedy_texts(samples: Iterable[Sample]) -> dict[str, Any]:
    """Return, per drafter, how many greedy outputs equal plain decoding's, and where others part from it."""
    plain: dict[tuple[str, int], tuple[int, ...]] = {}
    drafted: dict[str, list[Sample]] = {}
    for sample in samples:
        if sample.setting.temperature == 0.0 and sample.tokens:
            if sample.setting.draft_length == 0:
                plain[sample.prompt, sample.max_tokens] = sample.tokens
            else:
                drafted.setdefault(sample.draft, []).append(sample)
    found: dict[str, Any] = {}
    for draft, own in drafted.items():
        pairs = [(one, plain.get((one.prompt, one.max_tokens))) for one in own]
        compared = [(one, other) for one, other in pairs if other is not None]
        apart = [
            {
                "prompt": one.prompt,
                "draft_length": one.setting.draft_length,
                "token": _first_apart(one.tokens, other),
            }
            for one, other in compared
            if one.tokens != other
        ]
        if compared:
            tokens = sum(len(one.tokens) for one, _ in compared)
            found[draft] = {"requests": len(compared), "tokens": tokens, "apart": apart}
    return found


def _first_apart(left: Sequence[int], right: Sequence[int]) -> int:
    for index, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return index
    return min(len(left), len(right))


def _digits(counts: Sequence[int]) -> str:
    return "".join(DIGITS[one] for one in counts)


def _short(counts: Sequence[int]) -> str:
    return _digits(counts[:1] if len(set(counts)) == 1 else counts)


def load() -> dict[str, Any]:
    """Return the committed file."""
    document: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return document
