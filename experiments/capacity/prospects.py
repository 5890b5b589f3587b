"""Around the answer: K schedule, better drafters, break-even acceptance, other GPUs, Pareto front, notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from experiments.capacity.answer import BetterDrafter, BreakEvenAlpha
from experiments.capacity.candidates import LONGEST_DRAFT, Candidate, Candidates, label
from experiments.capacity.demand import RATE
from experiments.capacity.grid import Point, by_draft_length, concurrencies, pareto, point
from experiments.capacity.schedule import MARGIN, Schedule, schedule_of
from simulator.errors import InputError
from simulator.results.estimate import Estimate, paired_ratio
from simulator.scenario import assumed_acceptance, with_workload

if TYPE_CHECKING:
    from experiments.capacity.deployment import Deployment
    from experiments.capacity.replica import Setting
    from simulator.scenario import Scenario

BETTER_BY = 0.1
"""How much better the drafter is whose value is told, in α."""
_LONGER_BY = 2
"""A better drafter may draft so many tokens more."""
_SCHEDULED_LONGER_BY = 3
"""At small batches more drafts pay than at the peak, by so many at least."""


def grid(candidates: Candidates, best: Candidate) -> Mapping[int, tuple[Point, ...]]:
    """Closed loops by draft length for the best variant; empty where it has one draft length only."""
    variant = best.setting.variant
    if variant is None or variant.acceptance.model == "fixed":
        return {}
    longest = min(LONGEST_DRAFT, max(7, variant.max_draft_length + _SCHEDULED_LONGER_BY))
    return by_draft_length(candidates, best.setting, longest)


def schedule(
    candidates: Candidates, points: Mapping[int, Sequence[Point]], chosen: Deployment | None
) -> Schedule | None:
    """The K schedule for the best variant: one row unless several, run as they are, gain somewhere.

    An engine that may draft more pads its steps otherwise, which can cost more than another K gains.
    """
    if not points or chosen is None:
        return None
    single = chosen.setting.draft_length
    batch = chosen.summary.values().get("mean_batch", 1.0)
    found = schedule_of(points, single if isinstance(single, int) else None, batch)
    if not isinstance(single, int) or len(found.rows) == 1:
        return found
    replica = candidates.replica(chosen.setting.with_draft_length(found.rows))
    gains = [
        point(replica, one.concurrency).tokens_per_s / one.tokens_per_s - 1
        for one in points[single]
        if one.concurrency <= max(batch, 1)
    ]
    return found if max(gains) > MARGIN else Schedule(((1, None, single),))


def schedule_speedup(
    candidates: Candidates, chosen: Deployment | None, schedule: Schedule | None
) -> Estimate | None:
    """Mean TPOT at the planned load with the single draft length ÷ with the schedule."""
    if chosen is None or schedule is None:
        return None
    requests = chosen.capacity.requests
    scheduled = chosen.setting.with_draft_length(schedule.rows)
    times = [
        [run.figures["tpot_s.mean"] for run in candidates.runs_at(setting, chosen.load, requests)]
        for setting in (chosen.setting, scheduled)
    ]
    return paired_ratio(*times)


def alpha_of(candidates: Candidates, setting: Setting) -> float | None:
    """The variant's α; None for a replayed trace, which has none."""
    from simulator.acceptance import acceptance_model

    variant = setting.variant
    if variant is None:
        return None
    try:
        return acceptance_model(
            variant.acceptance, variant.max_draft_length, candidates.scenario.base_dir
        ).alpha
    except InputError:
        return None


def better_drafter(candidates: Candidates, best: Candidate) -> BetterDrafter | None:
    """What α + `BETTER_BY` does, at the same or a slightly longer draft length."""
    alpha, length = alpha_of(candidates, best.setting), best.setting.draft_length
    if alpha is None or alpha + BETTER_BY >= 1 or best.capacity is None:
        return None
    better = replace(best.setting, alpha=alpha + BETTER_BY)
    varies = isinstance(length, int) and not _is_fixed(best.setting)
    lengths = range(length, length + _LONGER_BY + 1) if varies and isinstance(length, int) else ()
    settings = [better.with_draft_length(k) for k in lengths] or [better]
    tried = (candidates.tried(one) for one in settings)
    return BetterDrafter(alpha, alpha + BETTER_BY, min(tried, key=lambda one: one.rank))


def _is_fixed(setting: Setting) -> bool:
    return setting.variant is not None and setting.variant.acceptance.model == "fixed"


def break_even_alpha(candidates: Candidates, chosen: Deployment | None) -> BreakEvenAlpha | None:
    """The acceptance at which plain decoding and the best variant tie, at one replica's part of the peak."""
    from simulator.breakeven.breakeven import break_even_of
    from simulator.breakeven.simulated_evaluator import SimulatedEvaluator

    if chosen is None or chosen.setting.variant is None:
        return None
    demand, variant = candidates.demand, chosen.setting.variant
    one = with_workload(candidates.replica(chosen.setting).scenario, requests=2 * chosen.capacity.requests)
    evaluator = SimulatedEvaluator(one, variant, {demand.kind: chosen.load}, own_draft_length=True)
    metric = "tpot_mean" if demand.kind == RATE else "throughput"
    answer = break_even_of(
        [evaluator], [variant.max_draft_length], [1.0], [metric], candidates.replications, candidates.band
    )
    candidates.tell("break-even acceptance")
    row = answer.rows[0]
    return BreakEvenAlpha(row.simulated_alpha, row.scenario_alpha, metric, row.verdict)


def front(
    candidates: Candidates,
    points: Mapping[int, Sequence[Point]],
    plains: Sequence[Candidate],
    drafting: Sequence[Candidate],
) -> tuple[Point, ...]:
    """The Pareto front of tokens/s per GPU against tokens/s per user: on every number of GPUs plain decoding
    and the best of each variant, over the load.
    """
    found = [one for row in points.values() for one in row]
    best = [group[0] for group in by_place(drafting).values()]
    for candidate in (*plains, *best):
        if candidate.capacity is None:
            continue
        replica = candidates.replica(candidate.setting)
        found += [point(replica, load) for load in concurrencies(replica.seats)]
        candidates.tell("Pareto front")
    return pareto(found)


def by_place(tried: Sequence[Candidate]) -> dict[tuple[Any, ...], list[Candidate]]:
    """Candidates by variant, GPUs and their kind, the best first."""
    groups: dict[tuple[Any, ...], list[Candidate]] = {}
    for one in sorted(tried, key=lambda candidate: candidate.rank):
        place = (one.setting.name, one.setting.tensor_parallel, one.setting.gpu)
        groups.setdefault(place, []).append(one)
    return groups


def alternatives(
    candidates: Candidates,
    plains: Sequence[Candidate],
    drafting: Sequence[Candidate],
    chosen: Sequence[Candidate],
    schedule: Schedule | None,
) -> tuple[Candidate, ...]:
    """The schedule where K changes in it, the best of every other variant and number of GPUs, the
    chosen ones on
    other kinds of GPU.
    """
    changes = schedule is not None and len(schedule.rows) > 1
    rows = schedule.rows if schedule is not None else ()
    scheduled = (candidates.tried(chosen[-1].setting.with_draft_length(rows)),) if changes else ()
    tried = [*plains, *drafting]
    for gpu in _other_gpus(candidates.scenario):
        ranks = candidates.ranks(gpu)
        for one in chosen:
            fitting = [n for n in ranks if n <= one.setting.tensor_parallel][-2:] or ranks[:1]
            tried += [candidates.tried(candidates.setting(one.setting.variant, n, gpu)) for n in fitting]
    taken = [one.setting for one in chosen]
    best = (group[0] for group in by_place(tried).values())
    return (*scheduled, *(one for one in best if one.setting not in taken))


def _other_gpus(scenario: Scenario) -> list[str]:
    """GPUs with a measured profile, beside the scenario's own."""
    from simulator.costs.profiles import profile_names

    return [name for name in profile_names() if name != scenario.hardware.gpu]


def notes(
    candidates: Candidates,
    scenario: Scenario,
    deployed: Sequence[Deployment | None],
    schedule: Schedule | None,
) -> tuple[str, ...]:
    """What a reader must know before he trusts the figures."""
    from simulator.scenario import engine_preset

    demand = candidates.demand
    found = []
    _, of_preset = engine_preset(scenario)
    if of_preset:
        found.append(of_preset)
    assumed = assumed_acceptance(scenario)
    if assumed is not None:
        found.append(f"provisional: {assumed}")
    if len(demand.rows) > 1:
        hours = sum(seconds for seconds, _ in demand.rows) / 3600
        found.append(f"replicas for the peak; costs at the mean of the profile, taken as {hours:.3g} h long")
    else:
        found.append(
            f"{demand.words(demand.peak)} is taken as the peak of a traffic that also falls below it"
        )
    if _other_gpus(candidates.scenario):
        found.append("every kind of GPU is taken at the same price an hour")
    if any(one is not None and one.replicas > 1 for one in deployed):
        found.append("each replica gets an equal part of the traffic; a router that sees queues does better")
    for one in deployed:
        if one is None:
            continue
        found += _of_run(one)
        if not one.confirmed:
            limit, value, _ = one.worst
            found.append(f"{label(one.setting)}: the long run misses {limit.label}: {limit.shown(value)}")
    last = deployed[-1]
    if schedule is not None and last is not None and last.setting.variant is not None:
        batch = last.summary.values().get("mean_batch", 0.0)
        near = schedule.boundaries_within(batch * 0.8, batch * 1.25)
        if near:
            found.append(
                f"at the peak about {batch:.0f} requests decode together, near the schedule's change at "
                f"{', '.join(map(str, near))}: K will often change there"
            )
    return tuple(found)


def _of_run(one: Deployment) -> list[str]:
    figures = one.summary.values()
    texts = (("rejected_fraction", "are left out, as they are too long"), ("timed_out_fraction", "give up"))
    return [
        f"{label(one.setting)}: {figures[path]:.1%} of the requests {text}"
        for path, text in texts
        if figures.get(path, 0.0) > 0
    ]
