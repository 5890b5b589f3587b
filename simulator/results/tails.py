"""Are the runs long enough for a percentile? Tail samples come in bunches, and the bunches count.

Requests that meet the same busy period or the same long prompt wait together, so that ten tail samples may be
one event. The tail samples of every run are counted in twenty stretches of the measured requests. Their index
of dispersion (variance ÷ mean, relative to independent samples, pooled over replications) is how many come
together: 1 when they are independent. Gaps between tokens are kept in histograms without their order; for
them it is the number of gaps that end with one step. With few bunches most runs show too low a percentile and
a few show much too high a one, and an interval from their spread covers the true percentile too rarely: then
the value is given without an interval. Replications are judged together; a single one has no interval and is
not judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.results.catalogue import GAP_LATENCIES, REQUEST_LATENCIES
from simulator.results.measure import gap_histogram, per_request
from simulator.results.metric import QUANTILE
from simulator.results.metrics import samples_needed, share

if TYPE_CHECKING:
    from simulator.results.record import RunRecord

FEWEST_BUNCHES = 5
"""Bunches of tail samples that an interval needs, mean over replications. Where M/M/1 queues have fewer, the
interval of P99 covers the true one in fewer than 90 of 100 cases (docs/statistics.md).
"""

_STRETCHES = 20


class Tail(NamedTuple):
    """Samples of one run beyond a percentile: how many, and how many of them come together."""

    samples: float
    together: float


def tails(record: RunRecord, class_names: Sequence[str] = ()) -> dict[str, Tail]:
    """The tail samples of a run: path as in `measure.measure` → samples and bunching.

    With two or more classes, of each by itself too. Percentiles with too few samples are left out.
    """
    all_requests = np.ones(len(record.arrival_ns), dtype=np.bool_)
    tails_by_path = dict(_of_class(record, all_requests, slice(None), ""))
    for index, name in enumerate(class_names if len(class_names) > 1 else ()):
        members, row = record.traffic_class == index, slice(index, index + 1)
        tails_by_path |= _of_class(record, members, row, f"classes.{name}.")
    return tails_by_path


def bunches(runs: Sequence[Mapping[str, Tail]], path: str) -> float:
    """Bunches of tail samples, mean over runs; infinite where a run has no such percentile."""
    if not all(path in run for run in runs):
        return float("inf")
    samples = sum(run[path].samples for run in runs)
    together = share(sum(run[path].samples * run[path].together for run in runs), samples)
    return samples / len(runs) / max(1.0, together)


def _of_class(
    record: RunRecord, members: npt.NDArray[np.bool_], row: slice, prefix: str
) -> Iterator[tuple[str, Tail]]:
    within = slice(record.first_measured, record.end_measured)
    for name in REQUEST_LATENCIES:
        values = per_request(record, name)[within][members[within]]
        known = values[~np.isnan(values)]
        statistics = _enough(len(known))
        levels = np.quantile(known, [QUANTILE[name] for name in statistics]) if statistics else ()
        for statistic, level in zip(statistics, levels, strict=True):
            yield f"{prefix}{name}.{statistic}", _tail_in_order(known >= level)
    steps = record.totals["decode_steps"] + record.totals["mixed_steps"]
    gaps_of_a_step = share(float(record.decode_rounds.sum()), float(steps))
    for name in GAP_LATENCIES:
        count = int(gap_histogram(record, name)[row].sum())
        together = gaps_of_a_step * share(count, float(record.itl_histogram.sum()))
        for statistic in _enough(count):
            yield f"{prefix}{name}.{statistic}", Tail((1 - QUANTILE[statistic]) * count, together)


def _enough(count: int) -> list[str]:
    """The percentiles above the median that so many samples have."""
    return [name for name, quantile in QUANTILE.items() if quantile > 0.5 and count >= samples_needed(name)]


def _tail_in_order(in_tail: npt.NDArray[np.bool_]) -> Tail:
    """Samples in the order of their requests (n,), counted in stretches."""
    places = np.flatnonzero(in_tail)
    counts = np.bincount(places * _STRETCHES // len(in_tail), minlength=_STRETCHES)
    by_chance = counts.mean() * (1 - len(places) / len(in_tail))
    return Tail(float(len(places)), float(counts.var(ddof=1) / by_chance) if by_chance > 0 else 0.0)
