"""What the figures of a variant are taken over, and its estimates as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from simulator.results.catalogue import POSITIONAL
from simulator.results.estimate import Estimate, estimate_from_json


@dataclass(frozen=True)
class MeasurementScope:
    """What of a scenario its figures depend on. `limits` are the SLO's, `{"ttft_p99_s": 1.0}`."""

    open_loop: bool
    class_names: tuple[str, ...] = ()
    limits: Mapping[str, float] = field(default_factory=dict)
    replicas: int = 1
    running_limit: int | None = None
    """Requests that all replicas together can run at once."""
    clients: int | None = None
    """Clients of a closed loop; None for other arrivals."""


@dataclass(frozen=True)
class VariantSummary:
    """The figures of one variant: dotted path → estimate, None where it has none; `notes` say why."""

    estimates: Mapping[str, Estimate | None]
    saturated: bool
    notes: tuple[str, ...] = ()

    def __getitem__(self, path: str) -> Estimate | None:
        return self.estimates[path]

    def values(self) -> dict[str, float]:
        """Path → value, of the figures there are."""
        return {path: estimate.value for path, estimate in self.estimates.items() if estimate is not None}

    def to_json(self) -> dict[str, Any]:
        """The metrics of one variant, as nested mappings."""
        document: dict[str, Any] = {}
        for path, estimate in self.estimates.items():
            *parents, leaf = path.split(".")
            place = document
            for parent in parents:
                place = place.setdefault(parent, {})
            place[leaf] = estimate and estimate.to_json()
        document["saturated"] = self.saturated
        document.setdefault("classes", {})
        for metrics in (document, *document["classes"].values()):
            for name in POSITIONAL:
                metrics[name] = list(metrics.get(name, {}).values())
        return document


def summary_from_json(document: Mapping[str, Any]) -> VariantSummary:
    """The summary that `VariantSummary.to_json` wrote; its notes stay with the result."""
    return VariantSummary(dict(_flatten(document, "")), bool(document["saturated"]))


def _flatten(document: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Estimate | None]]:
    for name, value in document.items():
        path = f"{prefix}{name}"
        if isinstance(value, list):
            value = {str(position): item for position, item in enumerate(value, start=1)}
        if value is None:
            yield path, None
        elif isinstance(value, Mapping) and "value" in value:
            yield path, estimate_from_json(value)
        elif isinstance(value, str):
            raise TypeError(f"{path} is text")
        elif isinstance(value, Mapping):
            yield from _flatten(value, f"{path}.")
