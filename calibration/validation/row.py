"""One published figure beside the predicted one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from calibration.validation.predict import PLAIN, SPEC, Prediction, Question
from calibration.validation.quantities import SPEEDUP, predicted

if TYPE_CHECKING:
    from calibration.validation.trials.trial import Trial

NO_FIGURE = "the simulation has no such figure"
BOTH = "both"

_NO_GATE_FLAGS = frozenset(
    {
        "speedup_exceeds_acceptance_length",
        "handicapped_baseline",
        "hardware_unknown",
        "config_incomplete",
        "headline_only",
        "marketing",
        "prefix_cached",
    }
)
"""Flags of cases whose figures are no measure of a simulator: shape or acceptance only."""
FORM_NOT_STATED = "gpu_form_not_stated"
"""Flag of cases whose page does not say which H100 it ran on, and another page of the same lab speaks against
the SXM board that is simulated: whole pages, whatever a run shows. Found after the halves of the fit were
drawn, so that nobody changed sides for it.
"""


@dataclass(frozen=True)
class Row:
    """The comparison of one published figure, SI. `predicted` is positive exactly when `skipped` is None.

    `ratio` = predicted ÷ published. `part`: of a cost share, which. `gates`: whether the source is good
    enough to be held against the targets. `closed_form`: what E / (1 + o) says of the same speedup.
    """

    case_id: str
    point: int
    variant: str
    source: str
    gpu: str
    engine: str
    method: str | None
    batch: float | None
    quantity: str
    published: float
    predicted: float | None
    ratio: float | None
    acceptance_from: str
    skipped: str | None
    part: str | None = None
    load: str | None = None
    dataset: str | None = None
    draft_length: int | None = None
    gates: bool = True
    research: bool = False
    """Ran on code of a paper, no serving engine."""
    closed_form: float | None = None
    interval: tuple[float, float] | None = None
    """Of a crossover: where the band of the predicted speedup crosses 1."""
    acceptance_note: str = ""
    choices: tuple[str, ...] = ()

    @property
    def log_error(self) -> float:
        """ln(predicted ÷ published); NaN where nothing was predicted."""
        return math.log(self.ratio) if self.ratio is not None else math.nan

    def to_json(self) -> dict[str, Any]:
        """The entry of `cases` in the document of `decodesim validate`."""
        return {"arm" if name == "variant" else name: value for name, value in asdict(self).items()}


def question_of(trial: Trial) -> Question:
    """What is simulated of a trial: its scenarios, and how the client sent its requests."""
    return Question(
        plain=trial.plain,
        spec=trial.spec,
        sent=trial.sent,
        mean_tokens=trial.mean_tokens,
        p99=any(one.quantity.endswith("_p99") for one in trial.published),
        runs=not trial.uniform,
    )


def rows_of(trial: Trial, prediction: Prediction) -> Iterator[Row]:
    """Every published figure of a trial, compared or skipped with its reason."""
    for figure in trial.published:
        value = predicted(prediction, figure.quantity, figure.variant, figure.part, trial.case.speedup_of)
        reason = None
        if not (math.isfinite(value) and value > 0):
            reason = _why_missing(trial, prediction, figure.variant)
        closed = prediction.closed_form if figure.quantity == SPEEDUP else None
        yield row_of(trial, figure.quantity, figure.variant, figure.value, value, reason, figure.part, closed)


def row_of(
    trial: Trial,
    quantity: str,
    variant: str,
    published: float,
    value: float,
    reason: str | None,
    part: str | None = None,
    closed_form: float | None = None,
    interval: tuple[float, float] | None = None,
) -> Row:
    """A row about a trial; `value` counts when there is no `reason` to skip it."""
    case = trial.case
    return Row(
        case_id=case.case_id,
        point=trial.point,
        variant=variant,
        source=case.source_id,
        gpu=trial.gpu,
        engine=trial.engine,
        method=trial.method,
        batch=trial.batch,
        quantity=quantity,
        published=published,
        predicted=value if reason is None else None,
        ratio=value / published if reason is None else None,
        acceptance_from=trial.acceptance_from if variant != PLAIN else "none",
        skipped=reason,
        part=part,
        load=trial.load,
        dataset=trial.dataset,
        draft_length=trial.draft_length,
        gates=gates(trial),
        research=trial.research,
        closed_form=closed_form,
        interval=interval,
        acceptance_note=trial.acceptance_note if variant != PLAIN else "",
        choices=trial.choices,
    )


def gates(trial: Trial) -> bool:
    """Whether the source is good enough to be held against the targets."""
    return good_source(trial) and FORM_NOT_STATED not in trial.case.quality_flags


def good_source(trial: Trial) -> bool:
    """Whether the source was good enough for a place in one of the halves of the fit."""
    case = trial.case
    flagged = _NO_GATE_FLAGS.intersection(case.quality_flags)
    return case.usable_as_gate and case.confidence != "recalled" and not flagged


def _why_missing(trial: Trial, prediction: Prediction, variant: str) -> str:
    reasons = {**prediction.missing, **trial.skipped}
    for name in (SPEC, PLAIN) if variant == BOTH else (variant,):
        if name in reasons:
            return reasons[name]
    return NO_FIGURE
