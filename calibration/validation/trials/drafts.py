"""How a case drafted → a variant of a scenario, or why our methods cannot."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from calibration.validation.trials.cases import Case, Draft, Facts, number
from calibration.validation.trials.drafters import drafter_of
from calibration.validation.trials.models import ModelChoice
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
    "mtp": "mtp", "nextn": "mtp", "multitokenprediction": "mtp", "deepseekmtp": "mtp",
}  # fmt: skip
"""Published method, letters and digits alone → ours. One that is called as ours needs no entry."""

_NEAREST = frozenset({"hass", "samdeagle2", "rest", "recycling", "tokenrecycling", "oraclereplay"})
"""Methods without a model of their own, simulated as the nearest where an acceptance length is published."""

_TREES_OF_PAPERS = frozenset({"eagle", "eagle1", "eagle2", "eagle3", "hass", "samdeagle2", "medusa", "hydra"})
"""Methods whose own code drafts trees; `eagle2` always does."""

_LENGTHS: Mapping[str, int] = {"mtp": 1}
_USUAL_LENGTH = 3
MOST_DRAFTS = 64
LENGTH_KEYS = ("acceptance_length", "mean_acceptance_length", "tokens_per_step")
"""Keys of a point for tokens per verify, the bonus token included."""


class DraftChoice(NamedTuple):
    """`method` is ours, `draft` what a variant takes, `length` its K."""

    method: str
    draft: str | None
    length: int
    published_method: str
    drafter_key: str | None
    """The drafter's name without owner and punctuation, to tell whether two are the same."""
    needs_acceptance: bool
    """Only an acceptance length of the same source will do: the method is not modelled, its nearest is."""
    notes: tuple[str, ...]


def method_of(case: Case, point: Facts) -> str | None:
    """The published method of a point, in lower case; None when nothing drafts."""
    said = point.get("method")
    name = said if isinstance(said, str) and said else case.draft.method if case.draft else None
    return None if name is None else re.sub(r"[\s\-]+", "_", name.strip().lower())


def our_method(published: str) -> str | None:
    """The registered method that simulates a published one; None: it has no model yet."""
    name = _OURS.get(_letters(published), published)
    return name if name in methods() else None


def _letters(published: str) -> str:
    """A method's name as one word: "EAGLE-3" and "eagle 3" are the same."""
    return re.sub(r"[^a-z0-9.]", "", published)


def drafter_key(case: Case) -> str | None:
    """The drafter's name without owner and punctuation; None when it is not named."""
    words = case.draft.model if case.draft is not None else None
    return None if words is None else re.sub(r"[^a-z0-9]", "", words.lower().rsplit("/", 1)[-1])


def is_tree(case: Case, point: Facts, published: str, research: bool) -> bool:
    """Whether a point drafted a tree rather than a chain."""
    draft = case.draft or Draft()
    topk = number(point.get("topk")) or draft.topk
    structure = f"{point.get('structure') or draft.structure or ''}".lower()
    if topk is not None:
        return topk > 1
    if re.search(r"\btree\b", structure) and not structure.startswith("chain"):
        return True
    if "chain" in structure:
        return False
    word = _letters(published)
    return word == "eagle2" or (research and word in _TREES_OF_PAPERS)


class Length(NamedTuple):
    """K of a chain. `stated`: the source says it, if only as the tokens it verified."""

    tokens: int
    stated: bool
    note: str | None = None


def draft_length_of(case: Case, point: Facts, method: str) -> Length:
    """K of a chain, and what was assumed."""
    draft = case.draft or Draft()
    for value in (number(point.get("k")), draft.k):
        if value is not None and 1 <= value <= MOST_DRAFTS:
            return Length(round(value), True)
    for value in (number(point.get("num_draft_tokens")), draft.num_draft_tokens):
        if value is not None and 2 <= value <= MOST_DRAFTS + 1:
            tokens = round(value) - 1
            return Length(tokens, True, f"K = {tokens} from {value:g} verified tokens")
    accepted = next((found for key in LENGTH_KEYS if (found := number(point.get(key))) is not None), 1.0)
    usual = max(_LENGTHS.get(method, _USUAL_LENGTH), min(math.ceil(accepted), MOST_DRAFTS))
    return Length(usual, False, f"K not stated: {usual} taken")


def draft_of(case: Case, point: Facts, target: ModelChoice, research: bool) -> DraftChoice | str:
    """The drafter and K of a point, or why it cannot be simulated."""
    published = method_of(case, point)
    if published is None:
        return NO_DRAFT
    if published == "several" or "/" in published or "+" in published:
        return SEVERAL_METHODS
    method = our_method(published)
    if is_tree(case, point, published, research):
        return TREE
    if method is None:
        return f"method {published}"
    length, _, note = draft_length_of(case, point, method)
    notes = [note] if note else []
    nearest = _letters(published) in _NEAREST
    if nearest:
        notes.append(f"{published} simulated as {method}")
    drafter = drafter_of(case, point, target, method)
    if isinstance(drafter, str):
        return drafter
    name, said = drafter
    key = drafter_key(case)
    return DraftChoice(method, name, length, published, key, nearest, (*notes, *said))
