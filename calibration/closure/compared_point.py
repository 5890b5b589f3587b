"""Predicted and measured points compared: errors of a point and of all points, and targets."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from calibration.closure.measured_point import MeasuredPoint
from calibration.closure.predicted_point import PredictedPoint
from calibration.closure.text_check import TextCheck
from simulator.breakeven.root_search import FOUND

_MIN_ACCEPTED = 0.05
"""With a smaller share of accepted drafts, equal texts prove little."""


@dataclass(frozen=True)
class ComparedPoint:
    """A point, measured and predicted. Errors are ln(predicted ÷ measured)."""

    measured: MeasuredPoint
    predicted: PredictedPoint

    @property
    def steps(self) -> dict[str, tuple[float, float]]:
        """Measured and predicted seconds by kind of step."""
        measured, predicted = self.measured, self.predicted
        return {
            "plain step": (measured.plain_s, predicted.plain_s),
            "verify pass": (measured.verify_s, predicted.verify_s),
            "draft pass": (measured.draft_pass_s, predicted.draft_pass_s),
            "cycle": (measured.cycle_s, predicted.cycle_s),
        }

    @property
    def step_errors(self) -> list[float]:
        """Errors of all kinds of steps."""
        return [math.log(predicted_s / measured_s) for measured_s, predicted_s in self.steps.values()]

    @property
    def ratio_error(self) -> float:
        """Error of verify ÷ plain."""
        return math.log(self.predicted.verify_ratio / self.measured.verify_ratio)

    @property
    def speedup_errors(self) -> list[float]:
        """Errors of the speedups, one per dialled acceptance."""
        predicted = self.predicted.speedups
        dials = [dial for dial in self.measured.dials if dial.alpha in predicted]
        return [math.log(predicted[dial.alpha] / dial.speedup) for dial in dials]

    @property
    def alphas(self) -> tuple[float, float] | None:
        """Measured and predicted break-even acceptance, if both exist."""
        outcome, measured = self.measured.break_even
        predicted = self.predicted.break_even_alpha
        return None if outcome != FOUND or measured is None or predicted is None else (measured, predicted)

    @property
    def agrees_without_break_even(self) -> bool:
        """Whether both agree that no acceptance breaks even, or that every acceptance does."""
        outcome, _ = self.measured.break_even
        return outcome != FOUND and outcome == self.predicted.outcome

    def to_json(self) -> list[dict[str, Any]]:
        """One entry of `points` per dialled acceptance."""
        point, measured, predicted = self.measured.point, self.measured, self.predicted
        common = {
            "batch": point.batch,
            "draft_length": point.draft_length,
            "context": point.context,
            "draft_layers": point.draft_layers,
            "temperature": point.temperature,
            "pairs": len(measured.pairs),
            "measured_plain_step_s": measured.plain_s,
            "predicted_plain_step_s": predicted.plain_s,
            "measured_verify_s": measured.verify_s,
            "predicted_verify_s": predicted.verify_s,
            "measured_draft_pass_s": measured.draft_pass_s,
            "predicted_draft_pass_s": predicted.draft_pass_s,
            "measured_verify_ratio": measured.verify_ratio,
            "predicted_verify_ratio": predicted.verify_ratio,
            "measured_step_s": measured.cycle_s,
            "predicted_step_s": predicted.cycle_s,
        }
        return [
            common
            | {
                "alpha": dial.alpha,
                "measured_tokens_per_cycle": dial.tokens,
                "measured_speedup": dial.speedup,
                "predicted_speedup": predicted.speedups.get(dial.alpha),
            }
            for dial in measured.dials
        ]


@dataclass(frozen=True)
class ClosureTarget:
    """A limit and the value reached."""

    name: str
    limit: float
    value: float | None
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the limit holds; False without a value."""
        if self.value is None:
            return False
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def to_json(self) -> dict[str, Any]:
        """One entry of `targets`."""
        return {"name": self.name, "limit": self.limit, "value": self.value, "met": self.met}


@dataclass(frozen=True)
class ClosureSummary:
    """Errors over all points."""

    compared: tuple[ComparedPoint, ...]
    texts: TextCheck
    min_break_evens: int

    @cached_property
    def _error_summaries(self) -> dict[str, tuple[float | None, float | None]]:
        errors: dict[str, Iterable[float]] = {
            "step": [error for point in self.compared for error in point.step_errors],
            "ratio": [point.ratio_error for point in self.compared],
            "speedup": [error for point in self.compared for error in point.speedup_errors],
        }
        return {name: _median_and_p90([abs(e) for e in values]) for name, values in errors.items()}

    @property
    def break_evens(self) -> list[tuple[ComparedPoint, float, float]]:
        """Points with a measured and a predicted break-even: (point, measured, predicted)."""
        return [(point, *point.alphas) for point in self.compared if point.alphas is not None]

    @property
    def _inner_break_evens(self) -> list[tuple[ComparedPoint, float, float]]:
        return [entry for entry in self.break_evens if 0.05 <= entry[1] <= 0.95]

    @property
    def targets(self) -> tuple[ClosureTarget, ...]:
        """The targets of the closed loop on a quiet machine."""
        limits = {"step": (0.05, 0.10), "ratio": (0.04, 0.08), "speedup": (0.05, 0.10)}
        names = {"step": "step time", "ratio": "verify / plain", "speedup": "paired speedup"}
        errors = [
            ClosureTarget(f"{names[name]}, {statistic}", limit, value)
            for name, pair in limits.items()
            for statistic, limit, value in zip(
                ("median", "P90"), pair, self._error_summaries[name], strict=True
            )
        ]
        differences = [abs(predicted - measured) for _, measured, predicted in self._inner_break_evens]
        settings = {
            (p.batch, p.draft_length)
            for p in (point.measured.point for point, _, _ in self._inner_break_evens)
        }
        disagree = sum(p.alphas is None and not p.agrees_without_break_even for p in self.compared)
        unpredicted = sum(len(p.measured.dials) - len(p.speedup_errors) for p in self.compared)
        return (
            *errors,
            ClosureTarget("break-even acceptance, largest difference", 0.06, max(differences, default=None)),
            ClosureTarget(
                "(batch, K) with a bracketed break-even", self.min_break_evens, len(settings), at_least=True
            ),
            ClosureTarget("points where one side alone breaks even", 0, disagree),
            ClosureTarget("dialled acceptances without a prediction", 0, unpredicted),
            ClosureTarget(
                "share of drafts accepted in texts that stay equal",
                _MIN_ACCEPTED,
                self._accepted_in_equal_texts,
                at_least=True,
            ),
        )

    @property
    def _accepted_in_equal_texts(self) -> float:
        return self.texts.accepted if self.texts.equal else 0.0

    def to_json(self) -> dict[str, Any]:
        """The entry `summary`."""
        figures: dict[str, Any] = {}
        for name, (median, p90) in self._error_summaries.items():
            figures |= {f"{name}_median_abs_log_error": median, f"{name}_p90_abs_log_error": p90}
        return figures | {
            "breakeven": [
                _setting(point) | {"measured_alpha": measured, "predicted_alpha": predicted}
                for point, measured, predicted in self.break_evens
            ],
            "no_breakeven": [
                _setting(point)
                | {"measured": point.measured.break_even[0], "predicted": point.predicted.outcome}
                | {"agree": point.agrees_without_break_even}
                for point in self.compared
                if point.alphas is None
            ],
            "targets": [target.to_json() for target in self.targets],
        }


def without_figures() -> dict[str, Any]:
    """The entry `summary` of a run on a busy machine."""
    empty = ClosureSummary((), TextCheck(True, 1.0), 0).to_json()
    return {name: None for name in empty}


def _setting(compared: ComparedPoint) -> dict[str, Any]:
    point = compared.measured.point
    return {
        "batch": point.batch,
        "draft_length": point.draft_length,
        "context": point.context,
        "draft_layers": point.draft_layers,
        "temperature": point.temperature,
    }


def _median_and_p90(sizes: Sequence[float]) -> tuple[float | None, float | None]:
    if not sizes:
        return None, None
    median, p90 = np.quantile(sizes, [0.5, 0.9])
    return float(median), float(p90)
