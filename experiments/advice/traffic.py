"""The traffic that files show, as changes of a scenario that states none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_CLIENTS = ("concurrency", "mean_batch", "running_requests")
"""Where a reading tells how many requests run at once, the best source first."""


def measured_clients(reading: Mapping[str, Any]) -> int | None:
    """Requests at once; None where the files do not tell."""
    load = reading["load"]
    values = (load.get(key) for key in _CLIENTS)
    clients = next((value for value in values if value), None)
    return None if clients is None else max(1, round(clients))


def traffic_overrides(reading: Mapping[str, Any]) -> tuple[str, ...]:
    """`--set` changes for lengths with the measured means, uniform within ± 50 %."""
    changes = []
    for name in ("prompt_tokens", "output_tokens"):
        mean = reading["load"].get(f"{name}_mean")
        if mean and mean >= 1:
            low, high = max(1, round(0.5 * mean)), max(1, round(1.5 * mean))
            changes.append(f"workload.{name}={{kind: uniform, low: {low}, high: {high}}}")
    return tuple(changes)


def traffic_notes(reading: Mapping[str, Any], clients: int | None) -> tuple[str, ...]:
    """What was taken from the files."""
    load, notes = reading["load"], []
    if clients is not None:
        notes.append(f"{clients} concurrent clients, from the files")
    lengths = [
        f"{load[f'{name}_tokens_mean']:.0f} {name} tokens"
        for name in ("prompt", "output")
        if load.get(f"{name}_tokens_mean")
    ]
    if lengths:
        notes.append(f"{' and '.join(lengths)} in the mean, from the files; uniform within ± 50 %")
    return tuple(notes)
