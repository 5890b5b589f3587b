"""One replica under any load: runs on common random numbers, measured against the SLO.

All variants, draft lengths, numbers of GPUs and loads meet the same requests with the same random numbers in
each replication. A rate only scales the times between the same arrivals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from experiments.capacity.demand import RATE, USERS
from simulator.results.metrics import samples_needed

if TYPE_CHECKING:
    from experiments.capacity.slo import SloLimits
    from simulator.results.record import RunRecord
    from simulator.results.summary import MeasuredRun, MeasurementScope, VariantMeasurement
    from simulator.runs.variant import CompiledVariant
    from simulator.scenario import Scenario, Variant

_REQUESTS_PER_SAMPLE = 1.6
"""Requests of a run per measured request, with a margin."""
MIN_REQUESTS = 1600
"""Requests of a run: enough for a P99 of the measured ones."""
MAX_REQUESTS = 12_000
"""Longest run that the number of requests in flight can demand."""
_MAX_REQUESTS_FOR_CLASS = 60_000
"""Longest run that the P99 of a rare class can demand."""
_ROUNDS_IN_FLIGHT = 8
"""Length of a run as a multiple of the requests in flight, so that it is not all warm-up."""
_ROUNDS_OF_USERS = 4
"""Additional rounds of a closed loop, because the first and the last ones are not measured."""
FULL = "full"
"""A kind of load: users who never pause, neither between sessions nor within them."""


class ReplicaRun(NamedTuple):
    """One run. `figures` are those of `measure.py`. `saturated`: the offered rate exceeds what is served."""

    figures: Mapping[str, float]
    saturated: bool

    @property
    def in_flight(self) -> float:
        """Mean number of requests in flight, by Little's law."""
        return self.figures["request_rate_per_s"] * self.figures["e2e_s.mean"]


@dataclass(frozen=True)
class ReplicaSetting:
    """The variant (None: plain decoding) with its draft length, the number of GPUs and their kind.

    `alpha` replaces the acceptance of the variant within its model, as another drafter would.
    """

    variant: Variant | None
    tensor_parallel: int
    gpu: str
    alpha: float | None = None

    @property
    def name(self) -> str:
        """`plain`, or the variant's name."""
        return "plain" if self.variant is None else self.variant.name

    @property
    def draft_length(self) -> object:
        """K, or the variant's table or policy as plain data; 0 for plain decoding."""
        if self.variant is None:
            return 0
        stated = self.variant.model_dump(mode="json")
        return stated["policy"] or stated["draft_length"]

    def with_draft_length(self, draft_length: object) -> ReplicaSetting:
        """The same setting with another K or table."""
        assert self.variant is not None
        return replace(
            self, variant=self.variant.model_copy(update={"draft_length": draft_length, "policy": None})
        )


class Replica:
    """One replica with a setting. Each of its runs is simulated once."""

    def __init__(self, scenario: Scenario, setting: ReplicaSetting, slo: SloLimits) -> None:
        self.setting, self.slo = setting, slo
        self.scenario = scenario_of_replica(scenario, setting)
        self._runs: dict[tuple[object, ...], ReplicaRun] = {}
        self._variants: dict[tuple[str, float, int], CompiledVariant] = {}

    @cached_property
    def compiled(self) -> CompiledVariant:
        """The setting under the scenario's own load, ready to run."""
        from simulator.runs.variant import CompiledVariant

        return CompiledVariant.compile(self.scenario, self.setting.variant)

    @property
    def shortage(self) -> str | None:
        """Why the engine would not start; None where it does."""
        return None if self.compiled.fits else self.compiled.memory.shortage

    @property
    def max_running_requests(self) -> int:
        """The most requests of mean length that can run at once."""
        max_num_seqs = self.compiled.setup.preset.max_num_seqs
        if not self.scenario.run.mechanisms.kv_limit:
            return max_num_seqs
        return max(1, min(max_num_seqs, self.compiled.memory.max_concurrency))

    @cached_property
    def min_requests(self) -> int:
        """Requests of a run with few in flight: enough for the percentiles of every limited class."""
        shares = {entry.name: entry.share for entry in self.scenario.workload.traffic_classes}
        request_counts = (
            _REQUESTS_PER_SAMPLE * samples_needed(limit.statistic) / max(shares[limit.traffic_class], 1e-6)
            for limit in self.slo.limits
            if limit.traffic_class is not None
        )
        return min(max(MIN_REQUESTS, *map(round, request_counts), 0), _MAX_REQUESTS_FOR_CLASS)

    def requests_needed(self, in_flight: float) -> int:
        """Requests that a run with `in_flight` requests at once needs."""
        return max(self.min_requests, min(round(_ROUNDS_IN_FLIGHT * in_flight), MAX_REQUESTS))

    def run_at(
        self,
        kind: str,
        amount: float,
        replication: int = 0,
        *,
        requests: int | None = None,
        step_scale: float = 1.0,
        decodes_only: bool = False,
    ) -> ReplicaRun:
        """One run at a load."""
        requests = requests or self.min_requests
        key = (kind, amount, replication, requests, step_scale, decodes_only and step_scale != 1.0)
        if key not in self._runs:
            from simulator.results.measure import measure
            from simulator.results.steady import above_capacity

            scope = self._scope(kind, amount)
            record = self._run(kind, amount, replication, requests, step_scale, decodes_only)
            figures = measure(record, scope.class_names, dict(scope.limits))
            self._runs[key] = ReplicaRun(figures, above_capacity([record], scope))
        return self._runs[key]

    def measurement(
        self, kind: str, amount: float, requests: int, replications: int, band: float
    ) -> VariantMeasurement:
        """Several replications with the ends of the cost model's band, ready for `summary` and `compare`."""
        from simulator.results.summary import MeasuredRun, VariantMeasurement

        scope = self._scope(kind, amount)

        def runs(count: int, scale: float = 1.0, decodes_only: bool = False) -> tuple[MeasuredRun, ...]:
            records = (self._run(kind, amount, i, requests, scale, decodes_only) for i in range(count))
            return tuple(MeasuredRun.of(record, scope) for record in records)

        ends = [runs(1, 1 + end, decodes_only) for decodes_only in (False, True) for end in (-band, band)]
        return VariantMeasurement(scope, runs(replications), *ends)

    def _run(
        self, kind: str, amount: float, replication: int, requests: int, scale: float, decodes_only: bool
    ) -> RunRecord:
        from simulator.breakeven.simulated_evaluator import acceptance_at
        from simulator.runs.replications import replication_seed, traffic_of

        variant = self._variant(kind, amount, requests)
        return variant.run(
            traffic_of(variant.scenario, replication),
            replication_seed(variant.scenario.run.seed, replication),
            acceptance=None if self.setting.alpha is None else acceptance_at(variant, self.setting.alpha),
            step_scale=scale,
            scales_decodes_only=decodes_only,
        )

    def _variant(self, kind: str, amount: float, requests: int) -> CompiledVariant:
        """The setting under a load, compiled once."""
        from simulator.runs.variant import CompiledVariant

        load = (kind, amount, requests)
        if load not in self._variants:
            self._variants[load] = CompiledVariant.compile(self._scenario_at(*load), self.setting.variant)
        return self._variants[load]

    def _scenario_at(self, kind: str, amount: float, requests: int) -> Scenario:
        from simulator.breakeven.simulated_evaluator import scenario_at
        from simulator.scenario import ArrivalsClosed, with_workload

        if kind == RATE:
            return with_workload(scenario_at(self.scenario, {kind: amount}), requests=requests)
        requests += _ROUNDS_OF_USERS * int(amount)
        if kind == FULL:
            arrivals, sessions = ArrivalsClosed(concurrency=int(amount)), self.scenario.workload.sessions
            gapless = sessions and sessions.model_copy(update={"gap_s": 0.0})
            return with_workload(self.scenario, requests=requests, arrivals=arrivals, sessions=gapless)
        return with_workload(scenario_at(self.scenario, {USERS: int(amount)}), requests=requests)

    def _scope(self, kind: str, amount: float) -> MeasurementScope:
        scope = self._variant(kind, amount, 1).measurement_scope
        return replace(scope, limits=self.slo.limits_of_requests)


def scenario_of_replica(scenario: Scenario, setting: ReplicaSetting) -> Scenario:
    """The scenario with one replica of a setting.

    Experts stay spread over all GPUs if they were; otherwise over as many groups as divide the GPUs. The same
    holds for the groups of data-parallel attention.
    """
    from math import gcd

    hardware, ranks = scenario.hardware, setting.tensor_parallel
    expert_groups = hardware.expert_parallel
    expert_groups = ranks if 1 < expert_groups == hardware.tensor_parallel else gcd(expert_groups, ranks)
    dp_groups = hardware.attention_dp
    dp_groups = ranks if 1 < dp_groups == hardware.tensor_parallel else gcd(dp_groups, ranks)
    changes = {"gpu": setting.gpu, "tensor_parallel": ranks, "expert_parallel": expert_groups, "replicas": 1}
    changes["attention_dp"] = dp_groups
    return scenario.model_copy(
        update={
            "hardware": hardware.model_copy(update=changes),
            "run": scenario.run.model_copy(update={"backend": "auto"}),
            "speculation": () if setting.variant is None else (setting.variant,),
        }
    )
