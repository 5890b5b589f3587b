"""One replication's figures: a run record measured with the definitions of `metrics.py`.

The figures come as a flat mapping from dotted path (`ttft_s.p99`, `classes.code.tpot_s.mean`) to number, NaN
where the run cannot tell; `result.py` turns replications of them into estimates.

*Warm-up.* Per-request figures, gaps and acceptance are those of the requests `first_measured ≤ r <
end_measured`. Rates (throughput, requests, goodput, mean batch) and parts of a step are those of the window
from the arrival of request `first_measured` to the last arrival, so that neither filling nor draining counts:
in a closed loop all clients are busy in between. Where arrivals span no time (a burst) or too few requests,
the window is the whole run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.numerics.arrays import Floats, Ints
from simulator.results import metrics
from simulator.results.catalogue import CLASSES, GAP_LATENCIES, REQUEST_LATENCIES
from simulator.results.metric import STATISTICS
from simulator.results.metrics import NAN, share
from simulator.step.build import UNLIMITED_BLOCKS
from simulator.step.state import CANCELLED, DONE, REJECTED, TIMED_OUT
from simulator.units import NS_PER_S

if TYPE_CHECKING:
    from simulator.results.record import RunRecord

Mask = npt.NDArray[np.bool_]


class Window(NamedTuple):
    """The stretch of simulated time that rates are taken over."""

    start_ns: int
    end_ns: int
    first: int
    """Request whose arrival opens it, or −1 when it is the whole run."""
    last: int
    """Request whose arrival closes it, or −1."""

    @property
    def duration_s(self) -> float:
        """Length, s."""
        return (self.end_ns - self.start_ns) / NS_PER_S


def known(time_ns: Ints) -> Mask:
    """Which of these times (n,) came: a time that has not is negative."""
    return np.asarray(time_ns >= 0)


def window_of(record: RunRecord, saturated: bool = False) -> Window:
    """The window of the rates: from the first measured arrival to the last arrival, else the whole run.

    Above capacity, from the first to the last tenth of the departures: the engine
    is full all that time, whenever the requests came. A run of which the engine holds more
    than a quarter at once has no such stretch.
    """
    if saturated:
        ended = np.sort(record.ended_ns[known(record.ended_ns)])
        tenth = len(ended) // 10
        if tenth and ended[tenth] < ended[-1 - tenth]:
            start_ns, end_ns = int(ended[tenth]), int(ended[-1 - tenth])
            served = (
                known(record.admitted_ns) & (record.admitted_ns <= start_ns) & (record.ended_ns > start_ns)
            )
            if 4 * served.sum() < len(ended):
                return Window(start_ns, end_ns, -1, -1)
        return Window(0, record.makespan_ns, -1, -1)
    arrivals = np.where(known(record.arrival_ns), record.arrival_ns, -1)
    if len(arrivals) and record.first_measured < len(arrivals):
        first, last = record.first_measured, len(arrivals) - 1 - int(np.argmax(arrivals[::-1]))
        start_ns, end_ns = int(arrivals[first]), int(arrivals[last])
        if 0 <= start_ns < end_ns and last > first:
            return Window(start_ns, end_ns, first, last)
    return Window(0, record.makespan_ns, -1, -1)


def measure(
    record: RunRecord,
    class_names: Sequence[str] = (),
    limits: dict[str, float] | None = None,
    replicas: int = 1,
    saturated: bool = False,
) -> dict[str, float]:
    """All figures of one run.

    `class_names` names the traffic classes; with two or more, each is measured by itself too. `limits` are
    the SLO's (`{"ttft_p99_s": 1.0}`); without any, attainment and goodput are NaN. `saturated` takes the
    rates from the time in which the engine was full. The paths are those of the JSON.
    """
    window = window_of(record, saturated)
    all_requests = np.ones(len(record.arrival_ns), dtype=bool)
    figures = _measure_requests(record, window, all_requests, slice(None), limits or {})
    figures |= _measure_engine(record, window, replicas)
    if window.last >= 0:
        emitted = record.emitted_before_arrival
        tokens = float(emitted[window.last] - emitted[window.first])
        figures["throughput_tokens_per_s"] = share(tokens, window.duration_s)
    if len(class_names) > 1:
        for index, name in enumerate(class_names):
            members, row = record.traffic_class == index, slice(index, index + 1)
            of_class = _measure_requests(record, window, members, row, limits or {})
            figures |= {f"{CLASSES}.{name}.{path}": value for path, value in of_class.items()}
    return figures


def _measure_requests(
    record: RunRecord, window: Window, chosen: Mask, classes: slice, limits: dict[str, float]
) -> dict[str, float]:
    """Figures that belong to requests: those `chosen` (n,), whose histograms are the rows `classes`."""
    measured = np.zeros_like(chosen)
    within = slice(record.first_measured, record.end_measured)
    measured[within] = chosen[within]
    done = record.status == DONE
    answered = known(record.first_ns) & known(record.arrival_ns)
    good = done.copy()
    figures: dict[str, float] = {}
    for name in REQUEST_LATENCIES:  # one array of requests at a time
        values = per_request(record, name)
        figures |= _under(name, metrics.statistics(values[measured]))
        good &= metrics.meets_limits(limits, name, values)
    figures |= _gaps(record, measured & answered, classes)
    figures |= _acceptance(record, classes)
    figures["preemptions"] = float(record.preemptions[chosen].sum())
    figures["tokens_per_round"] = _tokens_per_round(record, measured & answered)

    ended = known(record.ended_ns) & (record.ended_ns > window.start_ns) & (record.ended_ns <= window.end_ns)
    seconds = window.duration_s
    figures["throughput_tokens_per_s"] = share(_emitted_within(record, window, chosen), seconds)
    figures["request_rate_per_s"] = share(float((chosen & done & ended).sum()), seconds)
    asked = measured & (record.status != CANCELLED)
    for name, status in (("timed_out_fraction", TIMED_OUT), ("rejected_fraction", REJECTED)):
        figures[name] = share(float((measured & (record.status == status)).sum()), float(measured.sum()))
    figures["slo_attainment"] = share(float((asked & good).sum()), float(asked.sum())) if limits else NAN
    figures["goodput_requests_per_s"] = (
        share(float((chosen & good & ended).sum()), seconds) if limits else NAN
    )
    return figures


def per_request(record: RunRecord, name: str) -> Floats:
    """One duration of every request (n,), s; NaN where it has none."""
    done = record.status == DONE
    match name:
        case "ttft_s":
            answered = known(record.first_ns) & known(record.arrival_ns)
            return metrics.elapsed_s(record.arrival_ns, record.first_ns, answered)
        case "tpot_s":
            return np.where(done, metrics.tpot_s(record.first_ns, record.last_ns, record.emitted_tokens), NAN)
        case "worst_gap_s":
            return np.where(done & (record.emitted_tokens > 1), record.max_itl_ns / NS_PER_S, NAN)
        case "e2e_s":
            return metrics.elapsed_s(record.arrival_ns, record.last_ns, done)
    return metrics.elapsed_s(record.arrival_ns, record.admitted_ns, known(record.admitted_ns))


def gap_histogram(record: RunRecord, name: str) -> Ints:
    """The histogram (C, bins) of one of the latencies between emissions, by traffic class."""
    return {"itl_s": record.itl_histogram, "itl_token_s": record.itl_token_histogram}[name]


def _gaps(record: RunRecord, measured: Mask, classes: slice) -> dict[str, float]:
    """Both ITL definitions, from the histograms; the means are exact:
    the gaps of a request sum to last − first emission.
    """
    edges = record.itl_edges_ns / NS_PER_S
    total_s = float((record.last_ns[measured] - record.first_ns[measured]).sum()) / NS_PER_S
    figures: dict[str, float] = {}
    for name in GAP_LATENCIES:
        counts = gap_histogram(record, name)[classes].sum(axis=0)
        mean = share(total_s, float(counts.sum()))
        figures |= _under(name, metrics.histogram_statistics(counts, edges, mean))
    return figures


def _acceptance(record: RunRecord, classes: slice) -> dict[str, float]:
    """How the drafts of the measured rounds fared.
    Position 0 of both counts holds the rounds without a draft too.
    """
    accepted_at, drafted_at = record.accepted_at[classes].sum(axis=0), record.drafted_at[classes].sum(axis=0)
    rounds, decodes = int(drafted_at[1:].sum()), int(drafted_at.sum())
    accepted = metrics.accepted_from_counts(accepted_at)
    drafted = metrics.accepted_from_counts(drafted_at)
    figures = {
        "mean_acceptance_length": metrics.mean_acceptance_length(accepted, rounds),
        "draft_acceptance_rate": metrics.draft_acceptance_rate(accepted, drafted),
        "draft_coverage": metrics.draft_coverage(rounds, decodes),
    }
    rates = metrics.acceptance_rates_at(accepted_at, rounds)
    for name, values in (
        ("acceptance_rate_at", rates),
        ("conditional_acceptance", metrics.conditional_acceptance(rates)),
    ):
        figures |= {f"{name}.{position}": value for position, value in enumerate(values, start=1)}
    return figures


def _tokens_per_round(record: RunRecord, measured: Mask) -> float:
    """Tokens that left per decode round, stops included:
    emitted less the token of the prompt's last step, ÷ decode rounds.
    """
    return share(
        float((record.emitted_tokens[measured] - 1).sum()), float(record.decode_rounds[measured].sum())
    )


def _overlap_ns(window: Window, start_ns: Ints, end_ns: Ints) -> Ints:
    """How much of each stretch (n,) lies within the window, ns."""
    inside = np.minimum(end_ns, window.end_ns) - np.maximum(start_ns, window.start_ns)
    overlap: Ints = np.maximum(inside, 0)
    return overlap


def _emitted_within(record: RunRecord, window: Window, chosen: Mask) -> float:
    """Tokens of the chosen requests that left within the window,
    taking each request's tokens as evenly spread.
    """
    chosen = chosen & known(record.first_ns)
    emitted, first, last = record.emitted_tokens[chosen], record.first_ns[chosen], record.last_ns[chosen]
    within: Floats = _overlap_ns(window, first, last) / np.maximum(last - first, 1)
    at_first = (first > window.start_ns) & (first <= window.end_ns)
    return float(((emitted - 1) * within + at_first).sum())


def _measure_engine(record: RunRecord, window: Window, replicas: int) -> dict[str, float]:
    """Figures of the engine: batch, memory and what an average step of the window is made of."""
    totals, counters = record.totals, record.totals
    window_ns = (window.end_ns - window.start_ns) * replicas
    if window.first >= 0 and record.window_totals.get("steps"):
        counters, busy_of_ns = record.window_totals, window_ns
    else:
        busy_of_ns = record.makespan_ns * replicas
    steps = float(counters["steps"])
    decoding = known(record.first_ns)
    resident_ns = _overlap_ns(window, record.first_ns[decoding], record.last_ns[decoding]).sum()
    busy = min(1.0, share(float(counters["busy_ns"]), float(busy_of_ns)))
    figures = {
        "mean_batch": share(float(resident_ns), window_ns * busy),
        "kv_peak_fraction": share(float(totals["peak_blocks"]), float(totals["total_blocks"]))
        if totals["total_blocks"] < UNLIMITED_BLOCKS
        else NAN,
        "steps": float(totals["steps"]),
        "step_s.mean": share(counters["busy_ns"] / NS_PER_S, steps),
    }
    for name, total in _STAGES:
        figures[f"step_s.{name}"] = share(counters[total] / NS_PER_S, steps)
    rows = {
        "rejected": totals["rejected_rows"],
        "padding": totals["padded_tokens"] - totals["query_tokens"],
        "ghost": totals["ghost_rows"],
        "trimmed": totals["trimmed_tokens"],
    }
    return figures | {f"wasted_rows.{name}": float(count) for name, count in rows.items()}


_STAGES = (
    ("draft", "draft_ns"),
    ("verify", "verify_ns"),
    ("attention", "attention_ns"),
    ("communication", "communication_ns"),
    ("sampling", "accept_ns"),
    ("host", "host_ns"),
)
"""Parts of a step; attention and communication are within verify."""


def _under(name: str, figures: dict[str, float]) -> Iterable[tuple[str, float]]:
    return {f"{name}.{statistic}": figures[statistic] for statistic in STATISTICS}.items()
