"""One run's figures as `simulate` reports them, above the capacity of the system too."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from simulator.results.catalogue import metric_of
from simulator.results.measure import measure
from simulator.results.saturation import saturation

if TYPE_CHECKING:
    from simulator.results.record import RunRecord
    from simulator.results.variant_summary import MeasurementScope


def above_capacity(records: Iterable[RunRecord], scope: MeasurementScope) -> bool:
    """Whether the load is above capacity; that of a closed loop or a burst never is."""
    return scope.open_loop and saturation(list(records), scope.running_limit).saturated


def steady_figures(
    record: RunRecord, scope: MeasurementScope, keep_latencies: bool = False
) -> dict[str, float]:
    """Figures of `measure.py`; above capacity the rates are those of the full engine, and latencies NaN.

    `keep_latencies`: for callers that judge the load over several replications.
    """
    full = above_capacity([record], scope)
    figures = measure(record, (), dict(scope.limits), scope.replicas, full)
    if full and not keep_latencies:
        figures |= {path: math.nan for path in figures if metric_of(path).is_latency}
    return figures
