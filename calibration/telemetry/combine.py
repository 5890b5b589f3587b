"""One answer from several readings: which figure is taken from where, and what is added up.

Readings of one family are of different requests (two runs, several logs): their rounds add. Readings of different
families may be of the same requests (a benchmark and the server's metrics): the most exact one is taken, the
others are shown next to it. Latencies of several runs are never merged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from calibration.telemetry.reading import LATENCIES, Acceptance, Counts, Latency, Reading

Part = TypeVar("Part")

_FAMILIES = (
    "vllm-bench",
    "aiperf",
    "aiperf-records",
    "vllm-metrics",
    "vllm-response",
    "sglang-response",
    "vllm-log",
    "sglang-log",
    "sglang-metrics",
    "sglang-bench",
    "trtllm-report",
    "guidellm",
)
"""Families, the most exact first."""


@dataclass(frozen=True)
class Combined:
    """What is answered: `acceptance` of the readings `accepted_by`, the rest each from one reading.

    `notes` say why something is missing that a reading has.
    """

    acceptance: Acceptance | None
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
    families = sorted({reading.family for reading in readings}, key=_FAMILIES.index)
    by_family = [[reading for reading in readings if reading.family == family] for family in families]
    acceptance, accepted_by = _acceptance(by_family, notes)
    latencies: dict[str, Latency] = {}
    several = False
    for name in LATENCIES:
        latency, merged = _only(by_family, lambda reading, name=name: reading.latencies.get(name))
        several = several or merged
        if latency is not None:
            latencies[name] = latency
    throughput, merged = _only(by_family, lambda reading: reading.throughput_tokens_per_s)
    load, unlike = _only(by_family, lambda reading: reading.load or None)
    if several or merged or unlike:
        notes.append("several runs: latencies, throughput and load are those of each run, in `readings`")
    return Combined(
        acceptance=acceptance,
        accepted_by=accepted_by,
        latencies=latencies,
        throughput_tokens_per_s=throughput,
        load=load or {},
        coverage=_steps_ratio(accepted_by, lambda one: one.acceptance.total.rounds if one.acceptance else None),
        tokens_per_step=_steps_ratio(accepted_by, lambda one: one.decoded_tokens),
        notes=tuple(notes),
    )


def _acceptance(
    by_family: Iterable[Sequence[Reading]], notes: list[str]
) -> tuple[Acceptance | None, tuple[Reading, ...]]:
    """The acceptance of the most exact family that has one, its readings added up."""
    families = [[one for one in family if one.acceptance is not None] for family in by_family]
    families = sorted((family for family in families if family), key=lambda family: not _counted(family))
    if not families:
        return None, ()
    chosen = families[0]
    parts = [one.acceptance for one in chosen if one.acceptance is not None]
    if len(parts) == 1:
        return parts[0], tuple(chosen)
    lengths = {part.draft_length for part in parts}
    if len(lengths) > 1:
        shown = ", ".join(str(length or "unknown") for length in sorted(lengths, key=lambda length: length or 0))
        notes.append(f"runs of different draft lengths ({shown}) have no acceptance in common: it is that of each run")
        return None, ()
    if not all(part.counted for part in parts):
        notes.append("means without counts cannot be added up: acceptance is that of each run")
        return None, ()
    total = sum((part.total for part in parts), Counts(0.0, 0.0))
    blocks = tuple(block for part in parts for block in part.blocks) if all(part.blocks for part in parts) else ()
    in_order = all(part.in_order for part in parts)
    basis = f"{parts[0].basis}, {len(parts)} runs added up"
    return Acceptance(total, parts[0].draft_length, basis, True, blocks, in_order), tuple(chosen)


def _counted(family: Sequence[Reading]) -> bool:
    return all(one.acceptance is not None and one.acceptance.counted for one in family)


def _only(
    by_family: Iterable[Sequence[Reading]], part: Callable[[Reading], Part | None]
) -> tuple[Part | None, bool]:
    """A part of the first family that has it; nothing, and True, where several of its readings have it."""
    for family in by_family:
        found = [value for one in family if (value := part(one)) is not None]
        if found:
            return (found[0], False) if len(found) == 1 else (None, True)
    return None, False


def _steps_ratio(readings: Sequence[Reading], part: Callable[[Reading], float | None]) -> float | None:
    """A count over the decode steps of all readings; None where one of them does not know either."""
    counts = [part(one) for one in readings]
    steps = [one.decode_steps for one in readings]
    if not readings or not all(counts) or not all(steps):
        return None
    if not all(one.acceptance is not None and one.acceptance.counted for one in readings):
        return None
    return sum(count or 0.0 for count in counts) / sum(step or 0.0 for step in steps)
