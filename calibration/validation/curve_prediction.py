"""Predicts one curve of speedup over batch: its shape, and where it crosses 1.

*Shape*: the acceptance is chosen so that the simulated speedup at the smallest batch equals the published
one. Drafts are independent; for prompt lookup, this holds in rounds with a match. The rest of the curve is
predicted. So the shape needs no published acceptance and tests how costs change with the load. The closed
form is treated alike: E from the smallest batch, then E / (1 + o). *Crossing*: the batch at which the
predicted speedup crosses 1 with the runs' own acceptance, and the interval of batches where it crosses with
the speculative decode steps at either end of the cost model's band.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from calibration.validation.compare import setup_key
from calibration.validation.predict import (
    DOES_NOT_FIT,
    Alteration,
    PredictionInput,
    RunFigures,
    compiled_variant,
    run_figures,
    running_requests,
    uniform_step,
)
from calibration.validation.quantities import speedup_of_figures
from calibration.validation.row import input_of
from calibration.validation.speedup_curves import SpeedupCurve, crossing_of
from simulator.acceptance import AcceptanceModel, Gated, Hierarchical
from simulator.breakeven.simulated_evaluator import scenario_at
from simulator.errors import InputError
from simulator.numerics.roots import bracketed_root
from simulator.results.summary import STEP_BAND
from simulator.scenario import Scenario

UNREACHABLE = "no acceptance gives the published speedup at the smallest batch"
NO_CROSSING = "the predicted speedup does not cross 1 near the published batches"

_TOLERANCE = 1e-3
_EXTENSION_FACTORS = (1.5, 2.0, 3.0, 4.0)
"""Batches beyond either end of the published ones, as factors, where a prediction may still cross 1."""


@dataclass(frozen=True)
class CurveInput:
    """The points of a curve by batch. Of the published figures it holds only the first speedup, `anchor`."""

    points: tuple[PredictionInput, ...]
    batches: tuple[float, ...]
    anchor: float
    speedup_of: str | None
    crosses: bool
    """Whether the published curve crosses 1; otherwise the predicted crossing is not computed."""

    @staticmethod
    def of(curve: SpeedupCurve) -> CurveInput:
        """The input for a published curve."""
        return CurveInput(
            points=tuple(input_of(run) for run in curve.runs),
            batches=curve.batches,
            anchor=curve.published[0],
            speedup_of=curve.runs[0].case.speedup_of,
            crosses=curve.crossing is not None,
        )

    @property
    def key(self) -> str:
        """Key of the price tables: inputs with the same key share them."""
        return setup_key(self.points[0])


@dataclass(frozen=True)
class Crossing:
    """The batch at which a predicted speedup crosses 1, and the interval of crossings within the band.

    `missing`: why there is no crossing.
    """

    batch: float | None = None
    interval: tuple[float, float] | None = None
    missing: str | None = None


@dataclass(frozen=True)
class CurvePrediction:
    """The speedups after the first batch, simulated and by the closed form; empty where `missing` has a
    reason.

    `crossing` uses the runs' own acceptance, `shape_crossing` the one fitted at the first batch.
    """

    shape: tuple[float, ...] = ()
    closed_form: tuple[float, ...] = ()
    missing: str | None = None
    crossing: Crossing = Crossing()
    shape_crossing: Crossing = Crossing()

    @staticmethod
    def failed(reason: str) -> CurvePrediction:
        """A prediction without any figure, for this reason."""
        no_crossing = Crossing(missing=reason)
        return CurvePrediction(missing=reason, crossing=no_crossing, shape_crossing=no_crossing)


class CurvePoint:
    """Both variants at one load; the plain one runs once. Raises InputError for a variant that cannot be
    simulated.
    """

    def __init__(
        self, task: PredictionInput, speedup_of: str | None, alter: Alteration | None = None
    ) -> None:
        assert task.plain is not None
        assert task.spec is not None
        self.task, self.speedup_of = task, speedup_of
        self.variants = (
            compiled_variant(task.plain, False, alter),
            compiled_variant(task.spec, True, alter),
        )

    @cached_property
    def plain(self) -> RunFigures:
        """Figures of plain decoding."""
        return self._run(0)

    def speedup(self, acceptance: AcceptanceModel | None = None, step_scale: float = 1.0) -> float:
        """The speedup in the source's terms; NaN where a figure is missing."""
        return speedup_of_figures(self.plain, self._run(1, acceptance, step_scale), self.speedup_of)

    def with_alpha(self, alpha: float) -> AcceptanceModel:
        """Independent drafts with acceptance `alpha` at the median request, and the run's spread between
        requests.

        Prompt lookup finds a match in as many rounds as in the run's own model, or in more rounds where
        accepting every draft of those would still be too few.
        """
        model = next((model for model in self.variants[1].acceptance if model is not None), None)
        if not isinstance(model, Gated):
            return Hierarchical.from_alpha(alpha, request_sd=model.effects.request_sd if model else 0.0)
        match = max(model.match_probability, alpha)
        rate = alpha / match if match > 0 else 0.0
        return Gated(match, model.stickiness, first=rate, run=rate, request_sd=model.request_sd)

    @cached_property
    def overhead(self) -> float:
        """Speculative ÷ plain uniform step − 1, each step divided by its running requests."""
        plain, spec = (
            uniform_step(variant, self.plain)["total"] / running_requests(variant, self.plain)
            for variant in self.variants
        )
        return spec / plain - 1

    def _run(
        self, variant_index: int, acceptance: AcceptanceModel | None = None, step_scale: float = 1.0
    ) -> RunFigures:
        figures = run_figures(self.variants[variant_index], self.task, acceptance, step_scale)
        if figures is None:
            raise InputError(DOES_NOT_FIT)
        return figures


def predict_curve(task: CurveInput, alter: Alteration | None = None) -> CurvePrediction:
    """Predict a curve. What cannot be simulated has its reason in `missing`."""
    try:
        points = [CurvePoint(point, task.speedup_of, alter) for point in task.points]
        alpha = _alpha(points[0], task.anchor)
        answer = CurvePrediction.failed(UNREACHABLE)
        if alpha is not None:
            shape = tuple(point.speedup(point.with_alpha(alpha)) for point in points[1:])
            tokens_per_verify = task.anchor * (1 + points[0].overhead)
            answer = CurvePrediction(
                shape, tuple(tokens_per_verify / (1 + point.overhead) for point in points[1:])
            )
        if not task.crosses:
            return answer
        extended_points = _extended(points, task, alter)
        answer = replace(answer, crossing=_crossing(extended_points))
        return answer if alpha is None else replace(answer, shape_crossing=_crossing(extended_points, alpha))
    except InputError as error:
        return CurvePrediction.failed(str(error.problems[0].message))


def _alpha(first: CurvePoint, anchor: float) -> float | None:
    """The acceptance with which the simulated speedup of the first point equals the published one."""
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
    points: Sequence[CurvePoint], task: CurveInput, alter: Alteration | None
) -> dict[float, CurvePoint]:
    """Batch → point: the published points, and some beyond either end."""
    low, high = task.batches[0], task.batches[-1]
    points_by_batch = dict(zip(task.batches, points, strict=True))
    for factor in _EXTENSION_FACTORS:
        points_by_batch[high * factor] = _scaled_point(points[-1].task, factor, task.speedup_of, alter)
        if low / factor >= 1:
            points_by_batch[low / factor] = _scaled_point(points[0].task, 1 / factor, task.speedup_of, alter)
    return dict(sorted(points_by_batch.items()))


def _crossing(points: Mapping[float, CurvePoint], alpha: float | None = None) -> Crossing:
    """Where the predicted speedup crosses 1, with the points' own acceptance or with `alpha`.

    If an end of the band does not cross 1, the interval ends at the batch where that curve is closest to 1.
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
    crossing_batches = [
        _closest_batch(batches, curve) if crossing is None else crossing
        for curve, crossing in zip(curves, crossings, strict=True)
    ]
    return Crossing(crossings[0], (min(crossing_batches), max(crossing_batches)))


def _closest_batch(batches: Sequence[float], curve: Sequence[float]) -> float:
    """The batch at which a curve that does not cross 1 is closest to it."""
    return min(zip(batches, curve, strict=True), key=lambda point: abs(math.log(point[1])))[0]


def _scaled_point(
    task: PredictionInput, factor: float, speedup_of: str | None, alter: Alteration | None
) -> CurvePoint:
    """The point at `factor` times its batch, in the steady state."""
    assert task.plain is not None
    assert task.spec is not None
    plain, spec = (_scaled(scenario, factor) for scenario in (task.plain, task.spec))
    return CurvePoint(replace(task, plain=plain, spec=spec, sent=None), speedup_of, alter)


def _scaled(scenario: Scenario, factor: float) -> Scenario:
    arrivals = scenario.workload.arrivals
    assert arrivals.kind == "closed"
    return scenario_at(scenario, {"concurrency": max(1, round(arrivals.concurrency * factor))})
