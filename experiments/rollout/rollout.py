"""`rollout(scenario, …)`: the staged plan, as data and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from calibration.launch.registry import engine_key
from experiments.capacity.plan import plan
from experiments.rollout.figures import acceptance_gate, latency_guards
from experiments.rollout.markdown import rollout_markdown
from experiments.rollout.stages import RolloutFacts, RolloutStage, alert_rules, stages_of
from simulator.runs.replications import traffic_of

if TYPE_CHECKING:
    from experiments.capacity.answer import CapacityPlan
    from simulator.runs.replications import Progress
    from simulator.scenario import Scenario

SCHEMA = "decodesim/rollout-1"


@dataclass(frozen=True)
class RolloutPlan:
    """The answer of `rollout`."""

    facts: RolloutFacts
    stages: tuple[RolloutStage, ...]
    alerts: list[Mapping[str, Any]]

    @property
    def plan(self) -> CapacityPlan:
        """The capacity plan that it rests on."""
        return self.facts.plan

    @property
    def markdown(self) -> str:
        """The document for people."""
        return rollout_markdown(self.facts, self.stages, self.alerts)

    def to_json(self) -> dict[str, Any]:
        """The document of `decodesim rollout`."""
        document = self.plan.to_json()
        keys = ("verdict", "reason", "best", "schedule", "replicas", "engine", "engine_files", "notes")
        return {
            "schema": SCHEMA,
            **{key: document[key] for key in keys},
            "stages": [stage.to_json() for stage in self.stages],
            "alerts": [dict(rule) for rule in self.alerts],
            "markdown": self.markdown,
        }


def rollout(
    scenario: Scenario,
    slo: str | None = None,
    rate_per_s: float | None = None,
    gpu_hour_cost: float | None = None,
    progress: Progress | None = None,
) -> RolloutPlan:
    """Plan as `plan` does, and turn the answer into stages. Raises InputError."""
    answer = plan(scenario, slo, rate_per_s, gpu_hour_cost, progress)
    output_tokens = float(traffic_of(scenario, 0).output_tokens.mean())
    facts = RolloutFacts(
        scenario, answer, engine_key(scenario), output_tokens, acceptance_gate(answer), latency_guards(answer)
    )
    stages = stages_of(facts)
    return RolloutPlan(facts, stages, alert_rules(facts) if len(stages) > 1 else [])
