"""The free text of a case, its clauses, and whether a clause states something or denies it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_DENIES = re.compile(
    r"\b(?:not (?:stated|known|given|used|on|enabled)|whether|unknown|unclear|unstated)\b"
    r"|\b(?:without|no|off|disabled)\b"
)
_DRAFTING = re.compile(r"\bspec(?:ulati\w+)?\b|draft|n-?gram|eagle|mtp")
"""A clause with these words is about the variant that drafts …"""
_NOT_DRAFTING = re.compile(r"\b(?:plain|baseline|both)\b|\b(?:without|no)\s+(?:spec|draft|n-?gram|eagle|mtp)")
"""… unless it has these words, too: then it is about the plain variant or both."""


def text_of(case: Mapping[str, Any]) -> str:
    """All free text of a case in lower case."""
    parts = [_part(case, *place) for place in _PLACES]
    notes = case.get("notes")
    parts += [note for note in (notes if isinstance(notes, list) else [notes]) if isinstance(note, str)]
    return " · ".join(part for part in parts if part).lower()


_PLACES = (
    ("hardware", "note"), ("framework", "note"), ("workload", "note"), ("workload", "dataset"),
    ("draft", "note"), ("draft", "structure"),
)  # fmt: skip


def _part(case: Mapping[str, Any], section: str, name: str) -> str | None:
    facts = case.get(section)
    if section == "draft" and isinstance(facts, Mapping) and facts.get("method") is None:
        return None
    value = facts.get(name) if isinstance(facts, Mapping) else None
    return " ".join(value.split()) if isinstance(value, str) else None


def stated(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """The first match in a clause that does not deny it: a negation is not a statement."""
    for clause in re.split(r"[;·,()]|\.\s", text):
        match = pattern.search(clause)
        if match and not _DENIES.search(clause):
            return match
    return None


def clauses(text: str) -> Iterator[tuple[str, bool]]:
    """The clauses of a text, and whether each is about plain decoding or both variants.

    A clause that names no variant is about the variant named last in its sentence.
    """
    for sentence in re.split(r"[;·]|\.\s", text):
        plain = True
        for clause in re.split(r"[,()]", sentence):
            if _DRAFTING.search(clause) or _NOT_DRAFTING.search(clause):
                plain = _NOT_DRAFTING.search(clause) is not None
            yield clause, plain
