"""The load of a point whose source states it in words: in its profile or its notes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from calibration.conversion.texts import text_of

_STATED = (
    "batch_size", "concurrency", "running_requests", "concurrency_cap", "max_num_seqs",
    "concurrency_per_rank", "batch_size_per_rank", "request_rate_rps",
)  # fmt: skip
"""Keys with which a point states its load itself."""
_RATE = re.compile(r"(\d+(?:\.\d+)?) ?(?:req(?:uest)?s?|rps|qps)(?: ?/ ?| per )?s?(?:ec(?:ond)?)?\b")
_LENGTHS = re.compile(r"\b(\d{2,6}) ?/ ?(\d{1,6})\b")
_ALL_AT_ONCE = re.compile(r"infinite request rate|rate inf(?!\w)|offline")
_IN_FLIGHT = re.compile(r"(?:batch(?: size)?|bs|concurrency)\s*(?:=|of)?\s*(\d+)\b")
_RATE_IS_CLIENTS = re.compile(r"request[-_ ]rate\s*=\s*c(?:oncurrency)?\b")
_MOST_IN_FLIGHT = 100_000


def load_fields(case: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
    """Fields to add to a point: `load`, and the lengths that its profile names. Empty if there are none."""
    if isinstance(point.get("load"), Mapping):
        return {}
    text = text_of(case)
    if any(point.get(key) is not None for key in _STATED):
        starts_spread = _RATE_IS_CLIENTS.search(text) and point.get("request_rate_rps") is None
        return {"load": {"ramp_s": 1.0}} if starts_spread else {}
    profile = str(point.get("profile") or "").lower()
    lengths = _LENGTHS.search(profile)
    fields: dict[str, Any] = {}
    if lengths and not any(point.get(key) for key in ("input_len_tokens", "isl", "output_len_tokens", "osl")):
        fields = {"isl": int(lengths[1]), "osl": int(lengths[2])}
    load = _load_of(case, point, profile, text)
    return fields | ({"load": load} if load else {})


def _load_of(
    case: Mapping[str, Any], point: Mapping[str, Any], profile: str, text: str
) -> dict[str, Any] | None:
    """The load in words; None where they state none."""
    if rate := _RATE.search(profile):
        return {"kind": "rate", "request_rate_rps": float(rate[1])}
    if words := _IN_FLIGHT.search(profile):
        return {"kind": "closed", "concurrency": int(words[1])}
    at_saturation = case.get("load_axis") == "saturation"
    if at_saturation or (_ALL_AT_ONCE.search(text) and not _has_limit(point)):
        return {"kind": "burst"}
    if _has_limit(point):
        return None  # the client's own limit, which the reader takes
    words = _IN_FLIGHT.search(text)
    if words and 1 <= int(words[1]) <= _MOST_IN_FLIGHT:
        kind = "closed" if words[0].startswith("concurrency") else "static_batch"
        return {"kind": kind, "concurrency": int(words[1])}
    return None


def _has_limit(point: Mapping[str, Any]) -> bool:
    variants = (point.get(side) for side in ("baseline", "spec"))
    return any(isinstance(facts, Mapping) and facts.get("max_concurrency") for facts in variants)
