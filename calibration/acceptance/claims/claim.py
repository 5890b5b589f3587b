"""A rule of thumb with the verdict on it, and how it is printed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from simulator.results.estimate import Estimate

Outcome = Literal["holds", "holds where", "wrong", "not measured yet"]


@dataclass(frozen=True)
class Claim:
    """One rule of thumb. `where` completes "holds where"; `finding` is Markdown with the figures; `rerun` is
    the command that shows them. `borne_out`: the figures still say what the verdict says.
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
    """A Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def with_band(estimate: Estimate | None, digits: int = 2) -> str:
    """A figure and its band, `1.36 [1.28, 1.45]`; a dash where there is none."""
    if estimate is None:
        return "–"
    value = f"{estimate.value:.{digits}f}"
    low, high = estimate.band or estimate.ci95 or (None, None)
    return value if low is None or high is None else f"{value} [{low:.{digits}f}, {high:.{digits}f}]"
