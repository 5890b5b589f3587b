"""One load of a scenario for the break-even search: simulated runs of plain decoding and of one speculative
variant, on common random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property

from simulator.acceptance import AcceptanceModel
from simulator.acceptance.base import logit
from simulator.breakeven.evaluator import DoesNotFitError, Load
from simulator.errors import InputError, Problem
from simulator.results.record import RunRecord
from simulator.results.steady import above_capacity, steady_figures
from simulator.results.variant_summary import MeasurementScope
from simulator.runs.drafts import variant_acceptance
from simulator.runs.fit import shortage_of
from simulator.runs.replications import replication_seed, traffic_of
from simulator.runs.variant import CompiledVariant
from simulator.scenario import (
    ArrivalsClosed,
    ArrivalsGamma,
    ArrivalsPoisson,
    Scenario,
    Variant,
    with_workload,
)

_FEWEST_REQUESTS = 2000
_ROUNDS_OF_CLIENTS = 12
"""A closed loop is cut to the larger of `_FEWEST_REQUESTS` and this many rounds of its clients. Its steady
window is then long enough for a break-even.
"""


def scenario_at(scenario: Scenario, load: Load) -> Scenario:
    """Return the scenario under another load: `{"concurrency": n}` for a closed loop, or `{"rate_per_s": r}`
    for gamma arrivals where it had them, else Poisson.

    Raises InputError for a load that is neither, or not positive.
    """
    (kind, amount), *further = load.items()
    old = scenario.workload.arrivals
    if further or kind not in ("concurrency", "rate_per_s"):
        raise InputError(
            Problem(field="load", value=dict(load), message="is no load", allowed="concurrency or rate_per_s")
        )
    is_possible = kind == "rate_per_s" or amount == int(amount)
    if not (math.isfinite(amount) and amount > 0 and is_possible):
        allowed = "a whole number from 1" if kind == "concurrency" else "a number above 0"
        raise InputError(Problem(field=kind, value=amount, message="is no load", allowed=allowed))
    arrivals: ArrivalsClosed | ArrivalsGamma | ArrivalsPoisson
    if kind == "concurrency":
        clients = int(amount)
        fields = old.model_dump() if old.kind == "closed" else {}
        arrivals = ArrivalsClosed(**{**fields, "concurrency": clients})
    elif old.kind == "gamma":
        arrivals = ArrivalsGamma(rate_per_s=amount, cv=old.cv)
    else:
        arrivals = ArrivalsPoisson(rate_per_s=amount)
    return with_workload(scenario, arrivals=arrivals)


def load_of(scenario: Scenario) -> Load:
    """Return the scenario's own load, as rows show it: of a trace or profile the factor on its rate, of a
    burst its size.
    """
    arrivals = scenario.workload.arrivals
    if arrivals.kind == "closed":
        return {"concurrency": arrivals.concurrency}
    if arrivals.kind in ("poisson", "gamma"):
        return {"rate_per_s": arrivals.rate_per_s}
    if arrivals.kind == "burst":
        return {"requests": scenario.workload.requests}
    return {"rate_scale": arrivals.rate_scale if arrivals.kind == "trace" else 1.0}


def acceptance_at(variant: CompiledVariant, alpha: float) -> tuple[AcceptanceModel | None, ...]:
    """Return the variant's acceptance, one model per traffic class, moved within its family to `alpha`.

    Classes with acceptance of their own move by the same logit shift. Raises InputError where the variant's
    model has no α to move.
    """
    assert variant.variant is not None
    base = variant_acceptance(variant.variant, variant.scenario.base_dir)

    def moved(model: AcceptanceModel) -> AcceptanceModel:
        if model == base or base.alpha in (0.0, 1.0):
            return model.with_alpha(alpha)
        return model.shifted(logit(alpha) - logit(base.alpha))

    return tuple(model and moved(model) for model in variant.acceptance)


class SimulatedEvaluator:
    """An `Evaluator` that runs the simulator. The family of acceptance is that of `acceptance_at`."""

    def __init__(
        self,
        scenario: Scenario,
        variant: Variant,
        load: Load | None = None,
        own_draft_length: bool = False,
        plain_runs: dict[int, RunRecord] | None = None,
    ) -> None:
        """`own_draft_length`: runs keep the variant's table or policy of draft lengths, where it has one.

        `plain_runs`: the runs of plain decoding of this scenario by replication, made for another variant.
        New runs join them.
        """
        self.load = load_of(scenario) if load is None else load
        self.scenario = _shortened(scenario if load is None else scenario_at(scenario, load))
        self.variant = variant
        drafts_tree = variant.tree_plan is not None
        self.draft_length_varies = drafts_tree or (own_draft_length and not variant.has_fixed_length)
        self._plain = {} if plain_runs is None else plain_runs
        self._speculative: dict[int, CompiledVariant] = {}

    @cached_property
    def _base(self) -> AcceptanceModel:
        return variant_acceptance(self.variant, self.scenario.base_dir)

    @property
    def scenario_alpha(self) -> float | None:
        """Conditional acceptance at position 1 of the variant's own model; None for a replayed trace."""
        try:
            return self._base.alpha
        except InputError:
            return None

    @cached_property
    def _plain_variant(self) -> CompiledVariant:
        return self._fitting(CompiledVariant.compile(self.scenario, None))

    @cached_property
    def _scope(self) -> MeasurementScope:
        return self._plain_variant.measurement_scope

    @property
    def open_loop(self) -> bool:
        """Whether requests arrive at a rate of their own, whatever the engine does."""
        return self._scope.open_loop

    def plain(self, replication: int) -> Mapping[str, float]:
        """Figures of plain decoding."""
        return steady_figures(self._plain_record(replication), self._scope, keep_latencies=True)

    def plain_is_saturated(self, replications: int) -> bool:
        """Whether plain decoding cannot serve the load."""
        return above_capacity(map(self._plain_record, range(replications)), self._scope)

    def speculative(
        self, draft_length: int, alpha: float, replication: int, step_scale: float
    ) -> Mapping[str, float]:
        """Figures of the speculative variant; latencies are NaN where it cannot serve the load."""
        variant = (
            self._fitting(self._own_variant) if self.draft_length_varies else self._variant_with(draft_length)
        )
        seed = replication_seed(self.scenario.run.seed, replication)
        record = variant.run(
            traffic_of(self.scenario, replication),
            seed,
            acceptance=acceptance_at(variant, alpha),
            step_scale=step_scale,
            scales_decodes_only=True,
        )
        return steady_figures(record, variant.measurement_scope)

    @property
    def beyond_drafter(self) -> str | None:
        """A note on the requests that outgrow the drafter's context; None where no request does."""
        return self._own_variant.beyond_drafter(traffic_of(self.scenario, 0))

    def step_s(self, draft_length: int, batch: float) -> float:
        """Time of a uniform decode step at the workload's mean context, s."""
        variant = self._variant_with(draft_length) if draft_length else self._plain_variant
        batch = min(max(batch, 1.0), float(self._plain_variant.settings.max_num_seqs))
        low = math.floor(batch)
        at_floor, at_ceiling = (
            variant.step_times(sequences, self._context_tokens, draft_length)["total"]
            for sequences in (low, math.ceil(batch))
        )
        return at_floor + (at_ceiling - at_floor) * (batch - low)

    @cached_property
    def _context_tokens(self) -> float:
        return traffic_of(self.scenario, 0).mean_context_tokens

    def _plain_record(self, replication: int) -> RunRecord:
        if replication not in self._plain:
            seed = replication_seed(self.scenario.run.seed, replication)
            self._plain[replication] = self._plain_variant.run(traffic_of(self.scenario, replication), seed)
        return self._plain[replication]

    @cached_property
    def _own_variant(self) -> CompiledVariant:
        return CompiledVariant.compile(self.scenario, self.variant)

    def _variant_with(self, draft_length: int) -> CompiledVariant:
        if draft_length not in self._speculative:
            variant = CompiledVariant.compile(self.scenario, self.variant, draft_length)
            self._speculative[draft_length] = self._fitting(variant)
        return self._speculative[draft_length]

    def _fitting(self, variant: CompiledVariant) -> CompiledVariant:
        shortage = shortage_of(variant)
        if shortage is not None:
            raise DoesNotFitError(shortage)
        return variant


def _shortened(scenario: Scenario) -> Scenario:
    arrivals = scenario.workload.arrivals
    if arrivals.kind != "closed":
        return scenario
    enough = max(_FEWEST_REQUESTS, _ROUNDS_OF_CLIENTS * arrivals.concurrency)
    requests = min(scenario.workload.requests, enough)
    return with_workload(scenario, requests=requests)
