"""Published points made into trials."""

from __future__ import annotations

from calibration.validation.cases import Case
from calibration.validation.trial import Published, Trial

__all__ = ["Published", "Trial", "trials_of"]


def trials_of(case: Case, evidence: object) -> tuple[Trial, ...]:
    """One trial per point of a case."""
    raise NotImplementedError
