"""What the comparison is held to: limits on errors of rows that no fit has seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

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
from calibration.validation.row import Row

_FACTOR_OF_TAILS = 1.3


@dataclass(frozen=True)
class Target:
    """One limit and what was reached; `value` is None where there is nothing to hold against it.

    `at_least`: the value must not fall below the limit, else it must not exceed it.
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
        """Whether the limit holds; None: nothing to judge."""
        if self.value is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def to_json(self) -> dict[str, Any]:
        """One entry of `targets`."""
        return {**asdict(self), "met": self.met}


def judged(row: Row) -> bool:
    """Whether a row counts for the targets: a good source that no fit has seen, with known acceptance."""
    return row.gates and held_out(row) and row.acceptance_from in KNOWN_ACCEPTANCE


def serving(row: Row) -> bool:
    """A serving engine on H100 or H200, and not the one source that is most of the points."""
    return gpu_of(row) in MEASURED_GPUS and engine_of(row) != RESEARCH and row.source != SPEC_BUNDLE


def targets_of(rows: Sequence[Row], shape: Sequence[Row]) -> tuple[Target, ...]:
    """Every target, on the rows that it is about."""
    good = [row for row in rows if judged(row)]
    of_curves = [row for row in shape if row.gates and held_out(row) and serving(row)]
    curves = [row for row in of_curves if row.quantity == SPEEDUP]
    speedups = [row for row in good if row.quantity == SPEEDUP and serving(row)]
    plain = {
        name: [row for row in good if row.quantity == name and row.variant == "plain" and serving(row)]
        for name in ("tpot_mean", "throughput", "tpot_p99", "ttft_mean", "ttft_p99")
    }
    tails = {f"{name} of plain serving": rows for name, rows in plain.items() if name not in _NOT_TAILS}
    return (
        *_central("speedup", speedups, 0.06, 0.15),
        _sign(speedups),
        *_central("shape over batch", curves, 0.05, 0.15),
        *_central("TPOT of plain serving", plain["tpot_mean"], 0.06, 0.15),
        *_central("throughput of plain serving", plain["throughput"], 0.06, 0.15),
        *(_median(name, rows, math.log(_FACTOR_OF_TAILS)) for name, rows in tails.items()),
        _difference([row for row in good if row.quantity == COST_SHARE]),
        _median("step-time ratio verify ÷ plain", [row for row in good if row.quantity == STEP_RATIO], 0.08),
        *_crossover([row for row in of_curves if row.quantity == CROSSOVER]),
    )


_NOT_TAILS = ("tpot_mean", "throughput")


def _median(name: str, rows: Sequence[Row], limit: float) -> Target:
    found = errors_of(rows)
    return Target(name, "median over sources", limit, found.median_of_sources, found.n, found.sources)


def _central(name: str, rows: Sequence[Row], middle: float, tail: float) -> tuple[Target, Target]:
    found = errors_of(rows)
    p90 = Target(name, "pooled P90", tail, found.p90_abs_log_error, found.n, found.sources)
    return _median(name, rows, middle), p90


def _sign(rows: Sequence[Row]) -> Target:
    found = errors_of(rows)
    name = f"gain or loss, of {found.below} losses and {found.above} gains"
    return Target(
        name, "balanced accuracy", 0.85, found.sign_balanced_accuracy, found.n, found.sources, at_least=True
    )


def _difference(rows: Sequence[Row]) -> Target:
    """Of every step the part that is furthest off."""
    steps: dict[tuple[str, str, int, str], float] = {}
    for row in rows:
        if row.predicted is not None:
            key = (row.source, row.case_id, row.point, row.variant)
            steps[key] = max(steps.get(key, 0.0), abs(row.predicted - row.published))
    value = median(steps.values()) if steps else None
    sources = len({source for source, *_ in steps})
    seen = ", whose source also set a constant" if any(set_a_constant(row) for row in rows) else ""
    name = f"shares of a step, the worst part{seen}"
    return Target(name, "median difference", 0.04, value, len(steps), sources)


def _crossover(rows: Sequence[Row]) -> tuple[Target, Target]:
    """With the acceptance of the smallest batch. A crossing that was not predicted counts as outside."""
    inside = [
        row.interval is not None and row.interval[0] <= row.published <= row.interval[1] for row in rows
    ]
    widths = [row.interval[1] / row.interval[0] for row in rows if row.interval is not None]
    sources = len({row.source for row in rows})
    share = sum(inside) / len(inside) if inside else None
    width = median(widths) if widths else None
    name = "break-even batch"
    return (
        Target(name, "inside its interval", 0.8, share, len(rows), sources, at_least=True),
        Target(name, "width of the interval, a factor", 1.6, width, len(widths), sources),
    )
