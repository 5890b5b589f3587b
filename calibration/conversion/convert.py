"""Adds the explicit fields that a published case lacks, read once from its words.

A field that the file states is left as it is. `hardware.tp` and `hardware.gpu` stay the source's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from calibration.conversion.loads import load_fields
from calibration.conversion.words import case_fields

Json = Mapping[str, Any]


class Converted(NamedTuple):
    """A case with its explicit fields, and the names of those that were read from words."""

    case: dict[str, Any]
    from_words: tuple[str, ...]


def converted(case: Json) -> Converted:
    """The case with the explicit fields that its words state. A section that is no object stays as it is."""
    result, names = dict(case), []
    for section, fields in case_fields(case).items():
        stated = case.get(section)
        if stated is not None and not isinstance(stated, Mapping):
            continue
        missing = {
            name: value
            for name, value in fields.items()
            if value is not None and (stated or {}).get(name) is None
        }
        if missing:
            result[section] = {**(stated or {}), **missing}
            names += [f"{section}.{name}" for name in missing]
    points = case.get("points")
    if isinstance(points, list) and not isinstance(case.get("load"), Mapping):
        result["points"] = [_with_load(case, point, names) for point in points]
    return Converted(result, tuple(dict.fromkeys(names)))


def converted_document(document: Json) -> dict[str, Any]:
    """A whole file of cases; its schema version becomes 1.1."""
    cases = [
        converted(case).case if isinstance(case, Mapping) else case for case in document.get("cases", ())
    ]
    return {**document, "schema_version": 1.1, "cases": cases}


def _with_load(case: Json, point: object, names: list[str]) -> object:
    if not isinstance(point, Mapping):
        return point
    fields = load_fields(case, point)
    names += [f"load.{name}" for name in fields.get("load", ())]
    return {**point, **fields} if fields else point
