"""What a benchmark client reports of a run that it made from the first request to the last.

Clients divide by the whole duration and average over all requests, filling and draining included; the
simulator's own figures (`results/measure.py`) are those of the steady stretch. Where a source says how many
requests were sent, its figures are compared with these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simulator.results import metrics
from simulator.results.catalogue import REPORTED_BY_CLIENTS, REQUEST_LATENCIES
from simulator.results.measure import per_request
from simulator.units import NS_PER_S

if TYPE_CHECKING:
    from simulator.results.record import RunRecord


def client_figures(record: RunRecord) -> dict[str, float]:
    """Throughput and the mean and P99 of TTFT, TPOT and end-to-end time over all requests of a run, SI.

    Percentiles are those of the requests there are, as a client prints them, however few.
    """
    tokens = float(record.emitted_tokens.sum())
    found = {"throughput_tokens_per_s": metrics.share(tokens, record.makespan_ns / NS_PER_S)}
    for path in (name for name in REPORTED_BY_CLIENTS if name in REQUEST_LATENCIES):
        values = per_request(record, path)
        samples = values[~np.isnan(values)]
        if len(samples):
            found[f"{path}.mean"] = float(samples.mean())
            found[f"{path}.p99"] = float(np.quantile(samples, 0.99))
    return found
