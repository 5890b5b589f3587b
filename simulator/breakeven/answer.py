"""The answer to a break-even question: rows by load, draft length, target and metric, and their JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from simulator.results.estimate import Estimate


@dataclass(frozen=True)
class BreakEvenRow:
    """The acceptance needed for one (load, draft length, target, metric).
    None: there is no such acceptance, and `verdict` gives the reason.

    `simulated_alpha` is 0 where the target is reached without an accepted draft. The closed forms use
    `plain_mean_batch`. `speedup_at`: acceptance → how many times as good the metric is as that of plain
    decoding, for the acceptances that were asked about.
    """

    load: Mapping[str, float]
    draft_length: int
    target_speedup: float
    metric: str
    verdict: str
    scenario_alpha: float | None = None
    overhead: float | None = None
    linear_acceptance_rate: float | None = None
    geometric_alpha: float | None = None
    simulated_alpha: Estimate | None = None
    mean_acceptance_length: Estimate | None = None
    note: str | None = None
    plain_mean_batch: float | None = None
    speedup_at: Mapping[str, Estimate | None] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """One entry of `rows`."""
        return {
            "load": dict(self.load),
            "concurrency": self.load.get("concurrency"),
            "draft_length": self.draft_length,
            "target_speedup": self.target_speedup,
            "metric": self.metric,
            "overhead": self.overhead,
            "linear_acceptance_rate": self.linear_acceptance_rate,
            "geometric_alpha": self.geometric_alpha,
            "simulated_alpha": self.simulated_alpha and self.simulated_alpha.to_json(),
            "mean_acceptance_length": self.mean_acceptance_length and self.mean_acceptance_length.to_json(),
            "plain_mean_batch": self.plain_mean_batch,
            "speedup_at": {
                alpha: speedup and speedup.to_json() for alpha, speedup in self.speedup_at.items()
            },
            "scenario_alpha": self.scenario_alpha,
            "verdict": self.verdict,
            "note": self.note,
        }


@dataclass(frozen=True)
class BreakEven:
    """All rows, and per load the best draft length by α (0: do not draft) with the cost ratio it rests on."""

    rows: tuple[BreakEvenRow, ...]
    best_draft_length: Mapping[str, Mapping[str, int]]
    cost_ratio: Mapping[str, float]
    notes: tuple[str, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The document of `decodesim breakeven --json`."""
        return {
            "schema": "decodesim/breakeven-1",
            "rows": [row.to_json() for row in self.rows],
            "best_draft_length": {load: dict(best) for load, best in self.best_draft_length.items()},
            "cost_ratio": dict(self.cost_ratio),
            "provenance": dict(self.provenance),
            "notes": list(self.notes),
        }
