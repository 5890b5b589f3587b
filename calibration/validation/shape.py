"""One curve of speedup over batch, simulated: its shape, and where it crosses 1.

*Shape*: the acceptance of the curve is that of independent drafts (of a lookup: where it finds some) with
which the simulated speedup at the smallest batch is the published one; the rest of the curve is predicted. It
needs no published acceptance, and tells how the costs change with the load. The closed form does the same: E
from the smallest batch, then E / (1 + o). *Crossing*: with the trials' own acceptance, the batch at which the
predicted speedup crosses 1, and those at which it does with the speculative arm's decodes at either end of
the cost model's band.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from calibration.validation.curves import Curve, crossing_of
from calibration.validation.predict import (
    DOES_NOT_FIT,
    Alteration,
    Figures,
    Question,
    compiled_arm,
    run_figures,
    uniform_step,
)
from calibration.validation.quantities import speedup_of_figures
from calibration.validation.row import question_of
from calibration.validation.run import setup_key
from simulator.acceptance import AcceptanceModel, Gated, Geometric
from simulator.breakeven.simulated_bench import scenario_at
from simulator.errors import InputError
from simulator.results.summary import STEP_BAND
from simulator.roots import bracketed_root
from simulator.scenario import Scenario

OUT_OF_REACH = "no acceptance gives the published speedup at the smallest batch"
NO_CROSSING = "the predicted speedup does not cross 1 near the published batches"

_TOLERANCE = 1e-3
_BEYOND = (1.5, 2.0, 3.0, 4.0)
"""Where a prediction may cross 1 beyond the published batches: up to a factor 4 from either end."""


@dataclass(frozen=True)
class CurveQuestion:
    """The points of a curve by batch, and of what was published nothing but the first speedup."""

    points: tuple[Question, ...]
    batches: tuple[float, ...]
    anchor: float
    speedup_of: str | None
    crosses: bool
    """Whether the published curve crosses 1: else nobody asks where the predicted one does."""

    @staticmethod
    def of(curve: Curve) -> CurveQuestion:
        """What is asked about a curve."""
        return CurveQuestion(
            points=tuple(question_of(trial) for trial in curve.trials),
            batches=curve.batches,
            anchor=curve.published[0],
            speedup_of=curve.trials[0].case.speedup_of,
            crosses=curve.crossing is not None,
        )

    @property
    def key(self) -> str:
        """What questions share price tables by."""
        return setup_key(self.points[0])


@dataclass(frozen=True)
class CurveAnswer:
    """The speedups after the first batch, simulated and by the closed form, and the crossing.

    Empty and None where there are none; `missing` and `no_crossing` say why.
    """

    shape: tuple[float, ...] = ()
    closed_form: tuple[float, ...] = ()
    crossing: float | None = None
    interval: tuple[float, float] | None = None
    missing: str | None = None
    no_crossing: str | None = None


class CurvePoint:
    """Both arms at one load; the plain one runs once. Raises InputError for what cannot be simulated."""

    def __init__(self, question: Question, speedup_of: str | None, alter: Alteration | None = None) -> None:
        assert question.plain is not None
        assert question.spec is not None
        self.question, self.speedup_of = question, speedup_of
        self.arms = compiled_arm(question.plain, False, alter), compiled_arm(question.spec, True, alter)

    @cached_property
    def plain(self) -> Figures:
        """Figures of plain decoding."""
        return self._run(0)

    def speedup(self, acceptance: AcceptanceModel | None = None, step_scale: float = 1.0) -> float:
        """The speedup in the source's terms; NaN where there is none."""
        return speedup_of_figures(self.plain, self._run(1, acceptance, step_scale), self.speedup_of)

    def with_alpha(self, alpha: float) -> AcceptanceModel:
        """Independent drafts with this acceptance over all rounds. A lookup finds drafts in as many rounds
        as the trial's own model has, or in more where all of those accepted would still be too few.
        """
        model = next((one for one in self.arms[1].acceptance if one is not None), None)
        if not isinstance(model, Gated):
            return Geometric(alpha)
        match = max(model.match_probability, alpha)
        rate = alpha / match if match > 0 else 0.0
        return Gated(match, model.stickiness, first=rate, run=rate)

    @cached_property
    def overhead(self) -> float:
        """Speculative ÷ plain uniform step, less 1."""
        plain, spec = (uniform_step(arm, self.plain)["total"] for arm in self.arms)
        return spec / plain - 1

    def _run(self, at: int, acceptance: AcceptanceModel | None = None, step_scale: float = 1.0) -> Figures:
        found = run_figures(self.arms[at], self.question, acceptance, step_scale)
        if found is None:
            raise InputError(DOES_NOT_FIT)
        return found


def answer_curve(question: CurveQuestion, alter: Alteration | None = None) -> CurveAnswer:
    """Simulate a curve."""
    try:
        points = [CurvePoint(point, question.speedup_of, alter) for point in question.points]
        shape, closed_form = _shape(points, question.anchor)
        answer = CurveAnswer(shape, closed_form, missing=None if shape else OUT_OF_REACH)
        if not question.crosses:
            return answer
        crossing, interval = _crossing(points, question, alter)
        reason = None if crossing is not None else NO_CROSSING
        return replace(answer, crossing=crossing, interval=interval, no_crossing=reason)
    except InputError as error:
        reason = str(error.problems[0].message)
        return CurveAnswer(missing=reason, no_crossing=reason)


def _shape(points: Sequence[CurvePoint], anchor: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Speedups after the first batch with its acceptance, simulated and by E / (1 + o); else empty."""

    def excess(alpha: float) -> float:
        return math.log(points[0].speedup(points[0].with_alpha(alpha)) / anchor)

    try:
        alpha = bracketed_root(excess, 0.0, 1.0, tolerance=_TOLERANCE)
    except ValueError:
        return (), ()
    closed = (anchor * (1 + points[0].overhead) / (1 + point.overhead) for point in points[1:])
    return tuple(point.speedup(point.with_alpha(alpha)) for point in points[1:]), tuple(closed)


def _crossing(
    points: Sequence[CurvePoint], question: CurveQuestion, alter: Alteration | None
) -> tuple[float | None, tuple[float, float] | None]:
    """Where the predicted speedup crosses 1, and the interval in which it does within the band.

    An end of the band that does not cross leaves the interval open towards the last batch looked at.
    """
    low, high = question.batches[0], question.batches[-1]
    below = [low / factor for factor in reversed(_BEYOND) if low / factor >= 1]
    batches = [*below, *question.batches, *(high * factor for factor in _BEYOND)]
    ends = (points[0].question, low), (points[-1].question, high)
    before = [_moved(*ends[0], batch, question.speedup_of, alter) for batch in below]
    after = [_moved(*ends[1], high * factor, question.speedup_of, alter) for factor in _BEYOND]
    everywhere = [*before, *points, *after]
    curves = [
        [point.speedup(step_scale=scale) for point in everywhere]
        for scale in (1.0, 1 - STEP_BAND, 1 + STEP_BAND)
    ]
    crossings = [crossing_of(batches, curve) for curve in curves]
    if crossings[0] is None:
        return None, None
    found = [
        _end_of(batches, curve) if crossing is None else crossing
        for curve, crossing in zip(curves, crossings, strict=True)
    ]
    return crossings[0], (min(found), max(found))


def _end_of(batches: Sequence[float], curve: Sequence[float]) -> float:
    """Towards where a curve that stays on one side of 1 would cross it: where it is closest to 1."""
    return min(zip(batches, curve, strict=True), key=lambda point: abs(math.log(point[1])))[0]


def _moved(
    question: Question, from_batch: float, to_batch: float, speedup_of: str | None, alter: Alteration | None
) -> CurvePoint:
    """The point at another batch, in the steady state."""
    assert question.plain is not None
    assert question.spec is not None
    plain, spec = (_scaled(one, to_batch / from_batch) for one in (question.plain, question.spec))
    return CurvePoint(replace(question, plain=plain, spec=spec, sent=None), speedup_of, alter)


def _scaled(scenario: Scenario, factor: float) -> Scenario:
    arrivals = scenario.workload.arrivals
    assert arrivals.kind == "closed"
    return scenario_at(scenario, {"concurrency": max(1, round(arrivals.concurrency * factor))})
