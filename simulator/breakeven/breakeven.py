"""Which acceptance does speculation need to pay? Linear, geometric and simulated,
by load, draft length, target and metric.

The closed forms take the overhead o = T_speculative / T_plain − 1 of uniform steps at the plain arm's mean
batch and context: *linear* is the acceptance rate at this draft length, an identity; *geometric* the i.i.d.
acceptance α with E(α) = target · (1 + o) (`theory.py`). *Simulated* is the α at which the simulated
ratio reaches the target on common luck, with everything the closed forms leave out. Compare α with α only:
an acceptance rate is another figure. For acceptance models with more than α the family is a common logit
shift of the scenario's conditionals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from simulator.breakeven.answer import BreakEven, BreakEvenRow
from simulator.breakeven.bench import Bench, DoesNotFitError, Load
from simulator.breakeven.root_search import ALWAYS, Root, RootSearch, Run
from simulator.breakeven.root_search import UNREACHABLE as NO_ROOT
from simulator.errors import InputError, Problem, unknown_name
from simulator.results.verdict import DOES_NOT_FIT, SATURATED, UNDECIDED, UNREACHABLE, judge_acceptance
from simulator.theory import (
    best_draft_length_of,
    required_acceptance_linear,
    required_alpha_geometric,
    tokens_per_verify,
)

if TYPE_CHECKING:
    from simulator.scenario import Scenario

METRICS = {
    "throughput": ("throughput_tokens_per_s", 1),
    "goodput": ("goodput_requests_per_s", 1),
    "tpot_mean": ("tpot_s.mean", -1),
    "tpot_p99": ("tpot_s.p99", -1),
    "itl_mean": ("itl_s.mean", -1),
    "itl_p99": ("itl_s.p99", -1),
    "ttft_p99": ("ttft_s.p99", -1),
    "e2e_mean": ("e2e_s.mean", -1),
}
"""Metric → (figure, +1 where more is better and −1 where less is)."""

SHOWN_ALPHAS = (0.5, 0.7, 0.9)
"""Acceptances for which the best draft length is listed."""
_LONGEST_DRAFT = 16
_SLOPE_DRAFTS = 8
"""The marginal cost of a draft token is the mean over draft lengths 1 to this."""
TOLERANCE = 0.01
"""Half-width in α that the search aims at."""

_FEWEST_REPLICATIONS = 3
"""A break-even without an interval has no verdict, so a single replication is not enough."""

Progress = Callable[[int, int, str], None]
"""(done, total, what) after each part."""


def breakeven(
    scenario: Scenario,
    loads: Sequence[Load] | None = None,
    draft_lengths: Sequence[int] | None = None,
    target_speedups: Sequence[float] = (1.0,),
    metrics: Sequence[str] | None = None,
    progress: Progress | None = None,
    arm: str | None = None,
) -> BreakEven:
    """The break-even of a scenario's speculative arm (the first one, or `arm` by name).

    `loads` (`{"concurrency": 64}` or `{"rate_per_s": 2.5}`) and `draft_lengths` default to the scenario's
    own; `metrics` to throughput, at offered rates mean TPOT too, since there both arms may serve all.
    An arm whose draft length varies with the batch keeps that, and its rows have no closed forms.
    Raises InputError for what cannot be asked or does not exist.
    """
    from simulator.breakeven.simulated_bench import SimulatedBench
    from simulator.results.summary import STEP_BAND

    if not scenario.speculation:
        problem = Problem(
            field="speculation",
            message="is empty, so there is nothing to break even",
            allowed="one arm or more",
        )
        raise InputError(problem)
    names = [entry.name for entry in scenario.speculation]
    if arm is not None and arm not in names:
        raise InputError(unknown_name("arm", arm, names, field="arm"))
    chosen = scenario.arm(names[0] if arm is None else arm)
    lengths = (chosen.max_draft_length,) if draft_lengths is None else tuple(draft_lengths)
    check_questions(lengths, target_speedups, metrics or ())
    own = draft_lengths is None
    benches = [SimulatedBench(scenario, chosen, load, own) for load in ([None] if loads is None else loads)]
    if metrics is None:
        metrics = (
            ("throughput", "tpot_mean") if all(bench.open_loop for bench in benches) else ("throughput",)
        )
    replications = max(scenario.run.replications, _FEWEST_REPLICATIONS)
    answer = break_even_of(benches, lengths, target_speedups, metrics, replications, STEP_BAND, progress)
    provenance = {
        "arm": chosen.name,
        "seed": scenario.run.seed,
        "replications": replications,
        "scenario_sha256": scenario.scenario_sha256,
    }
    beyond = benches[0].beyond_drafter if benches else None
    notes = answer.notes if beyond is None else (beyond, *answer.notes)
    return replace(answer, notes=notes, provenance=provenance)


def break_even_of(
    benches: Sequence[Bench],
    draft_lengths: Sequence[int],
    target_speedups: Sequence[float],
    metrics: Sequence[str],
    replications: int,
    band: float,
    progress: Progress | None = None,
) -> BreakEven:
    """Every combination of load, draft length, target and metric; what can be asked is checked first."""
    check_questions(draft_lengths, target_speedups, metrics)
    draft_lengths, metrics = list(dict.fromkeys(draft_lengths)), list(dict.fromkeys(metrics))
    target_speedups = list(dict.fromkeys(target_speedups))
    total = len(benches) * len(draft_lengths) * len(target_speedups) * len(metrics)
    rows: list[BreakEvenRow] = []
    best: dict[str, dict[str, int]] = {}
    ratios: dict[str, float] = {}
    for bench in benches:
        label = load_label(bench.load)
        for draft_length in draft_lengths:
            case = _Case(bench, draft_length, replications, band)
            for target in target_speedups:
                for metric in metrics:
                    rows.append(case.row(metric, target))
                    if progress is not None:
                        what = f"{_in_words(bench.load)}, draft length {draft_length}, {metric}"
                        progress(len(rows), total, what)
        best_here = _best_draft_lengths(bench)
        if best_here is not None:
            best[label], ratios[label] = best_here
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


def check_questions(draft_lengths: Sequence[int], targets: Sequence[float], metrics: Sequence[str]) -> None:
    """Raise InputError, all at once, for draft lengths, targets and metrics that nobody can answer."""
    problems = [
        unknown_name("metric", metric, METRICS, field="metric") for metric in metrics if metric not in METRICS
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
    if problems:
        raise InputError(problems)


class _Case:
    """One load and draft length: its runs are made once and serve every target and metric."""

    def __init__(self, bench: Bench, draft_length: int, replications: int, band: float) -> None:
        self.bench, self.draft_length = bench, draft_length
        self.replications, self.band = replications, band
        self.plain = lru_cache(maxsize=None)(bench.plain)
        self.runs = lru_cache(maxsize=None)(
            lambda alpha, replication, scale: bench.speculative(draft_length, alpha, replication, scale)
        )

    def row(self, metric: str, target: float) -> BreakEvenRow:
        """The answer to one question."""
        known: dict[str, Any] = {
            "load": self.bench.load,
            "draft_length": self.draft_length,
            "target_speedup": target,
            "metric": metric,
            "scenario_alpha": self.bench.scenario_alpha,
        }
        try:
            refused = self._refused(metric)
            if refused is not None:
                return BreakEvenRow(**known, verdict=refused[0], note=refused[1])
            known |= self._closed_forms(target)
            root = self._search(metric, target, known["geometric_alpha"])
        except DoesNotFitError as error:
            return BreakEvenRow(**known, verdict=DOES_NOT_FIT, note=str(error))
        verdict, note = self._judged(root)
        if note is None and self.bench.draft_length_varies:
            note = "the draft length varies with the batch, so there are no closed forms"
        return BreakEvenRow(
            **known,
            verdict=verdict,
            simulated_alpha=root.value,
            mean_acceptance_length=root.companion,
            note=note,
        )

    def _refused(self, metric: str) -> tuple[str, str] | None:
        """Verdict and note where the plain arm already makes the question void."""
        if not all(self.plain(i)["throughput_tokens_per_s"] > 0 for i in range(self.replications)):
            return UNDECIDED, "plain decoding answers nobody: every request is too long, or gives up first"
        saturated = self.bench.plain_is_saturated(self.replications)
        if saturated and metric != "throughput":
            return SATURATED, "plain decoding cannot serve this rate"
        if metric == "throughput" and self.bench.open_loop and not saturated:
            return UNDECIDED, (
                "plain decoding serves the offered rate, and nothing can serve more; "
                "ask for tpot_mean or goodput"
            )
        path, _ = METRICS[metric]
        if not all(math.isfinite(self.plain(i)[path]) for i in range(self.replications)):
            return UNDECIDED, (
                "the scenario sets no SLO" if metric == "goodput" else "too few requests for this percentile"
            )
        return None

    def _judged(self, root: Root) -> tuple[str, str | None]:
        alpha = self.bench.scenario_alpha
        if root.outcome == NO_ROOT:
            return UNREACHABLE, "even with every draft accepted the target is missed"
        note = "the target is reached without one accepted draft" if root.outcome == ALWAYS else root.note
        if root.value is None or alpha is None:
            return UNDECIDED, note
        return judge_acceptance(alpha, root.value), note

    def _closed_forms(self, target: float) -> dict[str, float | None]:
        if self.bench.draft_length_varies:
            return dict.fromkeys(("overhead", "linear_acceptance_rate", "geometric_alpha"))
        batch = sum(self.plain(i)["mean_batch"] for i in range(self.replications)) / self.replications
        overhead = self.bench.step_s(self.draft_length, batch) / self.bench.step_s(0, batch) - 1
        return {
            "overhead": overhead,
            "linear_acceptance_rate": required_acceptance_linear(overhead, self.draft_length, target),
            "geometric_alpha": required_alpha_geometric(overhead, self.draft_length, target),
        }

    def _search(self, metric: str, target: float, geometric_alpha: float | None) -> Root:
        path, sign = METRICS[metric]

        def evaluate(alpha: float, replication: int, scale: float) -> Run:
            figures = self.runs(alpha, replication, scale)
            ratio = log_ratio(figures[path], self.plain(replication)[path])
            return Run(sign * ratio - math.log(target), figures["mean_acceptance_length"])

        search = RootSearch(
            evaluate,
            self.replications,
            self.band,
            tolerance=TOLERANCE,
            most_replications=2 * self.replications,
        )
        unknown = 0.5 if self.bench.draft_length_varies else 0.95
        return search.find(unknown if geometric_alpha is None else geometric_alpha)


def log_ratio(numerator: float, denominator: float) -> float:
    """ln of a ratio of figures that may be zero; NaN where neither exists."""
    if not (numerator >= 0 and denominator >= 0) or numerator == denominator == 0:
        return math.nan
    return (
        math.inf if denominator == 0 else -math.inf if numerator == 0 else math.log(numerator / denominator)
    )


def _best_draft_lengths(bench: Bench) -> tuple[dict[str, int], float] | None:
    """Best K by α from the price of uniform steps at the plain arm's mean batch,
    and the marginal cost of a draft token.
    """
    try:
        batch = bench.plain(0)["mean_batch"]
        if not math.isfinite(batch):
            return None  # nobody is served
        cycles = [bench.step_s(draft_length, batch) for draft_length in range(_LONGEST_DRAFT + 1)]
    except DoesNotFitError:
        return None
    best = {
        f"{alpha:g}": best_draft_length_of(
            [tokens_per_verify(alpha, draft_length) for draft_length in range(_LONGEST_DRAFT + 1)], cycles
        )
        for alpha in SHOWN_ALPHAS
    }
    return best, (cycles[_SLOPE_DRAFTS] - cycles[1]) / (_SLOPE_DRAFTS - 1) / cycles[0]
