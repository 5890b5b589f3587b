"""Which metrics a cell has, and which of them a study keeps.

A metric belongs to a variant: `plain.throughput_tokens_per_s`, `eagle3.verdict`. Comparisons and break-evens
are those of a speculative variant against plain decoding. `columns.py` has meanings and units.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from experiments.cell import BREAK_EVEN, SIMULATE
from simulator.errors import Problem, did_you_mean
from simulator.results.catalogue import BREAK_EVEN as BREAK_EVEN_FIGURES
from simulator.results.catalogue import CLASSES, COMPARED, POSITIONAL, all_paths, paths_shown
from simulator.results.metric import Detail

VERDICT = "verdict"
REASON = "reason"
SATURATED = "saturated"
BREAK_EVEN_VERDICT = "break_even_verdict"
BREAK_EVEN_NOTE = "break_even_note"
SPEEDUP_AT = "speedup_at"
"""`speedup_at.0.7`: the speedup if α were 0.7, asked for by keeping it."""

OF_A_VARIANT = (*all_paths(), SATURATED)
"""Figures of any variant; `acceptance_rate_at.1`, … and those of a class, `classes.NAME.…`, as well."""

AGAINST_PLAIN = (*COMPARED, VERDICT, REASON)
"""What the measure `simulate` reports of a speculative variant."""

BREAK_EVENS = (*BREAK_EVEN_FIGURES, BREAK_EVEN_VERDICT, BREAK_EVEN_NOTE)
"""What the measure `breakeven` reports of a speculative variant, `speedup_at.ALPHA` as well."""

DEFAULT_METRICS = (
    *paths_shown(Detail.SUMMARY),
    SATURATED,
    "throughput_speedup",
    "tpot_mean_speedup",
    VERDICT,
    *BREAK_EVENS,
)
"""What is kept by default."""

_KNOWN = frozenset((*OF_A_VARIANT, *AGAINST_PLAIN, *BREAK_EVENS))
_BY_NUMBER = re.compile(rf"(?:{'|'.join(POSITIONAL)})\.[1-9]\d*|{SPEEDUP_AT}\.(?:0?\.\d+|[01])")


def is_metric(name: str) -> bool:
    """Whether a name without its variant is that of a metric."""
    if name.startswith(f"{CLASSES}."):
        return _metric_part(name.removeprefix(f"{CLASSES}.")) is not None
    return name in _KNOWN or _BY_NUMBER.fullmatch(name) is not None


def _metric_part(text: str) -> str | None:
    """The metric behind the name of a variant or a class, which may hold dots itself."""
    parts = text.split(".")
    tails = (".".join(parts[start:]) for start in range(1, len(parts)))
    return next((tail for tail in tails if is_metric(tail)), None)


def keep_problem(
    entry: str, variants: Collection[str], measures: Collection[str] = (SIMULATE, BREAK_EVEN)
) -> Problem | None:
    """What is wrong with an entry of `keep`; None for `ARM.METRIC` and for `METRIC`, that of all variants."""
    metric = entry if is_metric(entry) else _metric_part(entry)
    if metric is None:
        guess = did_you_mean(entry, _KNOWN) or did_you_mean(entry.rpartition(".")[2], _KNOWN)
        message = "is not a metric" + (f", did you mean {guess}?" if guess else "")
        allowed = f"for example {', '.join(DEFAULT_METRICS[:3])}, {VERDICT}"
        return Problem(value=entry, message=message, allowed=allowed)
    needed = BREAK_EVEN if metric in BREAK_EVENS or metric.startswith(f"{SPEEDUP_AT}.") else SIMULATE
    if needed not in measures:
        message = f"is not measured by {', '.join(measures)}"
        return Problem(value=entry, message=message, allowed=f"measure: {needed}, or both in a list")
    variant = entry.removesuffix(metric).removesuffix(".")
    if not variant or variant in variants:
        return None
    guess = did_you_mean(variant, variants)
    message = f"names no variant {variant!r}" + (f", did you mean {guess!r}?" if guess else "")
    return Problem(value=entry, message=message, allowed=f"variants: {', '.join(variants)}")


class KeptMetrics:
    """The metrics that a study keeps: its own list, or the usual ones."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = frozenset(tuple(names) or DEFAULT_METRICS)

    def holds(self, variant: str, metric: str) -> bool:
        """Whether a metric of a variant is kept, for that variant or for all."""
        return metric in self.names or f"{variant}.{metric}" in self.names

    @property
    def verdicts(self) -> bool:
        """Whether some variant's verdict is kept."""
        return any(name == VERDICT or name.endswith(f".{VERDICT}") for name in self.names)

    @property
    def alphas(self) -> tuple[float, ...]:
        """The acceptances at which speedups are kept."""
        matches = (re.search(rf"(?:^|\.){SPEEDUP_AT}\.([\d.]+)$", name) for name in self.names)
        return tuple(sorted({float(match[1]) for match in matches if match}))
