"""`plan(scenario, …)`: replicas and cost of a traffic within its SLO, with and without speculation, and
whether to enable it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, NamedTuple

from experiments.capacity import prospects
from experiments.capacity.answer import Plan
from experiments.capacity.candidates import Candidate, Candidates, label
from experiments.capacity.crossover import Crossover, crossover
from experiments.capacity.decision import Decision, decide, when_not_confirmed, when_one_fails
from experiments.capacity.demand import RATE, Demand, demand_of
from experiments.capacity.deployment import Deployment, deploy, work_ratio
from experiments.capacity.mixed import mixed_fleet
from experiments.capacity.replica import FULL
from experiments.capacity.slo import slo_of
from simulator.errors import InputError, Problem
from simulator.scenario import with_workload

if TYPE_CHECKING:
    from simulator.results.estimate import Estimate
    from simulator.results.verdict import Verdict
    from simulator.runs.replications import Progress
    from simulator.scenario import Scenario

_FEWEST_FOR_PLAN = 5
"""Fewer make intervals so wide that replicas are planned for nothing but them."""
_LENGTHS_DRAWN = 4000
"""Requests from which the mean output length is taken."""
_PARTS_PER_VARIANT = 6
_PARTS_AFTER = 12
"""About how many parts a search and what follows it have, for the progress bar."""


def plan(
    scenario: Scenario,
    slo: str | None = None,
    rate_per_s: float | None = None,
    gpu_hour_cost: float | None = None,
    progress: Progress | None = None,
) -> Plan:
    """The plan for a scenario's traffic, or for Poisson arrivals at `rate_per_s`.

    `slo` as in `--slo`, default the scenario's own. `gpu_hour_cost` in any currency; without it costs are in
    GPU-hours. Load is that of all replicas together. Raises InputError for what cannot be planned.
    """
    from simulator.results.summary import STEP_BAND

    _check(scenario, gpu_hour_cost)
    limits, demand = slo_of(scenario, slo), demand_of(scenario, rate_per_s)
    tell = _Teller(progress)
    replications = max(scenario.run.replications, _FEWEST_FOR_PLAN)
    drawn = with_workload(scenario, requests=_LENGTHS_DRAWN)
    candidates = Candidates(drawn, limits, demand, replications, STEP_BAND, tell)
    answer = _planned(candidates, tell, scenario, gpu_hour_cost)
    tell.end()
    return answer


def _planned(candidates: Candidates, tell: _Teller, scenario: Scenario, gpu_hour_cost: float | None) -> Plan:
    ranks = candidates.ranks()
    tell.expect(len(ranks) * (1 + _PARTS_PER_VARIANT * len(scenario.speculation)) + _PARTS_AFTER)
    plains = [candidates.tried(candidates.setting(None, n)) for n in ranks]
    _require_figures(candidates, plains[0])
    drafting = [
        one for n in ranks for variant in scenario.speculation for one in candidates.draft_lengths(variant, n)
    ]
    plain, best = (min(group, key=lambda one: one.rank) for group in (plains, drafting))
    before, after = (deploy(candidates, one) if one.replicas is not None else None for one in (plain, best))
    decided = _decided(candidates, plain, best, before, after, drafting)
    points = prospects.grid(candidates, best) if after is not None else {}
    schedule = prospects.schedule(candidates, points, after)
    return Plan(
        demand=candidates.demand,
        slo=candidates.slo,
        decision=decided.decision,
        best=best,
        plain=before,
        speculative=after,
        work_ratio=decided.work,
        schedule=schedule,
        schedule_speedup=prospects.schedule_speedup(candidates, after, schedule),
        crossing=decided.crossing,
        crossing_tensor_parallel=decided.tensor_parallel,
        break_even=prospects.break_even_alpha(candidates, after),
        better_drafter=prospects.better_drafter(candidates, best),
        mixed=mixed_fleet(candidates, (plain.setting, best.setting)),
        front=prospects.front(candidates, points, plains, drafting),
        alternatives=prospects.alternatives(candidates, plains, drafting, (plain, best), schedule),
        gpu_hour_cost=gpu_hour_cost,
        notes=prospects.notes(candidates, scenario, (before, after), schedule),
        provenance=_provenance(scenario, candidates),
    )


class _Decided(NamedTuple):
    """The decision with what it rests on; `tensor_parallel` is that of the crossing."""

    decision: Decision
    crossing: Crossover | None = None
    tensor_parallel: int | None = None
    work: Estimate | None = None


def _decided(
    candidates: Candidates,
    plain: Candidate,
    best: Candidate,
    before: Deployment | None,
    after: Deployment | None,
    drafting: Sequence[Candidate],
) -> _Decided:
    """Both variants at the peak, then the load at which they tie: on the GPUs of the one that is cheaper."""
    near = [when_not_confirmed(one) for one in (before, after) if one is not None]
    failed = next((found for found in near if found is not None), None) or when_one_fails(plain, best)
    if failed is not None or before is None or after is None:
        assert failed is not None
        return _Decided(failed)
    work = work_ratio(candidates, before, after)
    at_peak = _at_peak(candidates.demand, before, after)
    cheaper = after if after.gpu_hours_per_million_tokens <= before.gpu_hours_per_million_tokens else before
    ranks, replicas = cheaper.setting.tensor_parallel, cheaper.replicas
    there = min((one for one in drafting if one.setting.tensor_parallel == ranks), key=lambda one: one.rank)
    if there.replicas is None:  # there speculation does not fit, or keep the SLO
        there, ranks, replicas = best, best.setting.tensor_parallel, after.replicas
    crossing = crossover(
        candidates.replica(candidates.setting(None, ranks)),
        candidates.replica(there.setting),
        candidates.demand.kind,
        candidates.replications,
        candidates.band,
    )
    candidates.tell("crossover")
    assert there.capacity is not None
    assert there.capacity.amount is not None
    ceiling = there.capacity.amount.value
    decision = decide(candidates.demand, before, after, work, at_peak, crossing, ceiling, replicas)
    return _Decided(decision, crossing, ranks, work)


def _at_peak(demand: Demand, before: Deployment, after: Deployment) -> Verdict:
    """The one verdict at each one's part of the peak. Where users are spread over other numbers of replicas,
    what a replica emits says nothing, and the time per token of a user decides.
    """
    from simulator.results.summary import compare
    from simulator.results.verdict import explain

    name = label(after.setting, ranks=False)
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
        message = "is empty, so there is nothing to plan with"
        problems.append(Problem(field="speculation", message=message, allowed="one variant or more"))
    problems += [
        Problem(
            field=f"speculation.{variant.name}.draft_length",
            value=0,
            message="drafts nothing",
            allowed="1 or more",
        )
        for variant in scenario.speculation
        if variant.max_draft_length == 0
    ]
    if gpu_hour_cost is not None and not 0 < gpu_hour_cost < math.inf:
        message = "is no price of a GPU hour"
        problem = Problem(
            file="--gpu-hour-cost", value=gpu_hour_cost, message=message, allowed="a number above 0"
        )
        problems.append(problem)
    if problems:
        raise InputError(problems)
    for variant in scenario.speculation:  # what a variant cannot do is said before a long search, not in it
        CompiledVariant.compile(scenario, variant)


def _require_figures(candidates: Candidates, plain: Candidate) -> None:
    """Raises InputError for a limit on something that this traffic does not have."""
    if plain.capacity is None:
        ranks = candidates.scenario.hardware.tensor_parallel
        raise InputError(Problem(field="hardware.tensor_parallel", value=ranks, message=plain.why_not or ""))
    figures = candidates.replica(plain.setting).seen(FULL, 1).figures
    lacking = [limit for limit in candidates.slo.limits if not math.isfinite(limit.of(figures).value)]
    if lacking:
        what = "has no figure in this traffic: answers of one token, or too few requests of the class"
        allowed = "limits on what the traffic has"
        raise InputError(
            [Problem(field="slo", value=one.label, message=what, allowed=allowed) for one in lacking]
        )


def _provenance(scenario: Scenario, candidates: Candidates) -> dict[str, object]:
    return {
        "version": version("decodesim"),
        "seed": scenario.run.seed,
        "replications": candidates.replications,
        "scenario_sha256": scenario.scenario_sha256,
    }


class _Teller:
    """Counts the parts for a progress callback; their number is a guess that grows when it was too small."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress, self.done, self.total = progress, 0, 1

    def expect(self, total: int) -> None:
        """So many parts are expected."""
        self.total = total

    def end(self) -> None:
        """All parts are done."""
        if self.progress is not None:
            self.progress(self.done, self.done, "done")

    def __call__(self, what: str) -> None:
        self.done += 1
        self.total = max(self.total, self.done + 1)
        if self.progress is not None:
            self.progress(self.done, self.total, what)
