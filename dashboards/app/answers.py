"""What the live page answers: the chosen point, simulated, and curves over the load and the acceptance.

The point takes some tenths of a second. Curves over the load come first in closed form, E ÷ (1 + overhead),
and are then simulated load by load, so that no thread works for a page that has moved on.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import pairwise
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from dashboards.study import LoadStudy
from dashboards.subject import ReportedResult
from simulator.breakeven.evaluator import DoesNotFitError
from simulator.breakeven.theory import required_acceptance_linear, required_alpha_geometric, tokens_per_verify
from simulator.errors import InputError
from simulator.results.estimate import Estimate
from simulator.results.summary import STEP_BAND
from simulator.results.verdict import DOES_NOT_FIT, UNDECIDED, UNREACHABLE, judge_acceptance

if TYPE_CHECKING:
    from simulator.scenario import Scenario, Variant

ALPHAS = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Acceptances of the map; the scenario's own replaces one that is closer than `_NEAR`."""
_NEAR = 0.06
_KEPT = 60
"""Answers that stay in memory, so that going back is quick and a long session does not grow."""

CachedAnswer = TypeVar("CachedAnswer")
SpeedupColumn = Sequence[float | None]


class AnswerCache:
    """The latest answers by scenario. Threads that ask for the same one wait for the first of them."""

    def __init__(self) -> None:
        self._answers: OrderedDict[tuple[str, str], Any] = OrderedDict()
        self._making: dict[tuple[str, str], Lock] = {}

    def answer(self, kind: str, scenario: Scenario, make: Callable[[], CachedAnswer]) -> CachedAnswer:
        """The answer of that kind, made where it is not kept. What is None is not kept."""
        key = (kind, scenario.scenario_sha256)
        with self._making.setdefault(key, Lock()):
            if key in self._answers:
                self._answers.move_to_end(key)
                earlier: CachedAnswer = self._answers[key]
                return earlier
            made = make()
            if made is not None:
                self._answers[key] = made
        while len(self._answers) > _KEPT:
            oldest, _ = self._answers.popitem(last=False)
            self._making.pop(oldest, None)
        return made


def point(scenario: Scenario) -> ReportedResult:
    """The scenario, simulated. Raises InputError where it cannot run."""
    from simulator.simulation import simulate

    return ReportedResult(simulate(scenario), scenario)


def closed_form(scenario: Scenario) -> LoadStudy:
    """Break-even and speedup over the load, from the price of uniform steps alone."""
    study = _study(scenario, _closed_form_column, lambda: False)
    assert study is not None
    return study


def simulated(scenario: Scenario, is_stale: Callable[[], bool]) -> LoadStudy | None:
    """Break-even and speedup over the load, simulated; None where `is_stale` says so on the way."""
    return _study(scenario, _simulated_column, is_stale)


def _study(scenario: Scenario, column: ColumnOf, is_stale: Callable[[], bool]) -> LoadStudy | None:
    from experiments.maps.speedup import SpeedupMap, concurrencies

    if not scenario.speculation:
        return LoadStudy()
    variant = scenario.speculation[0]
    columns: list[SpeedupColumn] = []
    rows = []
    try:
        own = _own_alpha(scenario, variant)
        others = [alpha for alpha in ALPHAS if own is None or abs(alpha - own) > _NEAR]
        alphas = tuple(sorted(others if own is None else [*others, own]))
        loads = concurrencies(scenario, variant)
        for load in loads:
            if is_stale():
                return None
            speedups = column(scenario, variant, load, alphas)
            columns.append(speedups)
            rows.append(_row(scenario, variant, load, alphas, speedups, own, column is _simulated_column))
    except InputError as error:
        return LoadStudy(notes=(f"{variant.name}: {error}",))
    table = tuple(zip(*columns, strict=True))
    speedup_map = SpeedupMap(variant.name, variant.max_draft_length, alphas, loads, table)
    document = {"rows": rows, "best_draft_length": {}, "cost_ratio": {}}
    return LoadStudy({variant.name: document}, {variant.name: speedup_map})


ColumnOf = Callable[["Scenario", "Variant", int, Sequence[float]], SpeedupColumn]
"""The speedups at one load, one for each acceptance; None where a variant does not fit the memory."""


def _own_alpha(scenario: Scenario, variant: Variant) -> float | None:
    from simulator.breakeven.simulated_evaluator import SimulatedEvaluator

    return SimulatedEvaluator(scenario, variant).scenario_alpha


def _simulated_column(
    scenario: Scenario, variant: Variant, load: int, alphas: Sequence[float]
) -> SpeedupColumn:
    from experiments.maps.speedup import speedup_map

    return tuple(row[0] for row in speedup_map(scenario, variant, (load,), alphas).speedup)


def _closed_form_column(
    scenario: Scenario, variant: Variant, load: int, alphas: Sequence[float]
) -> SpeedupColumn:
    overhead = overhead_at(scenario, variant, load)
    if overhead is None:
        return tuple(None for _ in alphas)
    return tuple(tokens_per_verify(alpha, variant.max_draft_length) / (1 + overhead) for alpha in alphas)


def overhead_at(scenario: Scenario, variant: Variant, load: int) -> float | None:
    """Speculative ÷ plain step − 1, of uniform steps of all clients; None where the memory is too small."""
    from simulator.breakeven.simulated_evaluator import SimulatedEvaluator

    evaluator = SimulatedEvaluator(scenario, variant, {"concurrency": load})
    try:
        return evaluator.step_s(variant.max_draft_length, load) / evaluator.step_s(0, load) - 1
    except DoesNotFitError:
        return None


def _row(
    scenario: Scenario,
    variant: Variant,
    load: int,
    alphas: Sequence[float],
    speedups: SpeedupColumn,
    own: float | None,
    is_simulated: bool,
) -> dict[str, Any]:
    """A row of the break-even, with the keys of `decodesim breakeven`."""
    length = variant.max_draft_length
    overhead = overhead_at(scenario, variant, load)
    needed = break_even(alphas, speedups)
    verdict = DOES_NOT_FIT if overhead is None else UNREACHABLE if needed is None else UNDECIDED
    if needed is not None and own is not None:
        verdict = judge_acceptance(own, needed)
    geometric = None if overhead is None else required_alpha_geometric(overhead, length)
    return {
        "concurrency": load,
        "draft_length": length,
        "simulated_alpha": needed.to_json() if is_simulated and needed is not None else None,
        "geometric_alpha": geometric,
        "linear_acceptance_rate": None if overhead is None else required_acceptance_linear(overhead, length),
        "scenario_alpha": own,
        "verdict": verdict,
    }


def break_even(alphas: Sequence[float], speedups: SpeedupColumn) -> Estimate | None:
    """The α at which the speedup is 1, between two acceptances in proportion; None where none is enough.

    The band has the speculative step times at both ends of the cost model's error.
    """
    value, low, high = (_crossing(alphas, speedups, 1 + change) for change in (0.0, -STEP_BAND, STEP_BAND))
    if value is None or low is None:
        return None
    return Estimate(value, band=(low, 1.0 if high is None else high))


def _crossing(alphas: Sequence[float], speedups: SpeedupColumn, target: float) -> float | None:
    known = [(alpha, speedup) for alpha, speedup in zip(alphas, speedups, strict=True) if speedup is not None]
    if not known:
        return None
    if known[0][1] >= target:
        (first, at_first), (second, at_second) = known[0], known[1]
        slope = (at_second - at_first) / (second - first)
        return max(0.0, first - (at_first - target) / slope) if slope > 0 else 0.0
    for (below, low), (above, high) in pairwise(known):
        if low < target <= high:
            return below + (above - below) * (target - low) / (high - low)
    return None
