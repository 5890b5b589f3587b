"""One curve of speedup over batch, simulated: its shape, and where it crosses 1.

*Shape*: the acceptance of the curve is that of independent drafts (of a lookup: where it finds some) with
which the simulated speedup at the smallest batch is the published one; the rest of the curve is predicted. It
needs no published acceptance, and tells how the costs change with the load. The closed form does the same: E
from the smallest batch, then E / (1 + o). *Crossing*: with the trials' own acceptance, the batch at which the
predicted speedup crosses 1, and those at which it does with the speculative variant's decodes at either
end of
the cost model's band.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from calibration.validation.curves import Curve, crossing_of
from calibration.validation.predict import (
    DOES_NOT_FIT,
    Alteration,
    Figures,
    Question,
    compiled_variant,
    run_figures,
    seated,
    uniform_step,
)
from calibration.validation.quantities import speedup_of_figures
from calibration.validation.row import question_of
from calibration.validation.run import setup_key
from simulator.acceptance import AcceptanceModel, Gated, Hierarchical
from simulator.breakeven.simulated_evaluator import scenario_at
from simulator.errors import InputError
from simulator.numerics.roots import bracketed_root
from simulator.results.summary import STEP_BAND
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
class Crossing:
    """The batch at which a predicted speedup crosses 1, and the interval in which it does within the band.

    `missing` says why there is none.
    """

    batch: float | None = None
    interval: tuple[float, float] | None = None
    missing: str | None = None


@dataclass(frozen=True)
class CurveAnswer:
    """The speedups after the first batch, simulated and by the closed form; empty where `missing` says why.

    `crossing`: with the trials' own acceptance; `shape_crossing`: with that of the first batch.
    """

    shape: tuple[float, ...] = ()
    closed_form: tuple[float, ...] = ()
    missing: str | None = None
    crossing: Crossing = Crossing()
    shape_crossing: Crossing = Crossing()

    @staticmethod
    def failed(reason: str) -> CurveAnswer:
        """No answer to any of it, and why."""
        nowhere = Crossing(missing=reason)
        return CurveAnswer(missing=reason, crossing=nowhere, shape_crossing=nowhere)


class CurvePoint:
    """Both variants at one load; the plain one runs once. Raises InputError for what cannot be simulated."""

    def __init__(self, question: Question, speedup_of: str | None, alter: Alteration | None = None) -> None:
        assert question.plain is not None
        assert question.spec is not None
        self.question, self.speedup_of = question, speedup_of
        self.variants = (
            compiled_variant(question.plain, False, alter),
            compiled_variant(question.spec, True, alter),
        )

    @cached_property
    def plain(self) -> Figures:
        """Figures of plain decoding."""
        return self._run(0)

    def speedup(self, acceptance: AcceptanceModel | None = None, step_scale: float = 1.0) -> float:
        """The speedup in the source's terms; NaN where there is none."""
        return speedup_of_figures(self.plain, self._run(1, acceptance, step_scale), self.speedup_of)

    def with_alpha(self, alpha: float) -> AcceptanceModel:
        """Independent drafts of requests that differ as the trial's do; this is the acceptance of one in the
        middle. A lookup finds drafts in as many rounds as the trial's own model has, or in more where all of
        those accepted would still be too few.
        """
        model = next((one for one in self.variants[1].acceptance if one is not None), None)
        if not isinstance(model, Gated):
            return Hierarchical.from_alpha(alpha, request_sd=model.effects.request_sd if model else 0.0)
        match = max(model.match_probability, alpha)
        rate = alpha / match if match > 0 else 0.0
        return Gated(match, model.stickiness, first=rate, run=rate, request_sd=model.request_sd)

    @cached_property
    def overhead(self) -> float:
        """Speculative ÷ plain uniform step, less 1, each for the requests that have a seat in it."""
        plain, spec = (
            uniform_step(variant, self.plain)["total"] / seated(variant, self.plain)
            for variant in self.variants
        )
        return spec / plain - 1

    def _run(self, at: int, acceptance: AcceptanceModel | None = None, step_scale: float = 1.0) -> Figures:
        found = run_figures(self.variants[at], self.question, acceptance, step_scale)
        if found is None:
            raise InputError(DOES_NOT_FIT)
        return found


def answer_curve(question: CurveQuestion, alter: Alteration | None = None) -> CurveAnswer:
    """Simulate a curve."""
    try:
        points = [CurvePoint(point, question.speedup_of, alter) for point in question.points]
        alpha = _alpha(points[0], question.anchor)
        answer = CurveAnswer.failed(OUT_OF_REACH)
        if alpha is not None:
            shape = tuple(point.speedup(point.with_alpha(alpha)) for point in points[1:])
            whole = question.anchor * (1 + points[0].overhead)
            answer = CurveAnswer(shape, tuple(whole / (1 + point.overhead) for point in points[1:]))
        if not question.crosses:
            return answer
        everywhere = _extended(points, question, alter)
        answer = replace(answer, crossing=_crossing(everywhere))
        return answer if alpha is None else replace(answer, shape_crossing=_crossing(everywhere, alpha))
    except InputError as error:
        return CurveAnswer.failed(str(error.problems[0].message))


def _alpha(first: CurvePoint, anchor: float) -> float | None:
    """The acceptance with which the simulated speedup of the first point is the published one."""
    try:
        return bracketed_root(
            lambda alpha: math.log(first.speedup(first.with_alpha(alpha)) / anchor),
            0.0,
            1.0,
            tolerance=_TOLERANCE,
        )
    except ValueError:
        return None


def _extended(
    points: Sequence[CurvePoint], question: CurveQuestion, alter: Alteration | None
) -> dict[float, CurvePoint]:
    """Batch → point: the published ones, and some beyond either end."""
    low, high = question.batches[0], question.batches[-1]
    found = dict(zip(question.batches, points, strict=True))
    for factor in _BEYOND:
        found[high * factor] = _moved(points[-1].question, factor, question.speedup_of, alter)
        if low / factor >= 1:
            found[low / factor] = _moved(points[0].question, 1 / factor, question.speedup_of, alter)
    return dict(sorted(found.items()))


def _crossing(points: Mapping[float, CurvePoint], alpha: float | None = None) -> Crossing:
    """Where the predicted speedup crosses 1, with the points' own acceptance or that of `alpha`.

    An end of the band that does not cross leaves the interval open towards the last batch looked at.
    """
    batches = list(points)
    curves = [
        [
            point.speedup(None if alpha is None else point.with_alpha(alpha), scale)
            for point in points.values()
        ]
        for scale in (1.0, 1 - STEP_BAND, 1 + STEP_BAND)
    ]
    crossings = [crossing_of(batches, curve) for curve in curves]
    if crossings[0] is None:
        return Crossing(missing=NO_CROSSING)
    found = [
        _end_of(batches, curve) if crossing is None else crossing
        for curve, crossing in zip(curves, crossings, strict=True)
    ]
    return Crossing(crossings[0], (min(found), max(found)))


def _end_of(batches: Sequence[float], curve: Sequence[float]) -> float:
    """Towards where a curve that stays on one side of 1 would cross it: where it is closest to 1."""
    return min(zip(batches, curve, strict=True), key=lambda point: abs(math.log(point[1])))[0]


def _moved(question: Question, factor: float, speedup_of: str | None, alter: Alteration | None) -> CurvePoint:
    """The point at so many times its batch, in the steady state."""
    assert question.plain is not None
    assert question.spec is not None
    plain, spec = (_scaled(one, factor) for one in (question.plain, question.spec))
    return CurvePoint(replace(question, plain=plain, spec=spec, sent=None), speedup_of, alter)


def _scaled(scenario: Scenario, factor: float) -> Scenario:
    arrivals = scenario.workload.arrivals
    assert arrivals.kind == "closed"
    return scenario_at(scenario, {"concurrency": max(1, round(arrivals.concurrency * factor))})
