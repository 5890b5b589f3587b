"""Are the runs long enough for a percentile? What lies beyond one comes in bunches, and bunches are what counts.

Requests that meet the same busy spell or the same long prompt wait together, so that ten samples beyond a
percentile may be one event. Of every run the samples beyond are counted in twenty stretches of the measured
requests; their index of dispersion (variance ÷ mean, over what chance alone would give, pooled over
replications) is how many come together: 1 when they come independently. For gaps between tokens, which are
kept in histograms without their order, it is the number of gaps that end with one step. With few bunches
most runs show too low a percentile and a few much too high a one, and no interval that their spread gives holds
the true one often enough: then the value is given without any. Replications are judged together; a single one
claims no interval, and is not judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.results.measure import per_request
from simulator.results.catalogue import GAP_LATENCIES, QUANTILE, REQUEST_LATENCIES
from simulator.results.metrics import samples_needed, share

if TYPE_CHECKING:
    from simulator.results.record import RunRecord

BUNCHES_BEYOND = 5
"""Bunches that must lie beyond a percentile, in the mean over replications. Where M/M/1 queues have fewer, the
interval of P99 holds the true one in fewer than 90 of 100 cases (docs/statistics.md)."""

_STRETCHES = 20


class Beyond(NamedTuple):
    """Samples of one run beyond a percentile: how many, and how many of them come together."""

    samples: float
    together: float


def beyond(record: RunRecord, class_names: Sequence[str] = ()) -> dict[str, Beyond]:
    """What lies beyond the percentiles of a run: path as in `measure.measure` → samples and bunching.

    With two or more classes, of each by itself too. Percentiles with too few samples are left out.
    """
    everybody = np.ones(len(record.arrival_ns), dtype=np.bool_)
    found = dict(_of_class(record, everybody, slice(None), ""))
    for index, name in enumerate(class_names if len(class_names) > 1 else ()):
        members, row = record.traffic_class == index, slice(index, index + 1)
        found |= _of_class(record, members, row, f"classes.{name}.")
    return found


def bunches(runs: Sequence[Mapping[str, Beyond]], path: str) -> float:
    """Bunches beyond a percentile, in the mean over runs; infinite where a run does not say."""
    if not all(path in run for run in runs):
        return float("inf")
    samples = sum(run[path].samples for run in runs)
    together = share(sum(run[path].samples * run[path].together for run in runs), samples)
    return samples / len(runs) / max(1.0, together)


def _of_class(
    record: RunRecord, members: npt.NDArray[np.bool_], row: slice, prefix: str
) -> Iterator[tuple[str, Beyond]]:
    within = slice(record.first_measured, record.end_measured)
    for name in REQUEST_LATENCIES:
        values = per_request(record, name)[within][members[within]]
        known = values[~np.isnan(values)]
        statistics = _enough(len(known))
        levels = np.quantile(known, [QUANTILE[name] for name in statistics]) if statistics else ()
        for statistic, level in zip(statistics, levels, strict=True):
            yield f"{prefix}{name}.{statistic}", _in_order(known >= level)
    steps = record.totals["decode_steps"] + record.totals["mixed_steps"]
    gaps_of_a_step = share(float(record.decode_rounds.sum()), float(steps))
    for name, histogram in zip(GAP_LATENCIES, (record.itl_histogram, record.itl_token_histogram), strict=True):
        count = int(histogram[row].sum())
        together = gaps_of_a_step * share(count, float(record.itl_histogram.sum()))
        for statistic in _enough(count):
            yield f"{prefix}{name}.{statistic}", Beyond((1 - QUANTILE[statistic]) * count, together)


def _enough(count: int) -> list[str]:
    """The percentiles of the tail that so many samples have."""
    return [name for name, quantile in QUANTILE.items() if quantile > 0.5 and count >= samples_needed(name)]


def _in_order(is_beyond: npt.NDArray[np.bool_]) -> Beyond:
    """Samples in the order of their requests (n,), counted in stretches."""
    places = np.flatnonzero(is_beyond)
    counts = np.bincount(places * _STRETCHES // len(is_beyond), minlength=_STRETCHES)
    by_chance = counts.mean() * (1 - len(places) / len(is_beyond))
    return Beyond(float(len(places)), float(counts.var(ddof=1) / by_chance) if by_chance > 0 else 0.0)
