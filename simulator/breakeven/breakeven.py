"""The acceptance that speculation needs to pay: linear, geometric and simulated, by load, draft length,
target and metric.

The closed forms take the overhead o = T_speculative / T_plain − 1 of uniform steps at the mean batch and
context of plain decoding: *linear* is the acceptance rate at this draft length, an identity; *geometric* the
i.i.d. acceptance α with E(α) = target · (1 + o) (`theory.py`). *Simulated* is the α at which the simulated
ratio reaches the target on common random numbers, with everything that the closed forms leave out. Compare α
with α only: an acceptance rate is another figure. For acceptance models with more than α the family is a
common logit shift of the scenario's conditionals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from simulator.breakeven.answer import BreakEven, BreakEvenRow
from simulator.breakeven.case import BreakEvenCase
from simulator.breakeven.evaluator import DoesNotFitError, Evaluator, Load
from simulator.breakeven.theory import best_draft_length_of, tokens_per_verify
from simulator.errors import InputError, Problem, unknown_name
from simulator.results.catalogue import COMPARED_BY_WORD

if TYPE_CHECKING:
    from simulator.runs.replications import Progress
    from simulator.scenario import Scenario

SHOWN_ALPHAS = (0.5, 0.7, 0.9)
"""Acceptances for which the best draft length is listed."""
_LONGEST_DRAFT = 16
_SLOPE_DRAFTS = 8
"""The marginal cost of a draft token is the mean over draft lengths 1 to this."""
FEWEST_FOR_BREAK_EVEN = 3
"""A break-even without an interval has no verdict, so a single replication is not enough."""


def breakeven(
    scenario: Scenario,
    loads: Sequence[Load] | None = None,
    draft_lengths: Sequence[int] | None = None,
    target_speedups: Sequence[float] = (1.0,),
    metrics: Sequence[str] | None = None,
    progress: Progress | None = None,
    variant: str | None = None,
    alphas: Sequence[float] = (),
) -> BreakEven:
    """Return the break-even of a speculative variant of a scenario: the first, or `variant` by name.

    `loads` (`{"concurrency": 64}` or `{"rate_per_s": 2.5}`) and `draft_lengths` default to the scenario's
    own; `metrics` to throughput, at offered rates mean TPOT too, since there both variants may serve all.
    A variant whose draft length varies with the batch keeps that, and its rows have no closed forms.
    Rows also give the speedup at each of `alphas`.
    Raises InputError for what cannot be asked or does not exist.
    """
    from simulator.breakeven.simulated_evaluator import SimulatedEvaluator
    from simulator.results.summary import STEP_BAND
    from simulator.scenario import chosen_variant, engine_preset

    chosen = chosen_variant(scenario, variant, "break even")
    lengths = (chosen.max_draft_length,) if draft_lengths is None else tuple(draft_lengths)
    check_questions(lengths, target_speedups, metrics or (), alphas)
    own_draft_length = draft_lengths is None
    evaluators = [
        SimulatedEvaluator(scenario, chosen, load, own_draft_length)
        for load in ([None] if loads is None else loads)
    ]
    if metrics is None:
        metrics = (
            ("throughput", "tpot_mean")
            if all(evaluator.open_loop for evaluator in evaluators)
            else ("throughput",)
        )
    replications = max(scenario.run.replications, FEWEST_FOR_BREAK_EVEN)
    answer = break_even_of(
        evaluators, lengths, target_speedups, metrics, replications, STEP_BAND, progress, alphas
    )
    provenance = {
        "arm": chosen.name,
        "seed": scenario.run.seed,
        "replications": replications,
        "scenario_sha256": scenario.scenario_sha256,
    }
    assumptions = (engine_preset(scenario)[1], evaluators[0].beyond_drafter if evaluators else None)
    notes = (*(note for note in assumptions if note is not None), *answer.notes)
    return replace(answer, notes=notes, provenance=provenance)


def break_even_of(
    evaluators: Sequence[Evaluator],
    draft_lengths: Sequence[int],
    target_speedups: Sequence[float],
    metrics: Sequence[str],
    replications: int,
    band: float,
    progress: Progress | None = None,
    alphas: Sequence[float] = (),
) -> BreakEven:
    """Every combination of load, draft length, target and metric; what can be asked is checked first."""
    check_questions(draft_lengths, target_speedups, metrics, alphas)
    draft_lengths, metrics = list(dict.fromkeys(draft_lengths)), list(dict.fromkeys(metrics))
    target_speedups = list(dict.fromkeys(target_speedups))
    total = len(evaluators) * len(draft_lengths) * len(target_speedups) * len(metrics)
    rows: list[BreakEvenRow] = []
    best: dict[str, dict[str, int]] = {}
    ratios: dict[str, float] = {}
    for evaluator in evaluators:
        load = load_label(evaluator.load)
        for draft_length in draft_lengths:
            case = BreakEvenCase(evaluator, draft_length, replications, band)
            for target in target_speedups:
                for metric in metrics:
                    rows.append(case.row(metric, target, alphas))
                    if progress is not None:
                        label = f"{_in_words(evaluator.load)}, draft length {draft_length}, {metric}"
                        progress(len(rows), total, label)
        best_here = _best_draft_lengths(evaluator)
        if best_here is not None:
            best[load], ratios[load] = best_here
    notes = [
        f"{_in_words(row.load)}, draft length {row.draft_length}, {row.metric}, target "
        f"{row.target_speedup:g}×: {row.note}"
        for row in rows
        if row.note
    ]
    return BreakEven(tuple(rows), best, ratios, tuple(notes))


def _in_words(load: Mapping[str, float]) -> str:
    """`1 client`, `64 clients`, `4 requests/s`."""
    (kind, amount), *_ = load.items()
    if kind == "concurrency":
        return f"{amount:g} client{'' if amount == 1 else 's'}"
    return f"{amount:g} requests/s" if kind == "rate_per_s" else f"{kind} {amount:g}"


def load_label(load: Mapping[str, float]) -> str:
    """The load as a key: its number alone."""
    return f"{next(iter(load.values())):g}"


def check_questions(
    draft_lengths: Sequence[int],
    targets: Sequence[float],
    metrics: Sequence[str],
    alphas: Sequence[float] = (),
) -> None:
    """Raise InputError, all at once, for draft lengths, targets, metrics and acceptances that have no
    answer.
    """
    problems = [
        unknown_name("metric", metric, COMPARED_BY_WORD, field="metric")
        for metric in metrics
        if metric not in COMPARED_BY_WORD
    ]
    problems += [
        Problem(
            field="draft_length",
            value=k,
            message="drafts nothing" if k == 0 else "is not a draft length",
            allowed="1 to 128",
        )
        for k in draft_lengths
        if not 1 <= k <= 128
    ]
    problems += [
        Problem(field="target_speedup", value=x, message="is not a speedup", allowed="a number above 0")
        for x in targets
        if not 0 < x < math.inf
    ]
    problems += [
        Problem(field="alpha", value=x, message="is not an acceptance", allowed="a number from 0 to 1")
        for x in alphas
        if not 0 <= x <= 1
    ]
    if problems:
        raise InputError(problems)


def _best_draft_lengths(evaluator: Evaluator) -> tuple[dict[str, int], float] | None:
    """Best K by α from the price of uniform steps at the plain variant's mean batch,
    and the marginal cost of a draft token.
    """
    try:
        batch = evaluator.plain(0)["mean_batch"]
        if not math.isfinite(batch):
            return None  # no request is served
        cycles = [evaluator.step_s(draft_length, batch) for draft_length in range(_LONGEST_DRAFT + 1)]
    except DoesNotFitError:
        return None
    best = {
        f"{alpha:g}": best_draft_length_of(
            [tokens_per_verify(alpha, draft_length) for draft_length in range(_LONGEST_DRAFT + 1)], cycles
        )
        for alpha in SHOWN_ALPHAS
    }
    return best, (cycles[_SLOPE_DRAFTS] - cycles[1]) / (_SLOPE_DRAFTS - 1) / cycles[0]
