"""Replicas behind a router, and which driver runs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from simulator.acceptance import AcceptanceTables
from simulator.costs.prices import Prices
from simulator.drivers.fast_forward import fast_forward
from simulator.results.record import RunRecord, record_of
from simulator.scheduling import Rule
from simulator.step.build import new_state
from simulator.step.settings import EngineSettings
from simulator.step.state import NEVER, State
from simulator.traffic.workload import Requests

FAST_FORWARD, PIPELINE = "fast_forward", "pipeline"


@dataclass(frozen=True)
class Drive:
    """How the engines are run."""

    replicas: int = 1
    router: str = "least-loaded"
    rule: Rule | None = None
    pipeline: bool = False
    """Use the pipeline even where the compiled loop could run."""
    timeline: list | None = None  # type: ignore[type-arg]
    """Stages are appended here; watching them needs the pipeline."""

    @property
    def slow_reason(self) -> str | None:
        """Why the pipeline has to run, None when nothing forbids the compiled loop."""
        if self.replicas > 1:
            return f"{self.replicas} replicas share a router"
        if self.timeline is not None:
            return "the stages of the steps are watched"
        if self.rule is not None and self.rule.at_step_boundary is not None:
            return f"the scheduler rule {self.rule.name} decides in Python at step boundaries"
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

    One engine that nobody watches runs in the compiled loop;
    anything else runs as SimPy processes over the same step.
    """
    reason = how.slow_reason
    if reason is None:
        state = new_state(settings, prices, acceptance, requests, seed, measured)
        fast_forward(state.engine, NEVER)
        return record_of([state], measured, FAST_FORWARD, None)
    settings = replace(settings, external_clients=True)
    first = new_state(settings, prices, acceptance, requests, seed, measured)
    others = [
        new_state(settings, prices, acceptance, requests, seed, measured, shared_with=first)
        for _ in range(how.replicas - 1)
    ]
    states = [first, *others]
    _run_pipeline(how, settings, states, requests)
    return record_of(states, measured, PIPELINE, reason)


def _run_pipeline(how: Drive, settings: EngineSettings, states: Sequence[State], requests: Requests) -> None:
    from simulator.drivers.pipeline import Pipeline, Traffic
    from simulator.drivers.routing import route_of

    traffic = Traffic(
        requests.arrival_ns,
        requests.successor,
        requests.successor_delay_ns,
        settings.think_time_ns,
        settings.timeout_ns,
    )
    hook = how.rule.at_step_boundary if how.rule is not None else None
    Pipeline(states, traffic, route_of(how.router, states, requests), how.timeline, hook).run()
