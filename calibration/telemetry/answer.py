"""The answer of `decodesim read`: files to one JSON document, which a scenario takes as its acceptance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calibration.telemetry.alpha import fits_of, gated_of, geometric_alpha
from calibration.telemetry.combine import Combined, combine, without_repeats
from calibration.telemetry.health import findings_of
from calibration.telemetry.intervals import intervals_of
from calibration.telemetry.reading import LATENCIES, Finding, Latency, MeasuredAcceptance, Reading
from calibration.telemetry.registry import read_files
from simulator.results import metrics

SCHEMA = "decodesim/read-1"

_WHY_NO_ACCEPTANCE = (
    "no acceptance: the files have no counters of speculation, so it was off, or the tool does not report it"
)


@dataclass(frozen=True)
class Answer:
    """What the files of one command say, taken together and one by one."""

    readings: tuple[Reading, ...]
    combined: Combined
    findings: tuple[Finding, ...]
    skipped_lines: int

    def to_json(self) -> dict[str, Any]:
        """The document of `read`: keys are a contract. What is not known is null or empty, with a note."""
        combined = self.combined
        notes = list(combined.notes)
        if combined.acceptance is None and not any(reading.acceptance for reading in self.readings):
            notes.append(_WHY_NO_ACCEPTANCE)
        return {
            "schema": SCHEMA,
            "sources": [source.to_json() for reading in self.readings for source in reading.sources],
            **_acceptance_json(combined.acceptance, combined.coverage, combined.tokens_per_step, notes),
            "stated": [stated.to_json() for reading in combined.accepted_by for stated in reading.stated],
            **_latencies_json(combined.latencies),
            "throughput_tokens_per_s": combined.throughput_tokens_per_s,
            "load": dict(combined.load),
            "health": [finding.to_json() for finding in self.findings],
            "skipped_lines": self.skipped_lines,
            "readings": [_reading_json(reading) for reading in self.readings],
            "notes": notes,
        }


def read(names: Sequence[str]) -> Answer:
    """Read files, `-` for standard input. Raises InputError with every file that cannot be read."""
    collected = read_files(names)
    readings, repeats = without_repeats(collected.readings)
    combined = combine(readings)
    findings = findings_of(readings, combined, (*collected.findings, *repeats))
    return Answer(tuple(readings), combined, tuple(findings), collected.skipped_lines)


def _reading_json(reading: Reading) -> dict[str, Any]:
    notes: list[str] = []
    acceptance = _acceptance_json(reading.acceptance, reading.draft_coverage, reading.tokens_per_step, notes)
    return {
        "label": reading.label,
        "sources": [source.to_json() for source in reading.sources],
        **acceptance,
        "stated": [stated.to_json() for stated in reading.stated],
        **_latencies_json(reading.latencies),
        "throughput_tokens_per_s": reading.throughput_tokens_per_s,
        "load": dict(reading.load),
        "traits": dict(reading.traits),
        "notes": notes,
    }


def _acceptance_json(
    acceptance: MeasuredAcceptance | None,
    coverage: float | None,
    tokens_per_step: float | None,
    notes: list[str],
) -> dict[str, Any]:
    """The keys on acceptance. Rates are plain numbers by position; their intervals stand under `…_ci95`."""
    document: dict[str, Any] = {
        "draft_length": None,
        "mean_acceptance_length": None,
        "draft_acceptance_rate": None,
        "acceptance_rate_at": [],
        "acceptance_rate_at_ci95": [],
        "conditional_acceptance": [],
        "conditional_acceptance_ci95": [],
        "geometric_alpha": None,
        "interval_method": None,
        "acceptance_basis": None,
        "draft_rounds": None,
        "drafted_tokens": None,
        "accepted_tokens": None,
        "draft_coverage": None if acceptance is None else coverage,
        "tokens_per_step": tokens_per_step,
        "fits": [],
    }
    if acceptance is None:
        return document
    total, intervals = acceptance.total, intervals_of(acceptance)
    document |= {
        "draft_length": acceptance.draft_length,
        "mean_acceptance_length": {
            "value": total.mean_length,
            "ci95": None if intervals is None else list(intervals.mean_length),
        },
        "draft_acceptance_rate": _rate(acceptance),
        "acceptance_rate_at": total.rates_at,
        "conditional_acceptance": [
            None if math.isnan(rate) else min(rate, 1.0)
            for rate in metrics.conditional_acceptance(total.rates_at)
        ],
        "geometric_alpha": geometric_alpha(acceptance),
        "acceptance_basis": acceptance.basis,
        "fits": fits_of(acceptance),
    }
    if intervals is not None:
        document["interval_method"] = intervals.method
        document["acceptance_rate_at_ci95"] = [list(pair) for pair in intervals.rates_at]
        document["conditional_acceptance_ci95"] = [pair and list(pair) for pair in intervals.conditional]
    if acceptance.counted:
        document |= {
            "draft_rounds": _whole(total.rounds),
            "drafted_tokens": _whole(total.drafted),
            "accepted_tokens": _whole(total.accepted),
        }
    else:
        notes.append(f"acceptance is {acceptance.basis}: there are no counts")
    if not total.accepted_at:
        notes.append("the source has no acceptance by position")
    if acceptance.draft_length is None:
        notes.append("the draft length is not known, so neither is α")
    gated = gated_of(acceptance, coverage)
    if gated is not None:
        document["gated"] = gated
        notes.append(
            "a scenario takes `gated`; counts do not show how rounds with a draft follow, so stickiness is 0"
        )
    return document


def _whole(count: float | None) -> float | int | None:
    """A count as an integer; sums of rounded lines may be fractions."""
    return int(count) if count is not None and count == int(count) else count


def _rate(acceptance: MeasuredAcceptance) -> float | None:
    """Accepted ÷ drafted; where drafts are not counted, of full ones."""
    total = acceptance.total
    drafted = total.drafted
    if drafted is None and acceptance.draft_length:
        drafted = acceptance.draft_length * total.rounds
    return total.accepted / drafted if drafted else None


def _latencies_json(latencies: Mapping[str, Latency]) -> dict[str, Any]:
    return {name: latencies[name].to_json() if name in latencies else {} for name in LATENCIES}
