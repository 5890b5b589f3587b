"""A queue with one server in place of an engine: waits and sojourns whose true distribution is known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from simulator.results.record import RunRecord
from simulator.results.summary import VariantMeasurement
from simulator.results.warm_up import measured_requests
from simulator.runs.replications import Replications, VariantRuns
from simulator.runs.variant import CompiledVariant
from simulator.scenario import Scenario
from simulator.step.state import DONE
from simulator.traffic.streams import stream
from simulator.traffic.workload import Requests
from tests.records import record_of_requests
from tests.runs import small_scenario

SERVICE_S = 1.0
"""Mean service time."""


@dataclass(frozen=True)
class Queue:
    """An variant whose requests come as the scenario says and are served one after the other, for exponential
    times (M/M/1). With `cold` > 0 the first so many services take three times as long."""

    scenario: Scenario
    cold: int = 0
    name: str = "plain"
    variant: None = None

    def run(self, requests: Requests, seed: int, *, timeline: Any = None, warm_up: int = 0) -> RunRecord:
        count = len(requests.arrival_ns)
        service_ns = stream(seed, "service of a test").exponential(SERVICE_S * 1e9, count)
        service_ns[: self.cold] *= 3
        arrival_ns = requests.arrival_ns
        steps = np.concatenate([[0.0], service_ns[:-1] - np.diff(arrival_ns)])
        walk = np.cumsum(steps)
        admitted_ns = arrival_ns + (walk - np.minimum.accumulate(walk)).astype(np.int64)
        ended_ns = admitted_ns + service_ns.astype(np.int64)
        first, end = measured_requests(self.scenario, count, warm_up)
        ones = np.ones(count, np.int64)
        return replace(
            _template(),
            arrival_ns=arrival_ns,
            admitted_ns=admitted_ns,
            first_ns=ended_ns,
            last_ns=ended_ns,
            ended_ns=ended_ns,
            emitted_tokens=ones,
            status=ones * DONE,
            emitted_before_arrival=np.searchsorted(np.sort(ended_ns), arrival_ns, side="right"),
            makespan_ns=int(ended_ns.max()),
            first_measured=first,
            end_measured=end,
            **{name: ones * 0 for name in _NOTHING},
        )

    def beyond_drafter(self, requests: Requests) -> str | None:
        return None


_NOTHING = (
    "max_itl_ns drafted_tokens accepted_tokens draft_rounds decode_rounds preemptions traffic_class "
    "in_system_at_arrival"
).split()


@cache
def _template() -> RunRecord:
    return record_of_requests([0.0], [1.0], [[]])


def queue_scenario(load: float, requests: int, **changes: Any) -> Scenario:
    """Poisson arrivals that offer `load` servers' worth of work."""
    arrivals = {"kind": "poisson", "rate_per_s": load / SERVICE_S}
    return small_scenario({"workload.arrivals": arrivals, "workload.requests": requests, **changes})


def replications(scenario: Scenario, seed: int, cold: int = 0) -> Replications:
    """The replications of a queue under a scenario with another seed, not yet run."""
    run = scenario.run.model_copy(update={"seed": seed})
    seeded = scenario.model_copy(update={"run": run})
    scope = CompiledVariant.compile(seeded, None).measurement_scope
    return Replications(seeded, [VariantRuns(Queue(seeded, cold), scope)], bands=False)  # type: ignore[arg-type]


def measured(study: Replications) -> VariantMeasurement:
    """What a study of one variant found."""
    (result,) = study.measurements()
    return result
