"""One load and draft length of a break-even question: the closed forms, the root, and the speedup at given α.

Runs are kept, and each serves every target, metric and acceptance that asks for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from simulator.breakeven.answer import BreakEvenRow
from simulator.breakeven.evaluator import DoesNotFitError, Evaluator
from simulator.breakeven.root_search import ALWAYS, Root, RootSearch, ScoredRun
from simulator.breakeven.root_search import UNREACHABLE as NO_ROOT
from simulator.breakeven.theory import required_acceptance_linear, required_alpha_geometric
from simulator.results.catalogue import COMPARED_BY_WORD
from simulator.results.estimate import Estimate, paired_ratio
from simulator.results.verdict import DOES_NOT_FIT, SATURATED, UNDECIDED, UNREACHABLE, judge_acceptance

TOLERANCE = 0.01
"""Half-width in α that the search aims at."""


class BreakEvenCase:
    """One load and draft length: its runs are made once and serve every target and metric."""

    def __init__(self, evaluator: Evaluator, draft_length: int, replications: int, band: float) -> None:
        self.evaluator, self.draft_length = evaluator, draft_length
        self.replications, self.band = replications, band
        self.plain = lru_cache(maxsize=None)(evaluator.plain)
        self.runs = lru_cache(maxsize=None)(
            lambda alpha, replication, scale: evaluator.speculative(draft_length, alpha, replication, scale)
        )

    def row(self, metric: str, target: float, alphas: Sequence[float] = ()) -> BreakEvenRow:
        """The answer to one question, with the speedup at each of `alphas`."""
        row: dict[str, Any] = {
            "load": self.evaluator.load,
            "draft_length": self.draft_length,
            "target_speedup": target,
            "metric": metric,
            "scenario_alpha": self.evaluator.scenario_alpha,
        }
        try:
            refused = self._refused(metric)
            if refused is not None:
                return BreakEvenRow(**row, verdict=refused[0], note=refused[1])
            row |= self._closed_forms(target)
            row["speedup_at"] = {f"{alpha:g}": self._speedup(metric, alpha) for alpha in alphas}
            root = self._search(metric, target, row.get("geometric_alpha"))
        except DoesNotFitError as error:
            return BreakEvenRow(**row, verdict=DOES_NOT_FIT, note=str(error))
        verdict, note = self._judged(root)
        if note is None and self.evaluator.draft_length_varies:
            note = "closed forms know chains of one draft length only"
        return BreakEvenRow(
            **row,
            verdict=verdict,
            simulated_alpha=root.value,
            mean_acceptance_length=root.companion,
            note=note,
        )

    def _refused(self, metric: str) -> tuple[str, str] | None:
        """Return the verdict and its note where plain decoding alone already answers the question."""
        if not all(self.plain(i)["throughput_tokens_per_s"] > 0 for i in range(self.replications)):
            return (
                UNDECIDED,
                "plain decoding completes no request: each is too long, or its client times out first",
            )
        saturated = self.evaluator.plain_is_saturated(self.replications)
        if saturated and metric != "throughput":
            return SATURATED, "plain decoding cannot serve this rate"
        if metric == "throughput" and self.evaluator.open_loop and not saturated:
            return UNDECIDED, (
                "plain decoding serves the offered rate, and nothing can serve more; "
                "ask for tpot_mean or goodput"
            )
        path = COMPARED_BY_WORD[metric].path
        if not all(math.isfinite(self.plain(i)[path]) for i in range(self.replications)):
            return UNDECIDED, (
                "the scenario sets no SLO" if metric == "goodput" else "too few requests for this percentile"
            )
        return None

    def _judged(self, root: Root) -> tuple[str, str | None]:
        alpha = self.evaluator.scenario_alpha
        if root.outcome == NO_ROOT:
            return UNREACHABLE, "even with every draft accepted the target is missed"
        note = "the target is reached without one accepted draft" if root.outcome == ALWAYS else root.note
        if root.value is None or alpha is None:
            return UNDECIDED, note
        return judge_acceptance(alpha, root.value), note

    def _closed_forms(self, target: float) -> dict[str, float | None]:
        batch = sum(self.plain(i)["mean_batch"] for i in range(self.replications)) / self.replications
        if self.evaluator.draft_length_varies:
            return {"plain_mean_batch": batch}
        overhead = self.evaluator.step_s(self.draft_length, batch) / self.evaluator.step_s(0, batch) - 1
        return {
            "plain_mean_batch": batch,
            "overhead": overhead,
            "linear_acceptance_rate": required_acceptance_linear(overhead, self.draft_length, target),
            "geometric_alpha": required_alpha_geometric(overhead, self.draft_length, target),
        }

    def _speedup(self, metric: str, alpha: float) -> Estimate | None:
        """Return how many times as good the metric is as that of plain decoding, on common random numbers;
        None where either has none. The first replication at both ends of the step times' error gives the
        band.
        """
        compared = COMPARED_BY_WORD[metric]
        path, sign = compared.path, compared.metric.better
        plain = [self.plain(i)[path] for i in range(self.replications)]
        runs = [self.runs(alpha, i, 1.0)[path] for i in range(self.replications)]
        speedup = paired_ratio(runs, plain) if sign > 0 else paired_ratio(plain, runs)
        if speedup is None:
            return None
        ends = [self.runs(alpha, 0, scale)[path] for scale in (1 - self.band, 1 + self.band)]
        ratios = [speedup.value * math.exp(sign * log_ratio(end, runs[0])) for end in ends]
        finite = [ratio for ratio in ratios if math.isfinite(ratio)]
        return speedup.with_model_range(min(finite), max(finite)) if len(finite) == len(ends) else speedup

    def _search(self, metric: str, target: float, geometric_alpha: float | None) -> Root:
        compared = COMPARED_BY_WORD[metric]
        path, sign = compared.path, compared.metric.better

        def evaluate(alpha: float, replication: int, scale: float) -> ScoredRun:
            figures = self.runs(alpha, replication, scale)
            ratio = log_ratio(figures[path], self.plain(replication)[path])
            return ScoredRun(sign * ratio - math.log(target), figures["mean_acceptance_length"])

        search = RootSearch(
            evaluate,
            self.replications,
            self.band,
            tolerance=TOLERANCE,
            most_replications=2 * self.replications,
        )
        guess = 0.5 if self.evaluator.draft_length_varies else 0.95
        return search.find(guess if geometric_alpha is None else geometric_alpha)


def log_ratio(numerator: float, denominator: float) -> float:
    """ln of a ratio of figures that may be zero; NaN where neither exists."""
    if not (numerator >= 0 and denominator >= 0) or numerator == denominator == 0:
        return math.nan
    return (
        math.inf if denominator == 0 else -math.inf if numerator == 0 else math.log(numerator / denominator)
    )
