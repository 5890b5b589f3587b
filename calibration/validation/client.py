"""The figures that a benchmark client reports about a run, from its first request to its last.

A client divides by the whole duration and averages over all requests, so ramp-up and drain count. The
simulator's own figures (`results/measure.py`) cover only the steady state. Where a source states how many
requests were sent, its figures are compared with the client's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simulator.results import metrics
from simulator.results.measure import per_request
from simulator.units import NS_PER_S

if TYPE_CHECKING:
    from simulator.results.record import RunRecord


def client_figures(record: RunRecord) -> dict[str, float]:
    """Throughput and the mean and P99 of TTFT, TPOT and end-to-end time over all requests of a run, SI.

    Percentiles are computed from all requests, however few, as a client prints them.
    """
    tokens = float(record.emitted_tokens.sum())
    figures = {"throughput_tokens_per_s": metrics.share(tokens, record.makespan_ns / NS_PER_S)}
    for path in ("ttft_s", "tpot_s", "e2e_s"):
        values = per_request(record, path)
        samples = values[~np.isnan(values)]
        if len(samples):
            figures[f"{path}.mean"] = float(samples.mean())
            figures[f"{path}.p99"] = float(np.quantile(samples, 0.99))
    return figures
