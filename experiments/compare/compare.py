"""`compare`: two measured runs, and what the simulator expects of the same configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from experiments.compare.cause import Cause, causes_of
from experiments.compare.measured import MeasuredPair, ReadAnswer
from experiments.compare.tail import TailCause, predicted, tail_causes, trapped
from experiments.measured_variant import with_measured

if TYPE_CHECKING:
    from simulator.results.result import Result
    from simulator.runs.replications import Progress
    from simulator.scenario import Scenario, Variant

_SCHEMA = "decodesim/compare-1"
_STEP_PARTS = ("draft", "verify", "attention", "communication", "sampling", "host")
_REQUESTS = 1600
"""Requests of the simulated runs: enough for a P99 of the measured ones."""


@dataclass(frozen=True)
class RunComparison:
    """The answer. `expected`: what the simulator expects, empty without a scenario."""

    pair: MeasuredPair
    causes: list[Cause]
    tail: list[TailCause]
    expected: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The document of `decodesim compare --json`."""
        return {
            "schema": _SCHEMA,
            "speedup": self.pair.speedup(),
            "causes": [cause.to_json() for cause in self.causes],
            "trap": trapped(self.pair),
            "tail": [cause.to_json() for cause in self.tail],
            "expected": dict(self.expected),
            "notes": list(self.notes),
        }


def compare(
    base: ReadAnswer,
    spec: ReadAnswer,
    scenario: Scenario | None = None,
    variant: Variant | None = None,
    progress: Progress | None = None,
) -> RunComparison:
    """Compare two documents of `read`, the run without speculation first.

    With a scenario, its variant is simulated with the measured acceptance next to the measurement, and
    mitigations of a longer tail get their predicted effect.
    """
    from simulator.scenario import with_workload
    from simulator.simulation import simulate

    pair = MeasuredPair(base, spec)
    notes: list[str] = []
    if base["mean_acceptance_length"] is not None:
        notes.append("the first run has draft counts too: it should be the one without speculation")
    if scenario is None or variant is None:
        return RunComparison(pair, causes_of(pair), tail_causes(pair, None, None), notes=tuple(notes))
    if spec["mean_acceptance_length"] is not None:
        scenario = with_measured(scenario, variant, spec)
        (variant,) = scenario.speculation
    scenario = with_workload(scenario, requests=_REQUESTS)
    result = simulate(scenario, progress, keep_requests=False)
    tail = predicted(scenario, variant, tail_causes(pair, scenario, variant), progress)
    expected = _expected(result, variant.name)
    return RunComparison(
        pair, causes_of(pair, _step_parts(result, variant.name)), tail, expected, tuple(notes)
    )


def _expected(result: Result, name: str) -> dict[str, Any]:
    """The simulated speedups of the variant, in the keys of `simulate`."""
    comparison = result.comparison[name].to_json()
    return {key: value for key, value in comparison.items() if key not in ("evidence", "acceptance_basis")}


def _step_parts(result: Result, name: str) -> dict[str, float]:
    """Part of a step → by how much it grows, as a share of a plain step."""
    plain, spec = (result.variants[arm].values() for arm in ("plain", name))
    plain_step_s = plain.get("step_s.mean")
    if not plain_step_s:
        return {}
    parts = {part: spec.get(f"step_s.{part}", 0.0) - plain.get(f"step_s.{part}", 0.0) for part in _STEP_PARTS}
    return {part: growth / plain_step_s for part, growth in parts.items()}
