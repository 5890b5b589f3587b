"""Prometheus histograms: mean and percentiles, and what their buckets cannot tell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from calibration.telemetry.fields import DamagedError
from calibration.telemetry.reading import Finding, Latency, latency_name
from calibration.telemetry.samples import PERCENTILES
from calibration.telemetry.scrapes import Series
from simulator.results import metrics

_COARSE = 1.25
"""Ratio of a bucket's bounds from which on its percentiles are worth a word."""


@dataclass(frozen=True)
class Histogram:
    """`below` maps the upper bound of each bucket to the number of samples up to it; `total` is their sum."""

    below: Mapping[float, float]
    count: float
    total: float

    @property
    def mean(self) -> float:
        """The mean, exact; NaN without a sample."""
        return metrics.share(self.total, self.count)


def histogram_of(name: str, values: Mapping[Series, float]) -> Histogram | None:
    """The histogram of a name, summed over its label sets; None where there is none.

    Raises DamagedError where a label set lacks its sum, its count or a bucket, or where they contradict one
    another.
    """
    totals: dict[Series, dict[str, float]] = {}
    buckets: dict[Series, dict[float, float]] = {}
    for series, value in values.items():
        part = series.name.removeprefix(name)
        if not series.name.startswith(name) or part not in ("_sum", "_count", "_bucket"):
            continue
        key = Series(name, series.without("le").labels)
        if part == "_bucket":
            buckets.setdefault(key, {})[_bound(series)] = value
        else:
            totals.setdefault(key, {})[part] = value
    if not totals and not buckets:
        return None
    below: dict[float, float] = {}
    for key in {**totals, **buckets}:
        total, bucket = totals.get(key, {}), buckets.get(key, {})
        counts = [bucket[bound] for bound in sorted(bucket)]
        is_complete = total.keys() == {"_sum", "_count"} and bucket.get(math.inf) == total["_count"]
        if not is_complete or counts != sorted(counts) or (below and below.keys() != bucket.keys()):
            raise DamagedError(f"{name} lacks a part or contradicts itself")
        below = {bound: below.get(bound, 0.0) + bucket[bound] for bound in sorted(bucket)}
    return Histogram(
        below,
        math.fsum(total["_count"] for total in totals.values()),
        math.fsum(total["_sum"] for total in totals.values()),
    )


def first_histogram(
    names: Sequence[str], values: Mapping[Series, float], findings: list[Finding]
) -> Histogram | None:
    """The histogram of the first of the names that has samples; a broken one is left out with a finding."""
    for name in names:
        try:
            histogram = histogram_of(name, values)
        except DamagedError as error:
            text = f"{error}; it is left out: is the file cut?"
            findings.append(Finding("incomplete-counters", "warning", text))
            continue
        if histogram is not None and histogram.count > 0:
            return histogram
    return None


def latencies_of(
    exposed: Mapping[str, Sequence[str]], values: Mapping[Series, float], findings: list[Finding]
) -> tuple[dict[str, Histogram], dict[str, Latency]]:
    """The histograms of durations in s by latency (`exposed` has their names), their mean and percentiles.

    Percentiles are interpolated within their bucket, as PromQL's `histogram_quantile` does; those in the
    first or the last bucket, which tell nothing, are left out with a finding.
    """
    histograms: dict[str, Histogram] = {}
    latencies: dict[str, Latency] = {}
    coarse = []
    for key, own in exposed.items():
        histogram = first_histogram(own, values, findings)
        if histogram is not None:
            histograms[key], latencies[key] = histogram, _latency(key, histogram, findings)
            if any(high > _COARSE * low for low, high in latencies[key].within.values()):
                coarse.append(latency_name(key))
    if coarse:
        names = ", ".join(coarse)
        text = f"percentiles of {names} are known to their bucket only; their values are interpolated in it"
        findings.append(Finding("coarse-buckets", "info", text))
    return histograms, latencies


def _latency(key: str, histogram: Histogram, findings: list[Finding]) -> Latency:
    values, within = {"mean": histogram.mean}, {}
    low: list[str] = []
    high: list[str] = []
    bounds, counts = list(histogram.below), list(histogram.below.values())
    for name, share in PERCENTILES.items():
        place = next(place for place, below in enumerate(counts) if below >= share * histogram.count)
        if place == 0 or bounds[place] == math.inf:
            (low if place == 0 else high).append(name.upper())
            continue
        inside = counts[place] - counts[place - 1]
        part = (share * histogram.count - counts[place - 1]) / inside
        values[name] = bounds[place - 1] + (bounds[place] - bounds[place - 1]) * part
        within[name] = (bounds[place - 1], bounds[place])
    if low:
        findings.append(
            _beyond("below-first-bucket", low, key, f"below the first bucket bound, {bounds[0] * 1e3:g} ms")
        )
    if high:
        findings.append(
            _beyond("above-last-bucket", high, key, f"above the last bucket bound, {bounds[-2]:g} s")
        )
    return Latency(values, int(histogram.count), within)


def _beyond(code: str, names: list[str], key: str, where: str) -> Finding:
    text = f"{', '.join(names)} of {latency_name(key)} lie {where}: use the mean, or a benchmark client"
    return Finding(code, "warning", text)


def _bound(series: Series) -> float:
    try:
        return float(series.label("le") or "")
    except ValueError:
        raise DamagedError(f"{series.name} has a bucket without a bound") from None
