"""The verdict of a plan, from the one verdict on speedups: at the peak first, then below it.

At the peak the cheaper way wins where the tokens that a GPU serves within the SLO differ by more than the
band; else users decide, who get their tokens sooner or later on equal hardware. Where speculation does not
win at the peak it may still win below some load.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.capacity.demand import shown_gpus
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

_LEAST_CHANGE = 0.005
"""A smaller change of the cost is not told."""


@dataclass(frozen=True)
class Decision:
    """`verdict` as people read it: ENABLE, ENABLE BELOW X, DO NOT or MEASURE FIRST; `below` is X, the load of
    all replicas together.
    """

    verdict: str
    reason: str
    below: float | None = None


def when_one_fails(plain: Candidate, drafting: Candidate) -> Decision | None:
    """The decision where a way does not meet the SLO at any load; None where both do."""
    if plain.replicas is not None and drafting.replicas is not None:
        return None
    said = [_said(one) for one in (plain, drafting)]
    if plain.replicas is not None:
        return Decision(_unless_near(DO_NOT, drafting), said[1])
    if drafting.replicas is not None:
        kept = f"{drafting.setting.name} keeps the SLO, and plain decoding does not"
        return Decision(_unless_near(ENABLE, plain), f"{kept}: {said[0]}")
    return Decision(_unless_near(DO_NOT, plain, drafting), f"nothing meets the SLO: {'; '.join(said)}")


def _unless_near(verdict: str, *failing: Candidate) -> str:
    """`verdict`, unless a failure lies within the cost model's error."""
    near = any(one.capacity is not None and one.capacity.perhaps for one in failing)
    return MEASURE_FIRST if near else verdict


def _said(failing: Candidate) -> str:
    name, why = failing.setting.name, failing.why_not or ""
    return why if why.startswith(name) else f"{name}: {why}"


def when_not_confirmed(one: Deployment) -> Decision | None:
    """The decision where the long run misses the SLO after all, however many replicas there are."""
    if one.confirmed:
        return None
    limit, value, _ = one.worst
    what = f"{limit.label} is {limit.shown(value)} in a long run, and the limit {limit.shown(limit.most)}"
    return Decision(MEASURE_FIRST, f"{one.setting.name}: {what}: too near to tell")


def decide(
    demand: Demand,
    plain: Deployment,
    drafting: Deployment,
    work: Estimate | None,
    at_peak: Verdict,
    crossing: Crossover,
    ceiling: float,
    replicas: int,
) -> Decision:
    """The decision where both keep the SLO.

    `work`: tokens within the SLO per GPU, speculative ÷ plain. `at_peak`: the one verdict on both deployments
    at their part of the peak. `crossing` and `ceiling` are of one of `replicas`: where the variants
    tie, and the
    most that speculation carries within the SLO.
    """
    on_cost = _on_cost(plain, drafting, work)
    outcome = at_peak.outcome if on_cost == UNDECIDED else on_cost
    cost = _cost_words(plain, drafting, work)
    latency = _latency_words(plain, drafting, at_peak, outcome)
    strongest, other = (latency, cost) if on_cost == UNDECIDED else (cost, latency)
    if outcome == PAYS:
        but = "" if crossing.idle_pays else "; with one request at a time it loses, which the schedule heeds"
        if (drafting.tpot_at_mean_s or 0.0) > (plain.tpot_at_mean_s or 0.0):
            but += "; at the mean load tokens take longer with it"
        though = "; but " if work is not None and on_cost == UNDECIDED and work.value < 1 else "; "
        return Decision(ENABLE, f"{strongest}{though}{other}{but}")
    sure = min(crossing.surely_below, ceiling) * replicas
    if demand.low < sure < demand.peak:
        why = "it loses" if outcome == LOSES else "the model cannot tell"
        verdict = f"{ENABLE_BELOW} {demand.words(sure)}"
        return Decision(verdict, f"above that load {why}: {strongest}", sure)
    return Decision(DO_NOT if outcome == LOSES else MEASURE_FIRST, strongest)


def _on_cost(plain: Deployment, drafting: Deployment, work: Estimate | None) -> str:
    """Whether a token takes fewer GPU-hours or more, beyond the band; undecided where neither is sure."""
    saved = plain.gpu_hours_per_million_tokens - drafting.gpu_hours_per_million_tokens
    judged = judge_speedup(work)
    if saved > 0 and judged == PAYS:
        return PAYS
    return LOSES if saved < 0 and judged == LOSES else UNDECIDED


def _cost_words(plain: Deployment, drafting: Deployment, work: Estimate | None) -> str:
    """`20 GPUs in place of 24, 17% less for a token: a GPU serves 1.27 × the tokens (1.1 to 1.4) …`."""
    counts = f"{shown_gpus(drafting.gpus)} in place of {plain.gpus}"
    if drafting.gpus == plain.gpus:
        counts = f"{shown_gpus(plain.gpus)} either way"
    change = drafting.gpu_hours_per_million_tokens / plain.gpu_hours_per_million_tokens - 1
    if abs(change) >= _LEAST_CHANGE:
        counts += f", {abs(change):.0%} {'less' if change < 0 else 'more'} for a token"
    if work is None:
        return counts
    band = f" ({work.band[0]:.2f} to {work.band[1]:.2f})" if work.band else ""
    binding = drafting.capacity.limited_by
    limit = "when it is full" if binding == SATURATION else f"within the SLO, where {binding} binds"
    return f"{counts}: a GPU serves {work.value:.2f} × the tokens{band} {limit}"


def _latency_words(plain: Deployment, drafting: Deployment, verdict: Verdict, outcome: str) -> str:
    """The one verdict's sentence without its outcome, which stands before it; figures where it differs."""
    if verdict.outcome == outcome:
        return verdict.sentence.replace(f": {verdict.outcome}: ", ": ", 1)
    before, after = (one.summary.values()["tpot_s.mean"] for one in (plain, drafting))
    return f"mean TPOT {format_seconds(after)} in place of {format_seconds(before)}"
