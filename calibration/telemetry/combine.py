"""One answer from several readings: which figure is taken from where, and what is added up.

Readings of one format are of different requests (two runs, several logs): their rounds add where they are
alike. Readings of different formats may be of the same requests (a benchmark and the server's metrics): the
most exact one is taken, the others are shown next to it. Latencies of several runs are never merged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from calibration.telemetry.reading import (
    FORMATS,
    LATENCIES,
    Counts,
    Finding,
    Latency,
    MeasuredAcceptance,
    Reading,
)

Shared = TypeVar("Shared")

FEW_ROUNDS = 30
"""Fewer rounds are too few to conclude from."""
_STANDARD_ERRORS, _LEAST_CHANGE = 3.0, 0.1
"""By how much runs must differ not to be alike: beyond chance, and by 10 % of accepted drafts."""


@dataclass(frozen=True)
class Combined:
    """What is answered: `acceptance` of the readings `accepted_by`, the rest each from one reading.

    `notes` say why something is missing that a reading has.
    """

    acceptance: MeasuredAcceptance | None
    accepted_by: tuple[Reading, ...]
    latencies: Mapping[str, Latency]
    throughput_tokens_per_s: float | None
    load: Mapping[str, float]
    coverage: float | None
    tokens_per_step: float | None
    notes: tuple[str, ...]


def combine(readings: Sequence[Reading]) -> Combined:
    """One answer from the readings of all files."""
    notes: list[str] = []
    formats = list(FORMATS)
    by_format = [[reading for reading in readings if reading.format == name] for name in formats]
    acceptance, accepted_by = _acceptance(by_format, notes)
    latencies: dict[str, Latency] = {}
    several = False
    for name in LATENCIES:
        latency, of_several = _only(by_format, partial(_latency_of, name))
        several = several or of_several
        if latency is not None:
            latencies[name] = latency
    throughput, unlike = _only(by_format, lambda reading: reading.throughput_tokens_per_s)
    load, different = _only(by_format, lambda reading: reading.load or None)
    if several or unlike or different:
        notes.append("several runs: latencies, throughput and load are those of each run, in `readings`")
    return Combined(
        acceptance=acceptance,
        accepted_by=accepted_by,
        latencies=latencies,
        throughput_tokens_per_s=throughput,
        load=load or {},
        coverage=_per_step(
            accepted_by, lambda reading: reading.acceptance.total.rounds if reading.acceptance else None
        ),
        tokens_per_step=_per_step(accepted_by, lambda reading: reading.decoded_tokens),
        notes=tuple(notes),
    )


def without_repeats(readings: Sequence[Reading]) -> tuple[list[Reading], list[Finding]]:
    """The readings without those that say the same as an earlier one, as when a file is given twice."""
    distinct: list[Reading] = []
    findings = []
    for reading in readings:
        same = next((earlier for earlier in distinct if _says_the_same(earlier, reading)), None)
        if same is None:
            distinct.append(reading)
        else:
            text = f"{reading.label} says the same as {same.label} and is left out"
            findings.append(Finding("repeated-run", "warning", text))
    return distinct, findings


def _says_the_same(reading: Reading, other: Reading) -> bool:
    if reading.format != other.format or reading.acceptance != other.acceptance:
        return False
    return dict(reading.latencies) == dict(other.latencies) and dict(reading.load) == dict(other.load)


def _acceptance(
    by_format: Iterable[Sequence[Reading]], notes: list[str]
) -> tuple[MeasuredAcceptance | None, tuple[Reading, ...]]:
    """The acceptance of the most exact format that has one, its readings added up."""
    groups = [[reading for reading in group if reading.acceptance is not None] for group in by_format]
    groups = sorted((group for group in groups if group), key=_doubt)
    if not groups:
        return None, ()
    chosen = groups[0]
    parts = [reading.acceptance for reading in chosen if reading.acceptance is not None]
    if len(parts) == 1:
        return parts[0], tuple(chosen)
    why_not = _not_alike(parts)
    if why_not is not None:
        notes.append(f"{why_not}: acceptance is that of each run, in `readings`")
        return None, ()
    total = sum((part.total for part in parts), Counts(0.0, 0.0))
    blocks = (
        tuple(block for part in parts for block in part.blocks) if all(part.blocks for part in parts) else ()
    )
    in_order = all(part.in_order for part in parts)
    basis = f"{parts[0].basis}, {len(parts)} runs added up"
    return MeasuredAcceptance(total, parts[0].draft_length, basis, True, blocks, in_order), tuple(chosen)


def _not_alike(parts: Sequence[MeasuredAcceptance]) -> str | None:
    """Why runs have no acceptance in common; None where they have."""
    lengths = sorted({part.draft_length or 0 for part in parts})
    if len(lengths) > 1:
        return f"the draft lengths differ ({', '.join(str(length or 'unknown') for length in lengths)})"
    if not all(part.counted for part in parts):
        return "means without counts cannot be added up"
    ordered = sorted((part.total for part in parts), key=lambda total: total.mean_length)
    if differ([ordered[0]], [ordered[-1]]):
        least, most = ordered[0].mean_length, ordered[-1].mean_length
        return (
            f"mean acceptance lengths differ ({least:.2f} to {most:.2f}), as of different drafters or prompts"
        )
    return None


def differ(small: Sequence[Counts], large: Sequence[Counts]) -> bool:
    """Whether accepted drafts per round differ beyond chance, and by enough to matter."""
    (low, low_error), (high, high_error) = mean_and_error(small), mean_and_error(large)
    apart = abs(high - low)
    return apart > _STANDARD_ERRORS * math.hypot(low_error, high_error) and apart > _LEAST_CHANGE * max(
        low, high
    )


def mean_and_error(parts: Sequence[Counts]) -> tuple[float, float]:
    """Accepted drafts per round and its standard error: over blocks, or of independent rounds of one."""
    rounds = math.fsum(part.rounds for part in parts)
    mean = math.fsum(part.accepted for part in parts) / rounds
    if len(parts) == 1:
        at = parts[0].accepted_at
        squares = math.fsum((2 * place + 1) * count for place, count in enumerate(at)) / rounds
        return mean, math.sqrt(max(squares - mean * mean, mean) / rounds)
    squares = math.fsum((part.accepted - mean * part.rounds) ** 2 for part in parts)
    return mean, math.sqrt(len(parts) / (len(parts) - 1) * squares) / rounds


def _latency_of(name: str, reading: Reading) -> Latency | None:
    return reading.latencies.get(name)


def _doubt(group: Sequence[Reading]) -> int:
    """How far an acceptance is to be doubted: counts, then means without counts, then few counts."""
    rounds = sum(reading.acceptance.total.rounds for reading in group if reading.acceptance is not None)
    return 1 if not _counted(group) else 0 if rounds >= FEW_ROUNDS else 2


def _counted(group: Sequence[Reading]) -> bool:
    return all(reading.acceptance is not None and reading.acceptance.counted for reading in group)


def _only(
    by_format: Iterable[Sequence[Reading]], part: Callable[[Reading], Shared | None]
) -> tuple[Shared | None, bool]:
    """A part of the first format that has it; nothing, and True, where several of its readings have it."""
    for group in by_format:
        values = [value for reading in group if (value := part(reading)) is not None]
        if values:
            return (values[0], False) if len(values) == 1 else (None, True)
    return None, False


def _per_step(readings: Sequence[Reading], part: Callable[[Reading], float | None]) -> float | None:
    """A count over the decode steps of all readings; None where one of them does not know either."""
    counts = [part(reading) for reading in readings]
    steps = [reading.decode_steps for reading in readings]
    if not readings or not all(counts) or not all(steps) or not _counted(readings):
        return None
    return sum(count or 0.0 for count in counts) / sum(step or 0.0 for step in steps)
