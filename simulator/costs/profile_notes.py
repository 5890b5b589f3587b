"""What a profile says about itself, checked: residuals of its parts, and where its figures come from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from simulator.costs.faults import Faults
from simulator.document import DataPath

_TEXTS = ("split",)


def check_residual(residual: Mapping[str, Any], path: DataPath, faults: Faults) -> None:
    """Errors are numbers, intervals pairs of them."""
    for key, value in residual.items():
        if key == "intervals":
            _check_intervals(value, (*path, key), faults)
        elif key not in _TEXTS and not _is_number(value):
            faults.add((*path, key), value, "is not usable", "a finite number")


def _check_intervals(intervals: object, path: DataPath, faults: Faults) -> None:
    if not isinstance(intervals, dict):
        faults.add(path, intervals, "is not usable", "an object of [low, high]")
        return
    for name, ends in intervals.items():
        if not isinstance(ends, list) or len(ends) != 2 or not all(map(_is_number, ends)):
            faults.add((*path, name), ends, "is no interval", "[low, high]")


def check_provenance(provenance: Mapping[str, Any], faults: Faults) -> None:
    """Sessions are objects, checks have a name and an error."""
    for key, needed in (("sessions", ()), ("checks", ("name", "error_percent"))):
        entries = provenance.get(key, [])
        if not isinstance(entries, list):
            faults.add(("provenance", key), entries, "is not usable", "a list")
            continue
        for index, entry in enumerate(entries):
            if not isinstance(entry, dict):
                faults.add(("provenance", key, index), entry, "is not usable", "an object")
            elif needed and not (
                isinstance(entry.get("name"), str) and _is_number(entry.get("error_percent"))
            ):
                faults.add(
                    ("provenance", key, index), None, "is no check", f"an object with {', '.join(needed)}"
                )
            elif not isinstance(entry.get("notes", []), list):
                faults.add(("provenance", key, index, "notes"), entry["notes"], "is not usable", "a list")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
