"""What a simulation must beat: the closed form on the same prices, and always the same answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from calibration.validation.errors import Errors, Predictor, errors_of
from calibration.validation.row import Row

SIMULATED, CLOSED_FORM, CONSTANT = "simulated", "closed form", "constant"


def predictors(rows: Sequence[Row]) -> Mapping[str, Predictor]:
    """The simulation, E / (1 + o) over uniform steps of the same presets, and the median published value.

    The closed form knows the simulated plain variant's mean batch; the constant knows the very figures
    that it is
    judged by. Both are as strong as they can be.
    """
    published = [row.published for row in rows if row.predicted is not None]
    middle = median(published) if published else None

    def closed_form(row: Row) -> float | None:
        return row.closed_form if row.predicted is not None else None

    def constant(row: Row) -> float | None:
        return middle if row.predicted is not None else None

    return {SIMULATED: lambda row: row.predicted, CLOSED_FORM: closed_form, CONSTANT: constant}


def against_baselines(rows: Sequence[Row]) -> dict[str, Errors]:
    """The errors of all three on the same rows."""
    return {name: errors_of(rows, predictor) for name, predictor in predictors(rows).items()}
