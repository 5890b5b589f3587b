"""A rule of thumb with the verdict on it, and how it is printed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from simulator.results.estimate import Estimate

Known = TypeVar("Known")
Outcome = Literal["holds", "holds where", "wrong", "not measured yet"]


@dataclass(frozen=True)
class Claim:
    """One rule of thumb. `where` completes "holds where"; `finding` is Markdown with the figures; `rerun` is
    the command that shows them. `borne_out`: every figure that the verdict names says so, band included.
    """

    rule: str
    outcome: Outcome
    where: str
    finding: str
    rerun: str
    borne_out: bool

    @property
    def verdict(self) -> str:
        """`holds`, `wrong`, or where it holds."""
        return f"{self.outcome} {self.where}" if self.where else self.outcome


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; a bar within a cell does not end it."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def known(value: Known | None) -> Known:
    """A figure without which there is no verdict. Raises RuntimeError where it is unknown."""
    if value is None:
        raise RuntimeError("a verdict rests on a figure that is not known")
    return value


def band_of(estimate: Estimate | None) -> tuple[float, float]:
    """The ends of a figure's band. Raises RuntimeError where it has none."""
    return known(known(estimate).band)


def with_band(estimate: Estimate | None, digits: int = 2) -> str:
    """A figure and its band, `1.36 [1.28, 1.45]`; a dash where there is none."""
    if estimate is None:
        return "–"
    value = f"{estimate.value:.{digits}f}"
    low, high = estimate.band or estimate.ci95 or (None, None)
    return value if low is None or high is None else f"{value} [{low:.{digits}f}, {high:.{digits}f}]"
