"""PredictedPoint against measured: errors of a point, of all points, and what they are held to."""

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

_LEAST_ACCEPTED = 0.05
"""With fewer of its drafts accepted, an equal text proves little."""


@dataclass(frozen=True)
class ComparedPoint:
    """A point, both ways. Errors are ln(predicted / measured)."""

    measured: MeasuredPoint
    predicted: PredictedPoint

    @property
    def steps(self) -> dict[str, tuple[float, float]]:
        """MeasuredPoint and predicted seconds by kind of step."""
        mine, its = self.measured, self.predicted
        return {
            "plain step": (mine.plain_s, its.plain_s),
            "verify pass": (mine.verify_s, its.verify_s),
            "draft pass": (mine.draft_pass_s, its.draft_pass_s),
            "cycle": (mine.cycle_s, its.cycle_s),
        }

    @property
    def step_errors(self) -> list[float]:
        """Of all kinds of steps."""
        return [math.log(its / mine) for mine, its in self.steps.values()]

    @property
    def ratio_error(self) -> float:
        """Of verify / plain."""
        return math.log(self.predicted.verify_ratio / self.measured.verify_ratio)

    @property
    def speedup_errors(self) -> list[float]:
        """One per dialled acceptance."""
        found = self.predicted.speedups
        dials = [dial for dial in self.measured.dials if dial.alpha in found]
        return [math.log(found[dial.alpha] / dial.speedup) for dial in dials]

    @property
    def alphas(self) -> tuple[float, float] | None:
        """MeasuredPoint and predicted break-even acceptance, where both exist."""
        outcome, mine = self.measured.break_even
        its = self.predicted.break_even_alpha
        return None if outcome != FOUND or mine is None or its is None else (mine, its)

    @property
    def agrees_without_break_even(self) -> bool:
        """Whether both say that no acceptance breaks even, or that any does."""
        outcome, _ = self.measured.break_even
        return outcome != FOUND and outcome == self.predicted.outcome

    def to_json(self) -> list[dict[str, Any]]:
        """One entry of `points` per dialled acceptance."""
        point, mine, its = self.measured.point, self.measured, self.predicted
        common = {
            "batch": point.batch,
            "draft_length": point.draft_length,
            "context": point.context,
            "draft_layers": point.draft_layers,
            "temperature": point.temperature,
            "pairs": len(mine.pairs),
            "measured_plain_step_s": mine.plain_s,
            "predicted_plain_step_s": its.plain_s,
            "measured_verify_s": mine.verify_s,
            "predicted_verify_s": its.verify_s,
            "measured_draft_pass_s": mine.draft_pass_s,
            "predicted_draft_pass_s": its.draft_pass_s,
            "measured_verify_ratio": mine.verify_ratio,
            "predicted_verify_ratio": its.verify_ratio,
            "measured_step_s": mine.cycle_s,
            "predicted_step_s": its.cycle_s,
        }
        return [
            common
            | {
                "alpha": dial.alpha,
                "measured_tokens_per_cycle": dial.tokens,
                "measured_speedup": dial.speedup,
                "predicted_speedup": its.speedups.get(dial.alpha),
            }
            for dial in mine.dials
        ]


@dataclass(frozen=True)
class ClosureTarget:
    """A limit and what was reached."""

    name: str
    limit: float
    value: float | None
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the limit holds; no value, no."""
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
    fewest_break_evens: int

    @cached_property
    def _sizes(self) -> dict[str, tuple[float | None, float | None]]:
        errors: dict[str, Iterable[float]] = {
            "step": [error for one in self.compared for error in one.step_errors],
            "ratio": [one.ratio_error for one in self.compared],
            "speedup": [error for one in self.compared for error in one.speedup_errors],
        }
        return {name: _median_and_p90([abs(e) for e in found]) for name, found in errors.items()}

    @property
    def break_evens(self) -> list[tuple[ComparedPoint, float, float]]:
        """Points with a break-even on both sides: measured, predicted."""
        return [(one, *one.alphas) for one in self.compared if one.alphas is not None]

    @property
    def _inner(self) -> list[tuple[ComparedPoint, float, float]]:
        return [found for found in self.break_evens if 0.05 <= found[1] <= 0.95]

    @property
    def targets(self) -> tuple[ClosureTarget, ...]:
        """What the closed loop is held to on a quiet machine."""
        limits = {"step": (0.05, 0.10), "ratio": (0.04, 0.08), "speedup": (0.05, 0.10)}
        names = {"step": "step time", "ratio": "verify / plain", "speedup": "paired speedup"}
        errors = [
            ClosureTarget(f"{names[name]}, {which}", limit, value)
            for name, pair in limits.items()
            for which, limit, value in zip(("median", "P90"), pair, self._sizes[name], strict=True)
        ]
        apart = [abs(its - mine) for _, mine, its in self._inner]
        places = {(p.batch, p.draft_length) for p in (one.measured.point for one, _, _ in self._inner)}
        disagree = sum(one.alphas is None and not one.agrees_without_break_even for one in self.compared)
        unpredicted = sum(len(one.measured.dials) - len(one.speedup_errors) for one in self.compared)
        return (
            *errors,
            ClosureTarget("break-even acceptance, largest difference", 0.06, max(apart, default=None)),
            ClosureTarget(
                "(batch, K) with a bracketed break-even", self.fewest_break_evens, len(places), at_least=True
            ),
            ClosureTarget("points where one side alone breaks even", 0, disagree),
            ClosureTarget("dialled acceptances without a prediction", 0, unpredicted),
            ClosureTarget(
                "share of drafts accepted in texts that stay equal",
                _LEAST_ACCEPTED,
                self._proved,
                at_least=True,
            ),
        )

    @property
    def _proved(self) -> float:
        return self.texts.accepted if self.texts.equal else 0.0

    def to_json(self) -> dict[str, Any]:
        """The entry `summary`."""
        figures: dict[str, Any] = {}
        for name, (median, p90) in self._sizes.items():
            figures |= {f"{name}_median_abs_log_error": median, f"{name}_p90_abs_log_error": p90}
        return figures | {
            "breakeven": [
                _place(one) | {"measured_alpha": mine, "predicted_alpha": its}
                for one, mine, its in self.break_evens
            ],
            "no_breakeven": [
                _place(one)
                | {"measured": one.measured.break_even[0], "predicted": one.predicted.outcome}
                | {"agree": one.agrees_without_break_even}
                for one in self.compared
                if one.alphas is None
            ],
            "targets": [target.to_json() for target in self.targets],
        }


def without_figures() -> dict[str, Any]:
    """The entry `summary` of a run on a busy machine."""
    empty = ClosureSummary((), TextCheck(True, 1.0), 0).to_json()
    return {name: None for name in empty}


def _place(one: ComparedPoint) -> dict[str, Any]:
    point = one.measured.point
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
