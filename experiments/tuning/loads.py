"""One variant at several loads: whether it pays, the best draft length, what another branch must bring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simulator.breakeven.breakeven import breakeven
from simulator.breakeven.evaluator import DoesNotFitError
from simulator.breakeven.simulated_evaluator import SimulatedEvaluator
from simulator.breakeven.theory import best_draft_length_of, tokens_per_verify

if TYPE_CHECKING:
    from simulator.breakeven.answer import BreakEvenRow
    from simulator.runs.replications import Progress
    from simulator.scenario import Scenario, Variant

LOADS = (1, 8, 32, 128)
LONGEST = 12
"""Draft lengths that are compared."""
_ENOUGH_REQUESTS = 1500


@dataclass(frozen=True)
class LoadRow:
    """A variant with a number of clients. `best_length`: the K with the most tokens per second, 0 for plain
    decoding, by step times alone; None where the draft length varies with the batch.

    `branch_needs`: how often a further branch of a tree must be accepted to be worth its row at this load.
    """

    clients: int
    row: BreakEvenRow
    best_length: int | None
    speedup_at_best: float | None
    branch_needs: float | None

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "concurrency": self.clients,
            "verdict": self.row.verdict,
            "break_even_alpha": self.row.simulated_alpha and self.row.simulated_alpha.to_json(),
            "best_draft_length": self.best_length,
            "speedup_at_best": self.speedup_at_best,
            "branch_needs": self.branch_needs,
        }


def load_rows(
    scenario: Scenario, variant: Variant, loads: Sequence[int], progress: Progress | None = None
) -> list[LoadRow]:
    """The variant at every load. Raises InputError."""
    from simulator.scenario import with_workload

    enough = max(_ENOUGH_REQUESTS, 12 * max(loads))
    studied = with_workload(scenario, requests=min(max(scenario.workload.requests, _ENOUGH_REQUESTS), enough))
    answer = breakeven(
        studied,
        [{"concurrency": load} for load in loads],
        metrics=("throughput",),
        progress=progress,
        variant=variant.name,
    )
    return [_row(studied, variant, load, row) for load, row in zip(loads, answer.rows, strict=True)]


def _row(scenario: Scenario, variant: Variant, clients: int, row: BreakEvenRow) -> LoadRow:
    alpha = row.scenario_alpha
    if alpha is None or row.overhead is None or not isinstance(variant.draft_length, int):
        return LoadRow(clients, row, None, None, None)
    evaluator = SimulatedEvaluator(scenario, variant, {"concurrency": clients})
    batch = row.plain_mean_batch or float(clients)
    lengths = range(LONGEST + 1)
    try:
        cycles_s = [evaluator.step_s(length, batch) for length in lengths]
    except DoesNotFitError:
        return LoadRow(clients, row, None, None, None)
    tokens = [tokens_per_verify(alpha, length) for length in lengths]
    best = best_draft_length_of(tokens, cycles_s)
    at = max(best, 1)
    row_cost = (cycles_s[at] - cycles_s[at - 1]) / cycles_s[at]
    return LoadRow(
        clients, row, best, tokens[best] / cycles_s[best] * cycles_s[0], min(row_cost * tokens[at], 1.0)
    )
