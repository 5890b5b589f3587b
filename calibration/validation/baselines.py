"""What the simulation must beat: the closed form on the same prices, and a constant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from calibration.validation.errors import ErrorSummary, Predictor, errors_of
from calibration.validation.row import ComparisonRow

SIMULATED, CLOSED_FORM, CONSTANT = "simulated", "closed form", "constant"


def predictors(rows: Sequence[ComparisonRow]) -> Mapping[str, Predictor]:
    """The simulation, E / (1 + o) over uniform steps of the same presets, and the median published value.

    The closed form is given the simulated plain variant's mean batch, and the constant is the median of the
    very figures that it is judged by. So both baselines are as strong as they can be.
    """
    published = [row.published for row in rows if row.predicted is not None]
    median_published = median(published) if published else None

    def closed_form(row: ComparisonRow) -> float | None:
        return row.closed_form if row.predicted is not None else None

    def constant(row: ComparisonRow) -> float | None:
        return median_published if row.predicted is not None else None

    return {SIMULATED: lambda row: row.predicted, CLOSED_FORM: closed_form, CONSTANT: constant}


def against_baselines(rows: Sequence[ComparisonRow]) -> dict[str, ErrorSummary]:
    """The errors of all three on the same rows."""
    return {name: errors_of(rows, predictor) for name, predictor in predictors(rows).items()}
