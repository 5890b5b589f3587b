"""`run.precision`: which figures must be known how well, and how many replications that takes.

The number of replications is foreseen from the interval of those there are, and at most doubled at a time:
an interval that is looked at often stops at a lucky, narrow one. For the same reason `FEWEST_REPLICATIONS`
come first (tests/theory/test_coverage.py measures what is left of the 95 %).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from simulator.errors import InputError, Problem, did_you_mean
from simulator.results.catalogue import COMPARED, COMPARED_BY_WORD
from simulator.results.comparison import ratio_of
from simulator.results.estimate import Estimate
from simulator.results.metric import QUANTILE
from simulator.results.summary import VariantMeasurement
from simulator.scenario import PLAIN, RunSection

FEWEST_REPLICATIONS = 10
MOST_REPLICATIONS = 100
"""Where more would be needed, runs are made longer instead."""

_MOST_TIMES = 1e6
"""An interval counts as at most so many times too wide: far more replications than are ever run."""

SPEEDUP = "speedup"
"""Another word for the throughput speedup."""
_FIELD = "run.precision_metric"


@dataclass(frozen=True)
class Precision:
    """Half-width of the 95 % interval, as a fraction of the value, and the figure it is asked of.

    `metric`: a word of `breakeven --metric`, a path of the results (`tpot_s.p99`), a ratio of the comparison
    (`itl_p99_ratio`), or `speedup`. A figure must be known of every variant that has it, a ratio of the first
    variant; with `ARM.` before it, of that variant.
    """

    fraction: float
    metric: str = "throughput"

    @staticmethod
    def of(run: RunSection) -> Precision | None:
        """What a scenario asks for, None when nothing."""
        return None if run.precision is None else Precision(run.precision, run.precision_metric)

    def estimates(self, variants: Mapping[str, VariantMeasurement]) -> dict[str, Estimate | None]:
        """Arm → the figure asked for; None where the runs have none. Raises InputError for no such figure."""
        chosen, name = self.asked(variants)
        if name in COMPARED:
            return {variant: ratio_of(name, variants[PLAIN], variants[variant]) for variant in chosen}
        return {variant: variants[variant].summary()[name] for variant in chosen}

    def widest(self, variants: Mapping[str, VariantMeasurement]) -> float:
        """The largest half-width, as a fraction of its value; infinite where a figure has no interval."""
        estimates = self.estimates(variants).values()
        return max((math.inf if e is None else e.relative_half_width for e in estimates), default=math.inf)

    def replications(self, widest: float, have: int) -> int:
        """How many replications are foreseen to be enough, from the widest interval of those there are."""
        if widest <= self.fraction:
            return have
        return math.ceil(have * min(widest / self.fraction, _MOST_TIMES) ** 2)

    def waits_for_samples(self, variants: Mapping[str, VariantMeasurement]) -> bool:
        """Whether the figure is a percentile that longer runs would have, or have an interval of."""
        chosen, name = self.asked(variants)
        block, _, statistic = (COMPARED[name].path if name in COMPARED else name).rpartition(".")
        return statistic in QUANTILE and all(
            variants[variant].summary()[f"{block}.mean"] for variant in chosen
        )

    def asked(self, variants: Mapping[str, VariantMeasurement]) -> tuple[list[str], str]:
        """The variants that the figure is asked of, and its name in `COMPARED` or its path."""
        variant = next((name for name in variants if self.metric.startswith(f"{name}.")), None)
        name = self.metric if variant is None else self.metric.removeprefix(f"{variant}.")
        if name == SPEEDUP:
            name = "throughput_speedup"
        elif name in COMPARED_BY_WORD:
            name = COMPARED_BY_WORD[name].path
        if name in COMPARED:
            drafting = [variant] if variant else [other for other in variants if other != PLAIN][:1]
            if drafting in ([], [PLAIN]):
                message = "needs a speculative variant to compare with plain decoding"
                raise InputError(Problem(field=_FIELD, value=self.metric, message=message))
            return drafting, name
        having = [entry for entry in ([variant] if variant else variants) if variants[entry].has(name)]
        if not having:
            words = [*COMPARED_BY_WORD, SPEEDUP, *COMPARED]
            paths = dict.fromkeys(path for measured in variants.values() for path in measured.samples)
            guess = did_you_mean(name, [*words, *paths])
            message = "unknown metric" if guess is None else f"unknown metric, did you mean {guess!r}?"
            allowed = f"known: {', '.join(words)}; or a path of the results, such as tpot_s.p99"
            raise InputError(Problem(field=_FIELD, value=self.metric, message=message, allowed=allowed))
        return having, name
