"""Turns the drafting of a case into a variant of a scenario, or states why it cannot be simulated."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from calibration.validation.reconstruction.cases import PublishedCase
from calibration.validation.reconstruction.drafters import drafter_of
from calibration.validation.reconstruction.models import ModelChoice
from calibration.validation.reconstruction.sections import Facts, PublishedDraft, number
from simulator.speculation import methods

TREE = "tree"
NO_DRAFT = "no drafter stated"
SEVERAL_METHODS = "several methods in one point"

_OURS: Mapping[str, str] = {
    "eagle": "eagle", "eagle1": "eagle", "eagle2": "eagle", "hass": "eagle",
    "samdeagle2": "eagle", "eagle3": "eagle3", "eagle3.1": "eagle3",
    "draftmodel": "draft_model", "draft": "draft_model", "sps": "draft_model",
    "ngram": "ngram", "pldngram": "ngram", "pld": "ngram", "promptlookup": "ngram",
    "rest": "ngram", "recycling": "ngram", "tokenrecycling": "ngram", "oraclereplay": "ngram",
    "peagle": "peagle",
    "mtp": "mtp", "nextn": "mtp", "multitokenprediction": "mtp", "deepseekmtp": "mtp",
}  # fmt: skip
"""Published method, letters and digits only → method here. A method of the same name needs no entry."""

_PARALLEL: Mapping[str, str] = {"eagle": "peagle", "eagle3": "peagle", "draft_model": "pard"}
"""Method with sequential passes → the one that drafts all tokens in one pass."""

_NEAREST = frozenset({"hass", "samdeagle2", "rest", "recycling", "tokenrecycling", "oraclereplay"})
"""Methods without a model of their own: the nearest is simulated where an acceptance length is published."""

_TREES_OF_PAPERS = frozenset({"eagle", "eagle1", "eagle2", "eagle3", "hass", "samdeagle2", "medusa", "hydra"})
"""Methods whose research code drafts trees; `eagle2` always drafts a tree."""

_LENGTHS: Mapping[str, int] = {"mtp": 1}
_USUAL_LENGTH = 3
MOST_DRAFTS = 64
LENGTH_KEYS = ("acceptance_length", "mean_acceptance_length", "tokens_per_step")
"""Keys of a point for tokens per verify, the bonus token included."""


class DraftChoice(NamedTuple):
    """`method`: the registered method. `draft`: the variant's `draft` key. `length`: its K."""

    method: str
    draft: str | None
    length: int
    published_method: str
    drafter_key: str | None
    """The drafter's name without owner and punctuation, to compare drafters."""
    needs_acceptance: bool
    """Whether an acceptance length of the same source is required: only the nearest method is modelled."""
    notes: tuple[str, ...]


def method_of(case: PublishedCase, point: Facts) -> str | None:
    """The published method of a point, in lower case; None without drafting."""
    stated = point.get("method")
    name = stated if isinstance(stated, str) and stated else case.draft.method if case.draft else None
    return None if name is None else re.sub(r"[\s\-]+", "_", name.strip().lower())


def simulated_method(published: str) -> str | None:
    """The registered method that simulates a published one; None if it has no model yet."""
    name = _OURS.get(_letters(published), published)
    return name if name in methods() else None


def _letters(published: str) -> str:
    """A method's name as one word, so that "EAGLE-3" equals "eagle 3"."""
    return re.sub(r"[^a-z0-9.]", "", published)


def drafter_key(case: PublishedCase) -> str | None:
    """The drafter's name without owner and punctuation; None if it is not named."""
    words = case.draft.model if case.draft is not None else None
    return None if words is None else re.sub(r"[^a-z0-9]", "", words.lower().rsplit("/", 1)[-1])


def is_tree(case: PublishedCase, point: Facts, published: str, research: bool) -> bool:
    """Whether a point drafted a tree rather than a chain."""
    draft = case.draft or PublishedDraft()
    topk = number(point.get("topk")) or draft.topk
    structure = f"{point.get('structure') or draft.structure or ''}".lower()
    if topk is not None:
        return topk > 1
    if re.search(r"\btree\b", structure) and not structure.startswith("chain"):
        return True
    if "chain" in structure:
        return False
    method = _letters(published)
    return method == "eagle2" or (research and method in _TREES_OF_PAPERS)


class ChainLength(NamedTuple):
    """K of a chain. `stated`: the source states it, directly or as the number of verified tokens."""

    tokens: int
    stated: bool
    note: str | None = None


def draft_length_of(case: PublishedCase, point: Facts, method: str) -> ChainLength:
    """K of a chain, and what was assumed for it."""
    draft = case.draft or PublishedDraft()
    for value in (number(point.get("k")), draft.k):
        if value is not None and 1 <= value <= MOST_DRAFTS:
            return ChainLength(round(value), True)
    for value in (number(point.get("num_draft_tokens")), draft.num_draft_tokens):
        if value is not None and 2 <= value <= MOST_DRAFTS + 1:
            tokens = round(value) - 1
            return ChainLength(tokens, True, f"K = {tokens} from {value:g} verified tokens")
    stated_length = next(
        (length for key in LENGTH_KEYS if (length := number(point.get(key))) is not None), 1.0
    )
    usual = max(_LENGTHS.get(method, _USUAL_LENGTH), min(math.ceil(stated_length), MOST_DRAFTS))
    return ChainLength(usual, False, f"K not stated: {usual} taken")


def draft_of(case: PublishedCase, point: Facts, target: ModelChoice, research: bool) -> DraftChoice | str:
    """The drafter and K of a point, or the reason why it cannot be simulated."""
    published = method_of(case, point)
    if published is None:
        return NO_DRAFT
    if published == "several" or "/" in published or "+" in published:
        return SEVERAL_METHODS
    method = simulated_method(published)
    if is_tree(case, point, published, research):
        return TREE
    if method is None:
        return f"method {published}"
    length, _, note = draft_length_of(case, point, method)
    notes = [note] if note else []
    if method == "mtp" and target.model.mtp is None:
        method = "eagle"
        notes.append("MTP layer of a model without its own: one layer of the target's shape")
    if case.draft is not None and case.draft.parallel and method in _PARALLEL:
        method = _PARALLEL[method]
        notes.append(f"one parallel pass: {method}")
    nearest = _letters(published) in _NEAREST
    if nearest:
        notes.append(f"{published} simulated as {method}")
    drafter = drafter_of(case, point, target, method)
    if isinstance(drafter, str):
        return drafter
    name, drafter_notes = drafter
    key = drafter_key(case)
    return DraftChoice(method, name, length, published, key, nearest, (*notes, *drafter_notes))
