"""One published figure compared with the predicted one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from calibration.validation.predict import PLAIN, SPEC, Prediction, PredictionInput
from calibration.validation.quantities import SPEEDUP, predicted

if TYPE_CHECKING:
    from calibration.validation.reconstruction.published_run import PublishedRun

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
"""Flags of cases whose absolute figures cannot test a simulator; only their shape or acceptance is used."""
FORM_NOT_STATED = "gpu_form_not_stated"
"""Flag of cases whose page does not state which H100 was used, while another page of the same lab suggests a
board other than the simulated SXM. The flag applies to whole pages, whatever a run shows. It was introduced
after the sources were split for the fit, so the split does not depend on it.
"""


@dataclass(frozen=True)
class ComparisonRow:
    """The comparison of one published figure, in SI units. `predicted` is positive exactly when `skipped` is
    None.

    `ratio` = predicted ÷ published. `part`: the part of a step, for a cost share. `gates`: whether the source
    is good enough to count for the targets. `closed_form`: the same speedup by E / (1 + o).
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
    """Whether it ran on a paper's code rather than a serving engine."""
    closed_form: float | None = None
    interval: tuple[float, float] | None = None
    """For a crossover: the batches between which the band of the predicted speedup crosses 1."""
    acceptance_note: str = ""
    choices: tuple[str, ...] = ()

    @property
    def log_error(self) -> float:
        """ln(predicted ÷ published); NaN where nothing was predicted."""
        return math.log(self.ratio) if self.ratio is not None else math.nan

    def to_json(self) -> dict[str, Any]:
        """The entry of `cases` in the document of `decodesim validate`."""
        return {"arm" if name == "variant" else name: value for name, value in asdict(self).items()}


def input_of(run: PublishedRun) -> PredictionInput:
    """The part of a published run that is simulated: its scenarios, and how the client sent its requests."""
    return PredictionInput(
        plain=run.plain,
        spec=run.spec,
        sent=run.sent,
        mean_tokens=run.mean_tokens,
        p99=any(figure.quantity.endswith("_p99") for figure in run.published),
        runs=not run.uniform,
    )


def rows_of(run: PublishedRun, prediction: Prediction) -> Iterator[ComparisonRow]:
    """A row for every published figure of a run, compared, or skipped with a reason."""
    for figure in run.published:
        value = predicted(
            prediction, figure.quantity, figure.variant, figure.part, run.case.speedup_of, figure.per_token
        )
        reason = figure.not_comparable
        if reason is None and not (math.isfinite(value) and value > 0):
            reason = _why_missing(run, prediction, figure.variant)
        closed = prediction.closed_form if figure.quantity == SPEEDUP else None
        yield row_of(run, figure.quantity, figure.variant, figure.value, value, reason, figure.part, closed)


def row_of(
    run: PublishedRun,
    quantity: str,
    variant: str,
    published: float,
    value: float,
    reason: str | None,
    part: str | None = None,
    closed_form: float | None = None,
    interval: tuple[float, float] | None = None,
) -> ComparisonRow:
    """A row about a run; `value` is ignored when there is a `reason` to skip it."""
    case = run.case
    return ComparisonRow(
        case_id=case.case_id,
        point=run.point,
        variant=variant,
        source=case.source_id,
        gpu=run.gpu,
        engine=run.engine,
        method=run.method,
        batch=run.batch,
        quantity=quantity,
        published=published,
        predicted=value if reason is None else None,
        ratio=value / published if reason is None else None,
        acceptance_from=run.acceptance_from if variant != PLAIN else "none",
        skipped=reason,
        part=part,
        load=run.load,
        dataset=run.dataset,
        draft_length=run.draft_length,
        gates=gates(run),
        research=run.research,
        closed_form=closed_form,
        interval=interval,
        acceptance_note=run.acceptance_note if variant != PLAIN else "",
        choices=run.choices,
    )


def gates(run: PublishedRun) -> bool:
    """Whether the source is good enough to count for the targets."""
    return good_source(run) and FORM_NOT_STATED not in run.case.quality_flags


def good_source(run: PublishedRun) -> bool:
    """Whether the source is good enough to be in one of the two halves of the fit."""
    case = run.case
    flagged = _NO_GATE_FLAGS.intersection(case.quality_flags)
    return case.usable_as_gate and case.confidence != "recalled" and not flagged


def _why_missing(run: PublishedRun, prediction: Prediction, variant: str) -> str:
    reasons = {**prediction.missing, **run.skipped}
    for name in (SPEC, PLAIN) if variant == BOTH else (variant,):
        if name in reasons:
            return reasons[name]
    return NO_FIGURE
