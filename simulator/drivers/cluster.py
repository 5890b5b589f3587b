"""Replicas behind a router, and how they are run."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.acceptance import AcceptanceTables
from simulator.costs.prices import Prices
from simulator.drivers.pipeline import Simulation
from simulator.drivers.routing import route_of
from simulator.policies import Policy
from simulator.results.record import RunRecord, record_of
from simulator.scheduling import BoundaryHook, Rule
from simulator.step.build import new_state
from simulator.step.settings import EngineSettings
from simulator.traffic.workload import Requests

FAST_FORWARD, PIPELINE = "fast_forward", "pipeline"


@dataclass(frozen=True)
class Drive:
    """How the engines are run."""

    replicas: int = 1
    router: str = "least-loaded"
    rule: Rule | None = None
    policy: Policy | None = None
    pipeline: bool = False
    """Go stage by stage even where the engines could leap."""
    timeline: list | None = None  # type: ignore[type-arg]
    """The stages of all steps are appended here; a leap does not show them."""

    def boundary_hooks(self) -> tuple[BoundaryHook, ...]:
        """Return what decides in Python for one replica at its step boundaries, in order."""
        rule = self.rule.at_step_boundary if self.rule is not None else None
        policy = self.policy.begin() if self.policy is not None else None
        return tuple(hook for hook in (rule, policy) if hook is not None)

    @property
    def stage_by_stage_reason(self) -> str | None:
        """Why the engines go stage by stage, None where they leap."""
        if self.timeline is not None:
            return "the stages of the steps are watched"
        if self.rule is not None and self.rule.at_step_boundary is not None:
            return f"the scheduler rule {self.rule.name} decides in Python at step boundaries"
        if self.policy is not None:
            return f"the policy {self.policy.name} decides in Python at step boundaries"
        return "the scenario asks for it" if self.pipeline else None


def drive(
    how: Drive,
    settings: EngineSettings,
    prices: Prices,
    acceptance: AcceptanceTables,
    requests: Requests,
    seed: int,
    measured: tuple[int, int],
) -> RunRecord:
    """Run all requests to their end and return the record.

    One engine that leaps needs nothing from outside: its clients are data in its own record, and the whole
    run is one leap. In any other run the clients are processes.
    """
    reason = how.stage_by_stage_reason
    alone = how.replicas == 1 and reason is None
    first = new_state(settings, prices, acceptance, requests, seed, measured, binds_clients=alone)
    others = [
        new_state(
            settings, prices, acceptance, requests, seed, measured, binds_clients=False, shared_with=first
        )
        for _ in range(how.replicas - 1)
    ]
    states = [first, *others]
    Simulation(
        states,
        None if alone else route_of(how.router, states, requests),
        stage_by_stage=reason is not None,
        timeline=how.timeline,
        hooks=[how.boundary_hooks() for _ in states],
    ).run()
    return record_of(states, measured, FAST_FORWARD if reason is None else PIPELINE, reason)
