"""`plan(scenario, …)`: replicas and cost of a traffic within its SLO, and whether to enable speculation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, NamedTuple

from experiments.capacity import prospects
from experiments.capacity.answer import CapacityPlan
from experiments.capacity.candidates import Candidate, Candidates, setting_label
from experiments.capacity.crossover import Crossover, find_crossover
from experiments.capacity.decision import PlanDecision, decide, decision_unconfirmed, decision_without_slo
from experiments.capacity.demand import RATE, Demand, demand_of
from experiments.capacity.deployment import Deployment, deploy, served_tokens_ratio
from experiments.capacity.launch import launches
from experiments.capacity.mixed import mixed_fleet
from experiments.capacity.replica import FULL
from experiments.capacity.slo import slo_of
from experiments.token_cost import price_problem
from simulator.errors import InputError, Problem
from simulator.scenario import with_workload

if TYPE_CHECKING:
    from simulator.results.estimate import Estimate
    from simulator.results.verdict import Verdict
    from simulator.runs.replications import Progress
    from simulator.scenario import Scenario

_MIN_REPLICATIONS = 5
"""With fewer replications, wide sampling intervals alone would add replicas."""
_SAMPLED_REQUESTS = 4000
"""Requests whose mean output length is used."""
_PARTS_PER_VARIANT = 6
_FINAL_PARTS = 12
"""Approximate numbers of parts of a search and of the work after it, for the progress bar."""


def plan(
    scenario: Scenario,
    slo: str | None = None,
    rate_per_s: float | None = None,
    gpu_hour_cost: float | None = None,
    progress: Progress | None = None,
) -> CapacityPlan:
    """The plan for a scenario's traffic, or for Poisson arrivals at `rate_per_s`.

    `slo` has the syntax of `--slo` and defaults to the scenario's. `gpu_hour_cost` is in any currency;
    without it costs are GPU-hours. Loads are those of all replicas together. Raises InputError.
    """
    from simulator.results.summary import STEP_BAND

    _check(scenario, gpu_hour_cost)
    limits, demand = slo_of(scenario, slo), demand_of(scenario, rate_per_s)
    progress_counter = _PartCounter(progress)
    replications = max(scenario.run.replications, _MIN_REPLICATIONS)
    sampled_scenario = with_workload(scenario, requests=_SAMPLED_REQUESTS)
    candidates = Candidates(sampled_scenario, limits, demand, replications, STEP_BAND, progress_counter)
    answer = _capacity_plan(candidates, progress_counter, scenario, gpu_hour_cost)
    progress_counter.end()
    return answer


def _capacity_plan(
    candidates: Candidates, progress_counter: _PartCounter, scenario: Scenario, gpu_hour_cost: float | None
) -> CapacityPlan:
    ranks = candidates.ranks()
    progress_counter.expect(len(ranks) * (1 + _PARTS_PER_VARIANT * len(scenario.speculation)) + _FINAL_PARTS)
    plains = [candidates.candidate(candidates.setting(None, n)) for n in ranks]
    _require_figures(candidates, plains[0])
    drafting = [
        candidate
        for n in ranks
        for variant in scenario.speculation
        for candidate in candidates.draft_lengths(variant, n)
    ]
    plain, best = (min(group, key=lambda candidate: candidate.rank) for group in (plains, drafting))
    before, after = (
        deploy(candidates, candidate) if candidate.replicas is not None else None
        for candidate in (plain, best)
    )
    basis = _decision_basis(candidates, plain, best, before, after, drafting)
    points = prospects.grid(candidates, best) if after is not None else {}
    schedule = prospects.schedule(candidates, points, after)
    return CapacityPlan(
        demand=candidates.demand,
        slo=candidates.slo,
        decision=basis.decision,
        best=best,
        plain=before,
        speculative=after,
        served_tokens_ratio=basis.served_tokens_ratio,
        schedule=schedule,
        schedule_speedup=prospects.schedule_speedup(candidates, after, schedule),
        crossover=basis.crossover,
        crossover_tensor_parallel=basis.tensor_parallel,
        break_even=prospects.break_even_alpha(candidates, after),
        better_drafter=prospects.better_drafter(candidates, best),
        mixed=mixed_fleet(candidates, (plain.setting, best.setting)),
        pareto_front=prospects.pareto_points(candidates, points, plains, drafting),
        alternatives=prospects.alternatives(candidates, plains, drafting, (plain, best), schedule),
        engine=launches(scenario, basis.decision.verdict, plain.setting, best.setting, schedule),
        gpu_hour_cost=gpu_hour_cost,
        notes=prospects.notes(candidates, scenario, (before, after), schedule),
        provenance=_provenance(scenario, candidates),
    )


class _DecisionBasis(NamedTuple):
    """The decision and its grounds. `tensor_parallel` belongs to the crossover."""

    decision: PlanDecision
    crossover: Crossover | None = None
    tensor_parallel: int | None = None
    served_tokens_ratio: Estimate | None = None


def _decision_basis(
    candidates: Candidates,
    plain: Candidate,
    best: Candidate,
    before: Deployment | None,
    after: Deployment | None,
    drafting: Sequence[Candidate],
) -> _DecisionBasis:
    """Compare both variants at the peak, then find where they tie on the GPUs of the cheaper one."""
    unconfirmed = [
        decision_unconfirmed(deployment) for deployment in (before, after) if deployment is not None
    ]
    failure = next(
        (decision for decision in unconfirmed if decision is not None), None
    ) or decision_without_slo(plain, best)
    if failure is not None or before is None or after is None:
        assert failure is not None
        return _DecisionBasis(failure)
    ratio = served_tokens_ratio(candidates, before, after)
    at_peak = _at_peak(candidates.demand, before, after)
    cheaper = after if after.gpu_hours_per_million_tokens <= before.gpu_hours_per_million_tokens else before
    ranks, replicas = cheaper.setting.tensor_parallel, cheaper.replicas
    speculative = min(
        (candidate for candidate in drafting if candidate.setting.tensor_parallel == ranks),
        key=lambda candidate: candidate.rank,
    )
    if speculative.replicas is None:  # with these GPUs speculation does not fit, or misses the SLO
        speculative, ranks, replicas = best, best.setting.tensor_parallel, after.replicas
    crossover = find_crossover(
        candidates.replica(candidates.setting(None, ranks)),
        candidates.replica(speculative.setting),
        candidates.demand.kind,
        candidates.replications,
        candidates.band,
    )
    candidates.report("crossover")
    assert speculative.capacity is not None
    assert speculative.capacity.amount is not None
    ceiling = speculative.capacity.amount.value
    decision = decide(candidates.demand, before, after, ratio, at_peak, crossover, ceiling, replicas)
    return _DecisionBasis(decision, crossover, ranks, ratio)


def _at_peak(demand: Demand, before: Deployment, after: Deployment) -> Verdict:
    """The verdict on both deployments, each at its share of the peak.

    Where users are spread over different numbers of replicas, throughputs of one replica are not comparable,
    and the time per token decides.
    """
    from simulator.results.comparison import compare
    from simulator.results.verdict import explain

    name = setting_label(after.setting, ranks=False)
    compared = compare(name, before.measurement, after.measurement)
    alike = (before.load, before.setting.tensor_parallel) == (after.load, after.setting.tensor_parallel)
    if demand.kind == RATE or alike:
        return compared.verdict
    figures = (before.summary.values(), after.summary.values())
    return explain(name, "TPOT speedup", compared.ratios["tpot_mean_speedup"], *figures)


def _check(scenario: Scenario, gpu_hour_cost: float | None) -> None:
    from simulator.runs.variant import CompiledVariant

    problems = []
    if not scenario.speculation:
        message = "is empty, so there is nothing to compare with plain decoding"
        problems.append(Problem(field="speculation", message=message, allowed="one variant or more"))
    problems += [
        Problem(
            field=f"speculation.{variant.name}.draft_length",
            value=0,
            message="is 0, so nothing is drafted",
            allowed="1 or more",
        )
        for variant in scenario.speculation
        if variant.max_draft_length == 0
    ]
    if (problem := price_problem(gpu_hour_cost)) is not None:
        problems.append(problem)
    if problems:
        raise InputError(problems)
    for variant in scenario.speculation:  # reports what a variant cannot do before the long search
        CompiledVariant.compile(scenario, variant)


def _require_figures(candidates: Candidates, plain: Candidate) -> None:
    """Raises InputError for a limit on a figure that this traffic does not have."""
    if plain.capacity is None:
        ranks = candidates.scenario.hardware.tensor_parallel
        raise InputError(Problem(field="hardware.tensor_parallel", value=ranks, message=plain.why_not or ""))
    figures = candidates.replica(plain.setting).run_at(FULL, 1).figures
    unmeasured = [limit for limit in candidates.slo.limits if not math.isfinite(limit.check(figures).value)]
    if unmeasured:
        message = "has no figure in this traffic: answers of one token, or too few requests of the class"
        allowed = "limits on figures that the traffic has"
        raise InputError(
            [
                Problem(field="slo", value=limit.label, message=message, allowed=allowed)
                for limit in unmeasured
            ]
        )


def _provenance(scenario: Scenario, candidates: Candidates) -> dict[str, object]:
    return {
        "version": version("decodesim"),
        "seed": scenario.run.seed,
        "replications": candidates.replications,
        "scenario_sha256": scenario.scenario_sha256,
    }


class _PartCounter:
    """Counts finished parts for a progress callback.

    The total is an estimate that grows if it was too small.
    """

    def __init__(self, progress: Progress | None) -> None:
        self.progress, self.done, self.total = progress, 0, 1

    def expect(self, total: int) -> None:
        """Set the expected number of parts."""
        self.total = total

    def end(self) -> None:
        """Report that all parts are done."""
        if self.progress is not None:
            self.progress(self.done, self.done, "done")

    def __call__(self, part: str) -> None:
        self.done += 1
        self.total = max(self.total, self.done + 1)
        if self.progress is not None:
            self.progress(self.done, self.total, part)
