"""The quality of a profile, part by part: what was measured, its errors, and a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calibration.fit.parts import LIMITS
from simulator.costs.profiles import Part, Profile

GOOD, USABLE, POOR, UNMEASURED = "good", "usable", "poor", "not measured"
_GOOD_SHARE = 0.5
"""A part is good if its median error is below this share of its limit."""
_CHECK_LIMIT_PERCENT = 10.0
"""Median error of complete passes against the sum of their parts above which a note is written."""


def quality(profile: Profile) -> dict[str, Any]:
    """The answer of `profile check`."""
    parts = [_part(part) for part in profile.parts.values()]
    measured = [part["quality"] for part in parts if part["quality"] != UNMEASURED]
    worst = next((word for word in (POOR, USABLE, GOOD) if word in measured), UNMEASURED)
    origin = profile.provenance
    return {
        "name": profile.name,
        "quality": worst,
        "device": _device(profile),
        "parts": parts,
        "checks": _checks(origin),
        "provenance": dict(origin),
        "notes": _notes(profile, parts),
    }


def _part(part: Part) -> dict[str, Any]:
    residual, family = part.residual, part.name.partition("/")[0]
    error, limit = residual.get("p50_percent"), LIMITS.get(family)
    return {
        "name": part.name,
        "status": part.status,
        "quality": _word(part, error, limit),
        "median_error_percent": error,
        "p95_error_percent": residual.get("p95_percent"),
        "bias_percent": residual.get("bias_percent"),
        "noise_percent": residual.get("noise_percent"),
        "limit_percent": limit,
        "points": residual.get("n"),
        "split": residual.get("split", ""),
        "intervals": residual.get("intervals", {}),
        "source": part.source,
        "note": part.note,
    }


def _word(part: Part, error: float | None, limit: float | None) -> str:
    if part.status != "measured":
        return UNMEASURED
    if error is None or limit is None:
        return GOOD
    return GOOD if error <= _GOOD_SHARE * limit else USABLE if error <= limit else POOR


def _device(profile: Profile) -> dict[str, Any]:
    gpu, origin = profile.gpu, profile.provenance
    keys = ("kind", "driver", "torch", "threads", "date", "platform")
    return {
        "name": gpu.name,
        "title": gpu.title,
        "memory_bytes": gpu.memory_bytes,
        "bandwidth_bytes_per_s": gpu.hbm_bandwidth_bytes_per_s,
        "peak_flops_per_s": dict(gpu.peak_flops_per_s),
        **{name: origin[name] for name in keys if name in origin},
    }


def _checks(origin: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Complete passes against the sum of their parts, by kind of pass."""
    by_name: dict[str, list[float]] = {}
    for check in origin.get("checks", []):
        by_name.setdefault(check["name"], []).append(float(check["error_percent"]))
    return [
        {
            "name": name,
            "points": len(errors),
            "median_error_percent": round(_median([abs(error) for error in errors]), 2),
            "bias_percent": round(sum(errors) / len(errors), 2),
        }
        for name, errors in by_name.items()
    ]


def _notes(profile: Profile, parts: list[dict[str, Any]]) -> list[str]:
    notes = [
        f"{part['name']}: median error {part['median_error_percent']:g} %, "
        f"beyond its limit of {part['limit_percent']:g} %"
        for part in parts
        if part["quality"] == POOR
    ]
    notes += [
        f"{part['name']}: the measurements vary by {part['noise_percent']:g} %: the device was not quiet"
        for part in parts
        if (part["noise_percent"] or 0.0) > 2.0
    ]
    notes += [
        f"{check['name']}: complete passes are {check['median_error_percent']:g} % off the sum of their parts"
        for check in _checks(profile.provenance)
        if check["median_error_percent"] > _CHECK_LIMIT_PERCENT
    ]
    unmeasured = [part["name"] for part in parts if part["quality"] == UNMEASURED]
    if unmeasured and len(unmeasured) < len(parts):
        notes.append(f"inherited or assumed, not measured here: {', '.join(unmeasured)}")
    for session in profile.provenance.get("sessions", []):
        notes += [str(line) for line in session.get("notes", [])]
    return notes


def _median(values: list[float]) -> float:
    from statistics import median

    return median(values)
