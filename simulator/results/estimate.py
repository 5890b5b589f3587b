"""A figure with what is not known about it: its value, the sampling interval and the cost model's band.

`ci95` is sampling alone: Student t over independent replications. `band` adds what the cost model does not
know; verdicts and gates use the band. Both errors are independent 95 % half-widths, so they add in
quadrature, each side by itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from simulator.errors import InputError, Problem

Interval = tuple[float, float]


@dataclass(frozen=True)
class Estimate:
    """`value` with its 95 % sampling interval and the wider band of the cost model, all in one unit.

    `ci95` and `band` are None where nothing tells how wide they are (a single replication). Raises
    ValueError when a figure is not finite or an interval is the wrong way round.
    """

    value: float
    ci95: Interval | None = None
    band: Interval | None = None

    def __post_init__(self) -> None:
        for low, high in ((self.value, self.value), *(pair for pair in (self.ci95, self.band) if pair)):
            if not (math.isfinite(low) and math.isfinite(high) and low <= high):
                raise ValueError(f"an estimate needs finite, ordered figures, not {self}")

    @property
    def half_width(self) -> float:
        """Half of the sampling interval's width; infinite when no interval is known."""
        return math.inf if self.ci95 is None else (self.ci95[1] - self.ci95[0]) / 2

    @property
    def relative_half_width(self) -> float:
        """`half_width` as a fraction of the value's size; what `run.precision` asks for."""
        if self.value == 0:
            return 0.0 if self.half_width == 0 else math.inf
        return self.half_width / abs(self.value)

    def with_model_range(self, low: float, high: float) -> Estimate:
        """The estimate whose band covers the values at both ends of the cost model's error, and sampling.

        `low` and `high` are what the value becomes when the cost model errs to either side (in any order).
        Without a sampling interval there is no band either: it would claim to know more than it does.
        """
        if self.ci95 is None:
            return Estimate(self.value)
        below = self.value - min(low, high, self.value)
        above = max(low, high, self.value) - self.value
        return Estimate(
            self.value,
            self.ci95,
            (
                self.value - math.hypot(below, self.value - self.ci95[0]),
                self.value + math.hypot(above, self.ci95[1] - self.value),
            ),
        )

    def clipped(self, low: float = -math.inf, high: float = math.inf) -> Estimate:
        """The estimate with value and intervals held within what is possible, such as [0, 1] for a rate."""

        def clip(x: float) -> float:
            return min(max(x, low), high)

        return Estimate(
            clip(self.value),
            self.ci95 and (clip(self.ci95[0]), clip(self.ci95[1])),
            self.band and (clip(self.band[0]), clip(self.band[1])),
        )

    def inverse(self) -> Estimate:
        """One divided by it, for figures above 0."""
        ci95, band = (pair and (1 / pair[1], 1 / pair[0]) for pair in (self.ci95, self.band))
        return Estimate(1 / self.value, ci95, band)

    def to_json(self) -> dict[str, Any]:
        """`{"value", "ci95": [low, high], "band": [low, high]}`; an interval that is not known is null."""
        return {
            "value": self.value,
            "ci95": None if self.ci95 is None else list(self.ci95),
            "band": None if self.band is None else list(self.band),
        }


def estimate_from_json(document: Mapping[str, Any]) -> Estimate:
    """The estimate that `Estimate.to_json` wrote. Raises InputError when it is not one."""
    try:
        ci95, band = document["ci95"], document["band"]
        if not all(math.isfinite(number) for number in (document["value"], *(ci95 or ()), *(band or ()))):
            raise ValueError("not finite")
        return Estimate(
            float(document["value"]),
            None if ci95 is None else (float(ci95[0]), float(ci95[1])),
            None if band is None else (float(band[0]), float(band[1])),
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        allowed = '{"value", "ci95": [low, high], "band": [low, high]}'
        raise InputError(Problem(value=document, message="not an estimate", allowed=allowed)) from error


_T95 = (
    12.706204736174694,
    4.302652729749462,
    3.1824463052837078,
    2.7764451051977934,
    2.5705818356363146,
    2.4469118511449786,
    2.364624251592784,
    2.306004135204166,
    2.262157162798205,
    2.228138851986274,
    2.200985160091639,
    2.1788128296672284,
    2.1603686564627913,
    2.144786687917804,
    2.131449545559776,
    2.1199052992212546,
    2.1098155778333156,
    2.1009220402410382,
    2.0930240544083087,
    2.085963447265864,
    2.0796138447276795,
    2.0738730679040254,
    2.0686576104190486,
    2.0638985616280245,
    2.0595385527532972,
    2.0555294386428735,
    2.0518305164802846,
    2.0484071417952454,
    2.045229642132703,
    2.0422724563012378,
)
"""`scipy.special.stdtrit(n, 0.975)` for 1 to 30 degrees of freedom: importing scipy costs a command that
wants a few intervals a third of a second.
"""


@cache
def student_t(degrees_of_freedom: int, probability: float) -> float:
    """The quantile of Student's t. (`scipy.special`, not `scipy.stats`:
    that one takes a second to import.)
    """
    from scipy.special import stdtrit

    return float(stdtrit(degrees_of_freedom, probability))


def student_t95(degrees_of_freedom: int) -> float:
    """Half-width in standard errors of a two-sided 95 % interval;
    n samples leave n − 1 degrees of freedom.
    """
    if degrees_of_freedom <= len(_T95):
        return _T95[degrees_of_freedom - 1]
    return student_t(degrees_of_freedom, 0.975)


def mean_estimate(samples: Sequence[float]) -> Estimate | None:
    """The mean over independent replications with its Student t interval;
    the band is the same until the cost model adds to it.

    None when any replication does not have the figure (NaN):
    a mean over those that happen to have it would be biased.
    """
    if not samples or not all(math.isfinite(x) for x in samples):
        return None
    count = len(samples)
    mean = math.fsum(samples) / count
    if count == 1:
        return Estimate(mean)
    variance = math.fsum((x - mean) ** 2 for x in samples) / (count - 1)
    half = student_t95(count - 1) * math.sqrt(variance / count)
    interval = (mean - half, mean + half)
    return Estimate(mean, interval, interval)


def paired_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Estimate | None:
    """The ratio of two figures measured on the same random numbers:
    the mean of ln(ratio) over replications, and its interval.

    On the log scale the estimate of a / b is exactly the inverse of that of b / a, and stays positive.
    None when a replication lacks a figure or one is not positive. Raises ValueError
    when the replications do not pair up.
    """
    if len(numerators) != len(denominators):
        raise ValueError(f"{len(numerators)} and {len(denominators)} replications cannot be paired")
    if not all(x > 0 for x in (*numerators, *denominators)):
        return None
    logs = mean_estimate([math.log(a) - math.log(b) for a, b in zip(numerators, denominators, strict=True)])
    if logs is None:
        return None
    interval = logs.ci95 and (math.exp(logs.ci95[0]), math.exp(logs.ci95[1]))
    return Estimate(math.exp(logs.value), interval, interval)
