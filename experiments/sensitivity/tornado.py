"""Tornado: the answer at either end of every uncertain input, the others as they are, widest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.sensitivity.inputs import ALPHA, UncertainInput, inputs_of, require_distinct
from experiments.sensitivity.runs import BREAK_EVEN, REPLICATIONS, SPEEDUP, SensitivityRuns
from simulator.errors import InputError, Problem
from simulator.results.estimate import Estimate, mean_estimate
from simulator.scenario import chosen_variant, engine_preset

if TYPE_CHECKING:
    from simulator.runs.replications import Progress
    from simulator.scenario import Scenario


@dataclass(frozen=True)
class Bar:
    """One input: the answer at its low and its high end. Intervals are those of the difference from the base,
    paired by replication; None: a variant cannot serve the rate there."""

    input: UncertainInput
    at_low: Estimate | None
    at_high: Estimate | None

    def swing(self, base: float) -> float:
        """How far the answer moves, to either side of the base; infinite where it ceases to exist."""
        if self.at_low is None or self.at_high is None:
            return float("inf")
        ends = base, self.at_low.value, self.at_high.value
        return max(ends) - min(ends)


@dataclass(frozen=True)
class Tornado:
    """The bars, widest first, around `base`: the answer of the scenario as it is."""

    variant: str
    of: str
    base: Estimate
    bars: tuple[Bar, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Question:
    """What is asked: an answer, the runs that give it, and the inputs it hangs on."""

    runs: SensitivityRuns
    inputs: tuple[UncertainInput, ...]
    notes: tuple[str, ...]

    @staticmethod
    def of(
        scenario: Scenario,
        variant: str | None = None,
        of: str = SPEEDUP,
        inputs: Sequence[UncertainInput] = (),
    ) -> Question:
        """A question about a variant (the first one by default). `inputs` come beside those of every
        scenario;
        acceptance that is set by path takes the place of ours. Raises InputError."""
        chosen = chosen_variant(scenario, variant, "compare with plain decoding")
        runs = SensitivityRuns(scenario, chosen.name, of)
        require_distinct(inputs)
        asked = {one.knob for one in inputs}
        replaced = (
            {ALPHA}
            if any(knob.startswith(f"speculation.{runs.variant}.acceptance") for knob in asked)
            else set()
        )
        replaced |= {ALPHA} if of == BREAK_EVEN else set()
        own = [
            one for one in inputs_of(runs.scenario, runs.variants()[1].variant) if one.knob not in replaced
        ]
        requests = runs.scenario.workload.requests
        taken = engine_preset(scenario)[1]
        luck = f"runs of {requests:,} requests, {REPLICATIONS} replications, all on the same luck"
        return Question(runs, (*inputs, *own), (luck,) if taken is None else (taken, luck))


def tornado(
    scenario: Scenario,
    variant: str | None = None,
    of: str = SPEEDUP,
    inputs: Sequence[UncertainInput] = (),
    progress: Progress | None = None,
) -> Tornado:
    """Turn every uncertain input to either end of its range, one at a time.

    Raises InputError, also where the scenario as it is has no answer.
    """
    question = Question.of(scenario, variant, of, inputs)
    runs = question.runs
    samples = runs.outcome({})
    base = mean_estimate(samples)
    if base is None:
        message = "has no answer: a variant cannot serve the rate"
        raise InputError(Problem(field="workload.arrivals", message=message, allowed="a lower rate"))
    bars = []
    for number, one in enumerate(question.inputs, start=1):
        ends = [_end(base, samples, runs.outcome({one: value})) for value in (one.low, one.high)]
        bars.append(Bar(one, *ends))
        if progress is not None:
            progress(number, len(question.inputs), one.name)
    ordered = tuple(sorted(bars, key=lambda bar: -bar.swing(base.value)))
    return Tornado(runs.variant, of, base, ordered, question.notes)


def _end(base: Estimate, before: Sequence[float], after: Sequence[float]) -> Estimate | None:
    """The answer at one end, with the interval of its difference from the base."""
    moved = mean_estimate([b - a for a, b in zip(before, after, strict=True)])
    if moved is None or moved.ci95 is None:
        return None
    low, high = (base.value + end for end in moved.ci95)
    return Estimate(base.value + moved.value, (low, high))
