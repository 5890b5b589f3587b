"""`gate`: measured acceptance against the break-even of a scenario, as pass, fail or undecided.

Both sides are mean acceptance lengths of the same drafts. The break-even moves the measured acceptance by one
logit shift of all positions until the simulated gain is nil, so the measured shape and coverage are kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experiments.measured_variant import with_measured
from simulator.results.estimate import Estimate, Interval
from simulator.results.verdict import DOES_NOT_FIT, UNREACHABLE

if TYPE_CHECKING:
    from simulator.breakeven.answer import BreakEvenRow
    from simulator.runs.replications import Progress
    from simulator.scenario import Scenario, Variant

PASS, FAIL, UNDECIDED = "pass", "fail", "undecided"
FEWEST_ROUNDS = 30
"""Fewer draft rounds decide nothing."""
_SCHEMA = "decodesim/gate-1"


@dataclass(frozen=True)
class Gate:
    """The decision. `samples_needed`: draft rounds whose interval would decide; None where it is decided, or
    where no number of rounds would.
    """

    verdict: str
    reason: str
    variant: str
    reading: Mapping[str, Any]
    row: BreakEvenRow
    samples_needed: int | None
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The document of `decodesim gate --json`."""
        measured = (
            "mean_acceptance_length",
            "geometric_alpha",
            "draft_length",
            "draft_rounds",
            "draft_coverage",
            "interval_method",
        )
        row = self.row
        return {
            "schema": _SCHEMA,
            "verdict": self.verdict,
            "reason": self.reason,
            "arm": self.variant,
            "measured": {name: self.reading[name] for name in measured},
            "break_even": {
                "mean_acceptance_length": row.mean_acceptance_length and row.mean_acceptance_length.to_json(),
                "alpha": row.simulated_alpha and row.simulated_alpha.to_json(),
                "draft_length": row.draft_length,
                "metric": row.metric,
                "load": dict(row.load),
            },
            "samples_needed": self.samples_needed,
            "health": self.reading["health"],
            "notes": list(self.notes),
        }


def gate(
    scenario: Scenario,
    variant: Variant,
    reading: Mapping[str, Any],
    metric: str | None = None,
    progress: Progress | None = None,
) -> Gate:
    """Decide on the acceptance in a document of `read` for a variant at the scenario's load.

    `metric` defaults to throughput, and to mean TPOT at an offered rate. Raises InputError where the document
    has no acceptance.
    """
    from simulator.breakeven.breakeven import breakeven

    measured = with_measured(scenario, variant, reading)
    chosen = measured.speculation[0]
    is_closed = scenario.workload.arrivals.kind in ("closed", "burst")
    metrics = [metric or ("throughput" if is_closed else "tpot_mean")]
    answer = breakeven(measured, metrics=metrics, progress=progress)
    row = answer.rows[0]
    notes = [*answer.notes]
    if chosen.draft_length != variant.draft_length:
        notes.append(f"the run drafted {chosen.draft_length} tokens, the scenario {variant.draft_length}")
    verdict, reason, samples = decide(row, reading)
    return Gate(verdict, reason, variant.name, reading, row, samples, tuple(notes))


def decide(row: BreakEvenRow, reading: Mapping[str, Any]) -> tuple[str, str, int | None]:
    """Verdict, its reason, and the draft rounds that would decide."""
    length = reading["mean_acceptance_length"]
    if row.verdict in (UNREACHABLE, DOES_NOT_FIT):
        return FAIL, row.note or f"the break-even is {row.verdict}", None
    needed = _needed(row)
    if needed is None:
        return UNDECIDED, row.note or "the simulation has no break-even at this load", None
    measured_text = f"mean acceptance length {length['value']:.2f}"
    needed_text = f"break-even {needed[0]:.2f} to {needed[1]:.2f}"
    if length["ci95"] is None:
        reason = f"{measured_text} has no interval, because the source has no counts; {needed_text}"
        return UNDECIDED, reason, None
    low, high = length["ci95"]
    text = f"{measured_text} ({low:.2f} to {high:.2f}), {needed_text}"
    verdict = PASS if low > needed[1] else FAIL if high < needed[0] else UNDECIDED
    if verdict == UNDECIDED:
        samples = rounds_needed(length["value"], (low, high), needed, reading["draft_rounds"])
        return UNDECIDED, f"{text}: {_doubt(samples, reading['draft_rounds'])}", samples
    if (reading["draft_rounds"] or math.inf) < FEWEST_ROUNDS:
        return UNDECIDED, f"{text}: fewer than {FEWEST_ROUNDS} draft rounds", FEWEST_ROUNDS
    errors = [finding["text"] for finding in reading["health"] if finding["severity"] == "error"]
    if verdict == PASS and errors:
        return UNDECIDED, f"{text}, but the measurement cannot be trusted: {errors[0]}", None
    return verdict, text, None


def _needed(row: BreakEvenRow) -> Interval | None:
    """The band of the mean acceptance length at the break-even; None where the simulation has none."""
    length: Estimate | None = row.mean_acceptance_length
    if length is not None:
        return length.band
    paid_for_nothing = row.simulated_alpha is not None and row.simulated_alpha.value == 0
    return (1.0, 1.0) if paid_for_nothing else None


def rounds_needed(mean: float, ci95: Sequence[float], needed: Interval, rounds: float | None) -> int | None:
    """The draft rounds whose interval clears the band of the break-even, if the mean stays where it is.

    The half-width falls with the square root of the rounds. None where the mean lies within the band, so that
    no number of rounds decides, and where the rounds are not known.
    """
    if needed[0] <= mean <= needed[1] or not rounds:
        return None
    if mean > needed[1]:
        half_width, margin = mean - ci95[0], mean - needed[1]
    else:
        half_width, margin = ci95[1] - mean, needed[0] - mean
    return math.ceil(rounds * (half_width / margin) ** 2) + 1


def _doubt(samples: int | None, rounds: float | None) -> str:
    if samples is None:
        return "the error of the cost model decides, and more rounds would not: compare the speed itself"
    return (
        f"{samples:,} draft rounds would decide, {samples / (rounds or 1):.1f} times as many as were measured"
    )
