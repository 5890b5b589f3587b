"""A rule of thumb with its verdict, and how both are printed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from simulator.results.estimate import Estimate

Known = TypeVar("Known")
Outcome = Literal["holds", "holds where", "wrong", "not measured yet"]


@dataclass(frozen=True)
class Claim:
    """One rule of thumb. `where` completes "holds where". `finding`: Markdown with the figures. `rerun`: the
    command that shows them. `borne_out`: whether all figures, with their bands, support the verdict.
    """

    rule: str
    outcome: Outcome
    where: str
    finding: str
    rerun: str
    borne_out: bool

    @property
    def verdict(self) -> str:
        """The outcome, with the condition under which the rule holds."""
        return f"{self.outcome} {self.where}" if self.where else self.outcome


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; bars within cells are escaped."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def required(value: Known | None) -> Known:
    """The value, which a verdict needs. Raises RuntimeError where it is None."""
    if value is None:
        raise RuntimeError("a verdict needs a figure that is not required")
    return value


def band_of(estimate: Estimate | None) -> tuple[float, float]:
    """The ends of a figure's band. Raises RuntimeError without a band."""
    return required(required(estimate).band)


def with_band(estimate: Estimate | None, digits: int = 2) -> str:
    """A figure and its band, `1.36 [1.28, 1.45]`; a dash without a figure."""
    if estimate is None:
        return "–"
    value = f"{estimate.value:.{digits}f}"
    low, high = estimate.band or estimate.ci95 or (None, None)
    return value if low is None or high is None else f"{value} [{low:.{digits}f}, {high:.{digits}f}]"
