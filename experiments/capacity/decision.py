"""The verdict of a plan: at the peak first, then below it.

At the peak the cheaper variant wins if the tokens that a GPU serves within the SLO differ by more than the
band. Otherwise the time per token on equal hardware decides. Where speculation does not win at the peak, it
may still win below some load.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.capacity.demand import gpus_text
from experiments.capacity.load_search import SATURATION
from simulator.results.verdict import LOSES, PAYS, UNDECIDED, judge_speedup
from simulator.units import format_seconds

if TYPE_CHECKING:
    from experiments.capacity.candidates import Candidate
    from experiments.capacity.crossover import Crossover
    from experiments.capacity.demand import Demand
    from experiments.capacity.deployment import Deployment
    from simulator.results.estimate import Estimate
    from simulator.results.verdict import Verdict

ENABLE, ENABLE_BELOW, DO_NOT, MEASURE_FIRST = "ENABLE", "ENABLE BELOW", "DO NOT", "MEASURE FIRST"
SLO_UNREACHABLE = "SLO UNREACHABLE"
PLAIN_VERDICTS = (DO_NOT, SLO_UNREACHABLE)
"""Verdicts that leave speculation off."""

_LEAST_CHANGE = 0.005
"""Smaller relative changes of the cost are not reported."""


@dataclass(frozen=True)
class PlanDecision:
    """`verdict` is ENABLE, ENABLE BELOW X, DO NOT, SLO UNREACHABLE or MEASURE FIRST.

    `below` is X, the load of all replicas.
    """

    verdict: str
    reason: str
    below: float | None = None


def decision_without_slo(plain: Candidate, drafting: Candidate) -> PlanDecision | None:
    """The decision where a candidate misses the SLO at every load; None where both meet it."""
    if plain.replicas is not None and drafting.replicas is not None:
        return None
    reasons = [_failure(candidate) for candidate in (plain, drafting)]
    if plain.replicas is not None:
        return PlanDecision(_unless_near(DO_NOT, drafting), reasons[1])
    if drafting.replicas is not None:
        summary = f"{drafting.setting.name} meets the SLO and plain decoding does not"
        return PlanDecision(_unless_near(ENABLE, plain), f"{summary}: {reasons[0]}")
    verdict = _unless_near(SLO_UNREACHABLE, plain, drafting)
    return PlanDecision(verdict, f"nothing meets the SLO: {'; '.join(reasons)}")


def _unless_near(verdict: str, *failing: Candidate) -> str:
    """`verdict`, or MEASURE FIRST where a failure lies within the cost model's error."""
    near = any(
        candidate.capacity is not None and candidate.capacity.within_model_error for candidate in failing
    )
    return MEASURE_FIRST if near else verdict


def _failure(failing: Candidate) -> str:
    name, why = failing.setting.name, failing.why_not or ""
    return why if why.startswith(name) else f"{name}: {why}"


def decision_unconfirmed(deployment: Deployment) -> PlanDecision | None:
    """The decision where the confirmation run misses the SLO; None where it meets it."""
    if deployment.confirmed:
        return None
    limit, value, _ = deployment.worst_limit
    figures = f"{limit.label} is {limit.value_text(value)} in a long run"
    limit_text = f"the limit is {limit.value_text(limit.maximum)}"
    return PlanDecision(
        MEASURE_FIRST, f"{deployment.setting.name}: {figures}; {limit_text}, too close to decide"
    )


def decide(
    demand: Demand,
    plain: Deployment,
    drafting: Deployment,
    served_tokens_ratio: Estimate | None,
    at_peak: Verdict,
    crossover: Crossover,
    ceiling: float,
    replicas: int,
) -> PlanDecision:
    """The decision where both variants meet the SLO.

    `served_tokens_ratio`: tokens within the SLO per GPU, speculative ÷ plain. `at_peak`: the verdict on both
    deployments at their share of the peak. `crossover` and `ceiling` are loads of one of `replicas`: where
    the variants tie, and the most that speculation serves within the SLO.
    """
    cost_outcome = _cost_outcome(plain, drafting, served_tokens_ratio)
    outcome = at_peak.outcome if cost_outcome == UNDECIDED else cost_outcome
    cost_reason = _cost_text(plain, drafting, served_tokens_ratio)
    latency_reason = _latency_text(plain, drafting, at_peak, outcome)
    first_reason, second_reason = (
        (latency_reason, cost_reason) if cost_outcome == UNDECIDED else (cost_reason, latency_reason)
    )
    if outcome == PAYS:
        caveats = "" if crossover.idle_pays else "; with one request at a time it loses"
        if (drafting.tpot_at_mean_s or 0.0) > (plain.tpot_at_mean_s or 0.0):
            caveats += "; at the mean load it makes tokens slower"
        conjunction = (
            "; but "
            if served_tokens_ratio is not None and cost_outcome == UNDECIDED and served_tokens_ratio.value < 1
            else "; "
        )
        return PlanDecision(ENABLE, f"{first_reason}{conjunction}{second_reason}{caveats}")
    certain_load = min(crossover.certain_below, ceiling) * replicas
    if demand.low < certain_load < demand.peak:
        doubt = "it loses" if outcome == LOSES else "the model cannot decide"
        verdict = f"{ENABLE_BELOW} {demand.words(certain_load)}"
        return PlanDecision(verdict, f"above that load {doubt}: {first_reason}", certain_load)
    return PlanDecision(DO_NOT if outcome == LOSES else MEASURE_FIRST, first_reason)


def _cost_outcome(plain: Deployment, drafting: Deployment, served_tokens_ratio: Estimate | None) -> str:
    """Whether a token costs fewer or more GPU-hours beyond the band; undecided otherwise."""
    saved = plain.gpu_hours_per_million_tokens - drafting.gpu_hours_per_million_tokens
    outcome = judge_speedup(served_tokens_ratio)
    if saved > 0 and outcome == PAYS:
        return PAYS
    return LOSES if saved < 0 and outcome == LOSES else UNDECIDED


def _cost_text(plain: Deployment, drafting: Deployment, served_tokens_ratio: Estimate | None) -> str:
    """`20 GPUs instead of 24, 17% less per token: a GPU serves 1.27 × the tokens (1.1 to 1.4) …`."""
    counts = f"{gpus_text(drafting.gpus)} instead of {plain.gpus}"
    if drafting.gpus == plain.gpus:
        counts = f"{gpus_text(plain.gpus)} in both cases"
    change = drafting.gpu_hours_per_million_tokens / plain.gpu_hours_per_million_tokens - 1
    if abs(change) >= _LEAST_CHANGE:
        counts += f", {abs(change):.0%} {'less' if change < 0 else 'more'} per token"
    if served_tokens_ratio is None:
        return counts
    band = (
        f" ({served_tokens_ratio.band[0]:.2f} to {served_tokens_ratio.band[1]:.2f})"
        if served_tokens_ratio.band
        else ""
    )
    binding = drafting.capacity.limited_by
    limit = "when it is full" if binding == SATURATION else f"within the SLO, where {binding} binds"
    return f"{counts}: a GPU serves {served_tokens_ratio.value:.2f} × the tokens{band} {limit}"


def _latency_text(plain: Deployment, drafting: Deployment, verdict: Verdict, outcome: str | None) -> str:
    """The verdict's sentence without its outcome; bare figures where `outcome` differs from it."""
    if verdict.outcome == outcome:
        return verdict.sentence.replace(f": {verdict.outcome}: ", ": ", 1)
    before, after = (deployment.summary.values()["tpot_s.mean"] for deployment in (plain, drafting))
    return f"mean TPOT {format_seconds(after)} instead of {format_seconds(before)}"
