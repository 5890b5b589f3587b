"""Accuracy targets: limits on the errors of rows whose sources no fit has used."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from calibration.validation.baselines import CLOSED_FORM, SIMULATED, against_baselines
from calibration.validation.errors import errors_of
from calibration.validation.groups import (
    KNOWN_ACCEPTANCE,
    MEASURED_GPUS,
    RESEARCH,
    SPEC_BUNDLE,
    engine_of,
    gpu_of,
    held_out,
    set_a_constant,
)
from calibration.validation.quantities import COST_SHARE, CROSSOVER, SPEEDUP, STEP_RATIO
from calibration.validation.row import ComparisonRow

_TAIL_FACTOR = 1.3


@dataclass(frozen=True)
class AccuracyTarget:
    """One limit and the value reached; `value` is None where no row can be judged.

    `at_least`: the limit is a minimum; otherwise it is a maximum.
    """

    name: str
    statistic: str
    limit: float
    value: float | None
    n: int
    sources: int
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the limit holds; None without a value."""
        if self.value is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def to_json(self) -> dict[str, Any]:
        """One entry of `targets`."""
        return {**asdict(self), "met": self.met}


def judged(row: ComparisonRow) -> bool:
    """Whether a row counts for the targets: a good source that no fit has used, with known acceptance."""
    return row.gates and held_out(row) and row.acceptance_from in KNOWN_ACCEPTANCE


def serving(row: ComparisonRow) -> bool:
    """Whether a row is of a serving engine on H100 or H200, SpecBundle excepted."""
    return gpu_of(row) in MEASURED_GPUS and engine_of(row) != RESEARCH and row.source != SPEC_BUNDLE


def targets_of(rows: Sequence[ComparisonRow], shape: Sequence[ComparisonRow]) -> tuple[AccuracyTarget, ...]:
    """Every target, judged on its rows."""
    good = [row for row in rows if judged(row)]
    curve_rows = [row for row in shape if row.gates and held_out(row) and serving(row)]
    curve_speedups = [row for row in curve_rows if row.quantity == SPEEDUP]
    speedups = [row for row in good if row.quantity == SPEEDUP and serving(row)]
    plain = {
        name: [row for row in good if row.quantity == name and row.variant == "plain" and serving(row)]
        for name in ("tpot_mean", "throughput", "tpot_p99", "ttft_mean", "ttft_p99")
    }
    tails = {f"{name} of plain serving": rows for name, rows in plain.items() if name not in _NOT_TAILS}
    return (
        *_central("speedup", speedups, 0.06, 0.15),
        _bias("speedup", speedups, 0.03),
        _against_closed_form("speedup", speedups),
        *_sign(speedups),
        *_central("shape over batch", curve_speedups, 0.05, 0.15),
        *_central("TPOT of plain serving", plain["tpot_mean"], 0.06, 0.15),
        *_central("throughput of plain serving", plain["throughput"], 0.06, 0.15),
        *(_median(name, rows, math.log(_TAIL_FACTOR)) for name, rows in tails.items()),
        _difference([row for row in good if row.quantity == COST_SHARE]),
        _median("step-time ratio verify ÷ plain", [row for row in good if row.quantity == STEP_RATIO], 0.08),
        *_crossover([row for row in curve_rows if row.quantity == CROSSOVER]),
    )


_NOT_TAILS = ("tpot_mean", "throughput")


def _median(name: str, rows: Sequence[ComparisonRow], limit: float) -> AccuracyTarget:
    errors = errors_of(rows)
    return AccuracyTarget(
        name, "median over sources", limit, errors.median_of_sources, errors.n, errors.sources
    )


def _central(
    name: str, rows: Sequence[ComparisonRow], middle: float, tail: float
) -> tuple[AccuracyTarget, AccuracyTarget]:
    errors = errors_of(rows)
    p90 = AccuracyTarget(name, "pooled P90", tail, errors.p90_abs_log_error, errors.n, errors.sources)
    return _median(name, rows, middle), p90


def _bias(name: str, rows: Sequence[ComparisonRow], limit: float) -> AccuracyTarget:
    errors = errors_of(rows)
    value = None if errors.bias is None else abs(errors.bias)
    return AccuracyTarget(name, "bias, either way", limit, value, errors.n, errors.sources)


def _against_closed_form(name: str, rows: Sequence[ComparisonRow]) -> AccuracyTarget:
    """The simulation must beat the closed form by a quarter of its median error."""
    errors = against_baselines(rows)
    simulated, closed = (errors[predictor].median_of_sources for predictor in (SIMULATED, CLOSED_FORM))
    value = simulated / closed if simulated is not None and closed else None
    summary = errors[SIMULATED]
    return AccuracyTarget(
        name, "median, as a share of the closed form's", 0.75, value, summary.n, summary.sources
    )


def _sign(rows: Sequence[ComparisonRow]) -> tuple[AccuracyTarget, AccuracyTarget]:
    errors = errors_of(rows)
    name = f"gain or loss, of {errors.below} losses and {errors.above} gains"
    called = errors.losses_called / errors.below if errors.below else None
    return (
        AccuracyTarget(
            name,
            "balanced accuracy",
            0.85,
            errors.sign_balanced_accuracy,
            errors.n,
            errors.sources,
            at_least=True,
        ),
        AccuracyTarget(
            "losses", "predicted as losses", 0.75, called, errors.below, errors.sources, at_least=True
        ),
    )


def _difference(rows: Sequence[ComparisonRow]) -> AccuracyTarget:
    """The median over steps of the largest difference of any part."""
    steps: dict[tuple[str, str, int, str], float] = {}
    for row in rows:
        if row.predicted is not None:
            key = (row.source, row.case_id, row.point, row.variant)
            steps[key] = max(steps.get(key, 0.0), abs(row.predicted - row.published))
    value = median(steps.values()) if steps else None
    sources = len({source for source, *_ in steps})
    remark = ", whose source also set a constant" if any(set_a_constant(row) for row in rows) else ""
    name = f"shares of a step, the worst part{remark}"
    return AccuracyTarget(name, "median difference", 0.04, value, len(steps), sources)


def _crossover(rows: Sequence[ComparisonRow]) -> tuple[AccuracyTarget, AccuracyTarget]:
    """Crossings with the acceptance of the smallest batch. A missing prediction counts as outside."""
    inside = [
        row.interval is not None and row.interval[0] <= row.published <= row.interval[1] for row in rows
    ]
    widths = [row.interval[1] / row.interval[0] for row in rows if row.interval is not None]
    sources = len({row.source for row in rows})
    share = sum(inside) / len(inside) if inside else None
    width = median(widths) if widths else None
    name = "break-even batch"
    return (
        AccuracyTarget(name, "inside its interval", 0.8, share, len(rows), sources, at_least=True),
        AccuracyTarget(name, "width of the interval, a factor", 1.6, width, len(widths), sources),
    )
