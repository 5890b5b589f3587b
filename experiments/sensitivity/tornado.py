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
    """The answer at both ends of one input; None where a variant cannot serve the rate.

    Intervals are those of the difference from the base, paired by replication.
    """

    input: UncertainInput
    at_low: Estimate | None
    at_high: Estimate | None

    def swing(self, base: float) -> float:
        """The range of the answer, the base included; infinite where an end has no answer."""
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
class SensitivityStudy:
    """The runs that compute an answer, and the uncertain inputs that it depends on."""

    runs: SensitivityRuns
    inputs: tuple[UncertainInput, ...]
    notes: tuple[str, ...]

    @staticmethod
    def of(
        scenario: Scenario,
        variant: str | None = None,
        of: str = SPEEDUP,
        inputs: Sequence[UncertainInput] = (),
    ) -> SensitivityStudy:
        """The study of a variant, by default the first. Raises InputError.

        `inputs` are added to those of every scenario. An input that sets the acceptance by path replaces
        ours.
        """
        speculative = chosen_variant(scenario, variant, "compare with plain decoding")
        runs = SensitivityRuns(scenario, speculative.name, of)
        require_distinct(inputs)
        given_parameters = {uncertain_input.parameter for uncertain_input in inputs}
        replaced = (
            {ALPHA}
            if any(
                parameter.startswith(f"speculation.{runs.variant}.acceptance")
                for parameter in given_parameters
            )
            else set()
        )
        replaced |= {ALPHA} if of == BREAK_EVEN else set()
        scenario_inputs = [
            uncertain_input
            for uncertain_input in inputs_of(runs.scenario, runs.variants()[1].variant)
            if uncertain_input.parameter not in replaced
        ]
        requests = runs.scenario.workload.requests
        preset_note = engine_preset(scenario)[1]
        runs_note = (
            f"runs of {requests:,} requests, {REPLICATIONS} replications, all on common random numbers"
        )
        return SensitivityStudy(
            runs,
            (*inputs, *scenario_inputs),
            (runs_note,) if preset_note is None else (preset_note, runs_note),
        )


def tornado(
    scenario: Scenario,
    variant: str | None = None,
    of: str = SPEEDUP,
    inputs: Sequence[UncertainInput] = (),
    progress: Progress | None = None,
) -> Tornado:
    """Move every uncertain input to each end of its range, one at a time.

    Raises InputError, also where the scenario as it is has no answer.
    """
    question = SensitivityStudy.of(scenario, variant, of, inputs)
    runs = question.runs
    samples = runs.outcome({})
    base = mean_estimate(samples)
    if base is None:
        message = "has no answer: a variant cannot serve the rate"
        raise InputError(Problem(field="workload.arrivals", message=message, allowed="a lower rate"))
    bars = []
    for number, uncertain_input in enumerate(question.inputs, start=1):
        ends = [
            _end(base, samples, runs.outcome({uncertain_input: value}))
            for value in (uncertain_input.low, uncertain_input.high)
        ]
        bars.append(Bar(uncertain_input, *ends))
        if progress is not None:
            progress(number, len(question.inputs), uncertain_input.name)
    ordered = tuple(sorted(bars, key=lambda bar: -bar.swing(base.value)))
    return Tornado(runs.variant, of, base, ordered, question.notes)


def _end(base: Estimate, before: Sequence[float], after: Sequence[float]) -> Estimate | None:
    """The answer at one end, with the interval of its difference from the base."""
    difference = mean_estimate([b - a for a, b in zip(before, after, strict=True)])
    if difference is None or difference.ci95 is None:
        return None
    low, high = (base.value + end for end in difference.ci95)
    return Estimate(base.value + difference.value, (low, high))
