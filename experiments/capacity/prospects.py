"""What surrounds the answer: K schedule, better drafter, break-even acceptance, other GPUs, Pareto front,
notes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from experiments.capacity.answer import BetterDrafter, BreakEvenAlpha
from experiments.capacity.candidates import LONGEST_DRAFT, Candidate, Candidates, setting_label
from experiments.capacity.demand import RATE
from experiments.capacity.grid import LoadPoint, by_draft_length, concurrencies, load_point, pareto
from experiments.capacity.schedule import Schedule, schedule_of
from simulator.errors import InputError
from simulator.results.estimate import Estimate, paired_ratio
from simulator.scenario import assumed_acceptance, with_workload

if TYPE_CHECKING:
    from experiments.capacity.deployment import Deployment
    from experiments.capacity.replica import ReplicaSetting
    from simulator.scenario import Scenario

BETTER_ALPHA = 0.1
"""Gain in α of the better drafter whose value is reported."""
_LONGER_DRAFT = 2
"""Draft tokens that a better drafter may add to K."""
_LONGER_SCHEDULED_DRAFT = 3
"""Draft tokens that a schedule may add to K at small batches."""


def grid(candidates: Candidates, best: Candidate) -> Mapping[int, tuple[LoadPoint, ...]]:
    """Closed loops by draft length for the best variant; empty where its draft length cannot vary."""
    variant = best.setting.variant
    if variant is None or variant.acceptance.model == "fixed":
        return {}
    longest = min(LONGEST_DRAFT, max(7, variant.max_draft_length + _LONGER_SCHEDULED_DRAFT))
    return by_draft_length(candidates, best.setting, longest)


def schedule(
    candidates: Candidates, points: Mapping[int, Sequence[LoadPoint]], deployment: Deployment | None
) -> Schedule | None:
    """The K schedule for the best variant. It has one row unless several rows shorten the mean TPOT at the
    planned load beyond the interval of sampling.

    A larger maximum K changes how the engine pads its steps, which can cost more than a better K gains.
    """
    if not points or deployment is None:
        return None
    single = deployment.setting.draft_length
    batch = deployment.summary.values().get("mean_batch", 1.0)
    schedule = schedule_of(points, single if isinstance(single, int) else None, batch)
    if not isinstance(single, int) or len(schedule.rows) == 1:
        return schedule
    speedup = schedule_speedup(candidates, deployment, schedule)
    is_better = speedup is not None and min(speedup.value, *(speedup.ci95 or ())) > 1
    return schedule if is_better else Schedule(((1, None, single),))


def schedule_speedup(
    candidates: Candidates, deployment: Deployment | None, schedule: Schedule | None
) -> Estimate | None:
    """Mean TPOT at the planned load: with the single draft length ÷ with the schedule."""
    if deployment is None or schedule is None:
        return None
    requests = deployment.capacity.requests
    scheduled = deployment.setting.with_draft_length(schedule.rows)
    times = [
        [run.figures["tpot_s.mean"] for run in candidates.runs_at(setting, deployment.load, requests)]
        for setting in (deployment.setting, scheduled)
    ]
    return paired_ratio(*times)


def alpha_of(candidates: Candidates, setting: ReplicaSetting) -> float | None:
    """The variant's α; None for a replayed trace, which has no α."""
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
    """The best candidate at α + `BETTER_ALPHA`, with the same or a slightly longer draft."""
    alpha, length = alpha_of(candidates, best.setting), best.setting.draft_length
    if alpha is None or alpha + BETTER_ALPHA >= 1 or best.capacity is None:
        return None
    better = replace(best.setting, alpha=alpha + BETTER_ALPHA)
    varies = isinstance(length, int) and not _is_fixed(best.setting)
    lengths = range(length, length + _LONGER_DRAFT + 1) if varies and isinstance(length, int) else ()
    settings = [better.with_draft_length(k) for k in lengths] or [better]
    drafters = (candidates.candidate(candidate) for candidate in settings)
    return BetterDrafter(alpha, alpha + BETTER_ALPHA, min(drafters, key=lambda candidate: candidate.rank))


def _is_fixed(setting: ReplicaSetting) -> bool:
    return setting.variant is not None and setting.variant.acceptance.model == "fixed"


def break_even_alpha(candidates: Candidates, deployment: Deployment | None) -> BreakEvenAlpha | None:
    """The acceptance at which plain decoding and the best variant tie, at one replica's share of the peak."""
    from simulator.breakeven.breakeven import break_even_of
    from simulator.breakeven.simulated_evaluator import SimulatedEvaluator

    if deployment is None or deployment.setting.variant is None:
        return None
    demand, variant = candidates.demand, deployment.setting.variant
    scenario = with_workload(
        candidates.replica(deployment.setting).scenario, requests=2 * deployment.capacity.requests
    )
    evaluator = SimulatedEvaluator(scenario, variant, {demand.kind: deployment.load}, own_draft_length=True)
    metric = "tpot_mean" if demand.kind == RATE else "throughput"
    answer = break_even_of(
        [evaluator], [variant.max_draft_length], [1.0], [metric], candidates.replications, candidates.band
    )
    candidates.report("break-even acceptance")
    row = answer.rows[0]
    return BreakEvenAlpha(row.simulated_alpha, row.scenario_alpha, metric, row.verdict)


def pareto_points(
    candidates: Candidates,
    points: Mapping[int, Sequence[LoadPoint]],
    plains: Sequence[Candidate],
    drafting: Sequence[Candidate],
) -> tuple[LoadPoint, ...]:
    """The Pareto front of tokens/s per GPU against tokens/s per user.

    It is taken over the load, for plain decoding and the best candidate of each variant on every number of
    GPUs.
    """
    points_of_front = [point for row in points.values() for point in row]
    best = [group[0] for group in ranked_by_place(drafting).values()]
    for candidate in (*plains, *best):
        if candidate.capacity is None:
            continue
        replica = candidates.replica(candidate.setting)
        points_of_front += [load_point(replica, load) for load in concurrencies(replica.max_running_requests)]
        candidates.report("Pareto front")
    return pareto(points_of_front)


def ranked_by_place(candidates: Sequence[Candidate]) -> dict[tuple[Any, ...], list[Candidate]]:
    """Candidates by (variant, number of GPUs, kind of GPU), the best first."""
    groups: dict[tuple[Any, ...], list[Candidate]] = {}
    for candidate in sorted(candidates, key=lambda candidate: candidate.rank):
        place = (candidate.setting.name, candidate.setting.tensor_parallel, candidate.setting.gpu)
        groups.setdefault(place, []).append(candidate)
    return groups


def alternatives(
    candidates: Candidates,
    plains: Sequence[Candidate],
    drafting: Sequence[Candidate],
    chosen: Sequence[Candidate],
    schedule: Schedule | None,
) -> tuple[Candidate, ...]:
    """Alternatives to the chosen candidates: the schedule if it changes K, the best candidate of every other
    variant and number of GPUs, and the chosen ones on other kinds of GPU.
    """
    changes = schedule is not None and len(schedule.rows) > 1
    rows = schedule.rows if schedule is not None else ()
    scheduled = (candidates.candidate(chosen[-1].setting.with_draft_length(rows)),) if changes else ()
    alternatives_tried = [*plains, *drafting]
    for gpu in _other_gpus(candidates.scenario):
        ranks = candidates.ranks(gpu)
        for candidate in chosen:
            fitting = [n for n in ranks if n <= candidate.setting.tensor_parallel][-2:] or ranks[:1]
            alternatives_tried += [
                candidates.candidate(candidates.setting(candidate.setting.variant, n, gpu)) for n in fitting
            ]
    chosen_settings = [candidate.setting for candidate in chosen]
    best = (group[0] for group in ranked_by_place(alternatives_tried).values())
    return (*scheduled, *(candidate for candidate in best if candidate.setting not in chosen_settings))


def _other_gpus(scenario: Scenario) -> list[str]:
    """GPUs with a measured profile other than the scenario's."""
    from simulator.costs.profiles import profile_names

    return [name for name in profile_names() if name != scenario.hardware.gpu]


def notes(
    candidates: Candidates,
    scenario: Scenario,
    deployed: Sequence[Deployment | None],
    schedule: Schedule | None,
) -> tuple[str, ...]:
    """Assumptions and caveats behind the figures."""
    from simulator.scenario import engine_preset

    demand = candidates.demand
    texts = []
    _, preset_note = engine_preset(scenario)
    if preset_note:
        texts.append(preset_note)
    assumed = assumed_acceptance(scenario)
    if assumed is not None:
        texts.append(f"provisional: {assumed}")
    if len(demand.rows) > 1:
        hours = sum(seconds for seconds, _ in demand.rows) / 3600
        texts.append(
            f"replicas are for the peak, costs for the mean of the profile, which lasts {hours:.3g} h"
        )
    else:
        texts.append(
            f"{demand.words(demand.peak)} is taken as the peak of a traffic that also falls below it"
        )
    if _other_gpus(candidates.scenario):
        texts.append("an hour of every kind of GPU has the same price here")
    if any(deployment is not None and deployment.replicas > 1 for deployment in deployed):
        texts.append("each replica gets an equal share of the traffic; a router that sees queues does better")
    for deployment in deployed:
        if deployment is None:
            continue
        texts += _request_notes(deployment)
        if not deployment.confirmed:
            limit, value, _ = deployment.worst_limit
            missed = f"the long run misses {limit.label}: {limit.value_text(value)}"
            texts.append(f"{setting_label(deployment.setting)}: {missed}")
    speculative = deployed[-1]
    if schedule is not None and speculative is not None and speculative.setting.variant is not None:
        batch = speculative.summary.values().get("mean_batch", 0.0)
        boundaries = schedule.boundaries_within(batch * 0.8, batch * 1.25)
        if boundaries:
            texts.append(
                f"at the peak about {batch:.0f} requests decode together, near the schedule's change at "
                f"{', '.join(map(str, boundaries))}: K will often change there"
            )
    return tuple(texts)


def _request_notes(deployment: Deployment) -> list[str]:
    figures = deployment.summary.values()
    texts = (
        ("rejected_fraction", "are rejected because they are too long"),
        ("timed_out_fraction", "time out"),
    )
    return [
        f"{setting_label(deployment.setting)}: {figures[path]:.1%} of the requests {text}"
        for path, text in texts
        if figures.get(path, 0.0) > 0
    ]
