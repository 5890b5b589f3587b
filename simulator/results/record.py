"""The record of one run of one variant: arrays over requests and the counters of the engine, before anything
is averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.numerics.arrays import Ints
from simulator.step.build import gap_bin_starts_ns
from simulator.step.state import CANCELLED, DONE, REJECTED, TIMED_OUT, TOTALS, State

STATUS_DONE, STATUS_TIMED_OUT, STATUS_CANCELLED, STATUS_REJECTED = DONE, TIMED_OUT, CANCELLED, REJECTED
"""How a request ended; any other status: it has not ended."""

_WINDOWED = (
    "decode_steps",
    "mixed_steps",
    "prefill_steps",
    "host_ns",
    "verify_ns",
    "accept_ns",
    "draft_ns",
    "attention_ns",
    "communication_ns",
)
"""The counters of which the step takes a snapshot at both edges of the window (`step.queues`)."""


@dataclass(frozen=True)
class RunRecord:
    """One run. n requests in issue order, C traffic classes, M nodes and D positions at most in one round.

    Times are in ns; a negative one never came.
    """

    arrival_ns: Ints
    admitted_ns: Ints
    first_ns: Ints
    """First emission, (n,)."""
    last_ns: Ints
    """Newest emission, (n,)."""
    ended_ns: Ints
    emitted_tokens: Ints
    max_itl_ns: Ints
    drafted_tokens: Ints
    accepted_tokens: Ints
    """Before stops cut a round's surplus, (n,)."""
    draft_rounds: Ints
    decode_rounds: Ints
    preemptions: Ints
    traffic_class: Ints
    status: Ints
    emitted_before_arrival: Ints
    """Tokens that had left the engine when the request arrived, (n,): differences give the throughput of a
    window.
    """
    in_system_at_arrival: Ints
    itl_edges_ns: Ints
    """(bins + 1,) edges of the bins of gaps."""
    itl_histogram: Ints
    """(C, bins) gaps between emissions of the measured requests."""
    itl_token_histogram: Ints
    """(C, bins) gap ÷ tokens of the emission, one count per token."""
    accepted_at: Ints
    """(C, D + 1) measured decode rounds by accepted drafts."""
    drafted_at: Ints
    """(C, M + 1) measured decode rounds by verified drafts."""
    totals: dict[str, int]
    """Sums over all steps and replicas; names as in `step.state.TOTALS`, `steps`, `busy_ns`, and
    `total_blocks` of one replica.
    """
    makespan_ns: int
    first_measured: int
    end_measured: int
    """Requests [first, end) are measured: after the warm-up, before the drain."""
    driver: str
    """fast_forward | pipeline"""
    driver_reason: str | None
    """Why the engines went stage by stage; None: they leapt."""
    window_totals: dict[str, int] = field(default_factory=dict)
    """Steps and stages of `totals` between the arrivals of request `first_measured` and of the last one."""


def record_of(
    states: Sequence[State], measured: tuple[int, int], driver: str, driver_reason: str | None
) -> RunRecord:
    """Return the record of a finished run; replicas share requests and counters."""
    state = states[0]
    requests = state.requests
    totals: dict[str, int] = {name: int(state.totals[0][name]) for name in TOTALS.names or ()}
    window_totals = {name: int(state.totals[2][name]) - int(state.totals[1][name]) for name in _WINDOWED}
    for counters in (totals, window_totals):
        counters["steps"] = sum(counters[f"{kind}_steps"] for kind in ("decode", "mixed", "prefill"))
        counters["busy_ns"] = sum(counters[f"{stage}_ns"] for stage in ("host", "verify", "accept", "draft"))
    totals["total_blocks"] = int(state.engine[0]["total_blocks"])

    def column(name: str) -> NDArray[Any]:
        return requests[name]

    return RunRecord(
        arrival_ns=np.where(column("status") <= REJECTED, column("arrival_ns"), -1),
        admitted_ns=column("admitted_ns"),
        first_ns=column("first_ns"),
        last_ns=column("last_ns"),
        ended_ns=column("ended_ns"),
        emitted_tokens=column("emitted"),
        max_itl_ns=column("max_itl_ns"),
        drafted_tokens=column("drafted"),
        accepted_tokens=column("accepted"),
        draft_rounds=column("draft_rounds"),
        decode_rounds=column("decode_rounds"),
        preemptions=column("preemptions"),
        traffic_class=column("traffic_class"),
        status=column("status"),
        emitted_before_arrival=column("emitted_before_arrival"),
        in_system_at_arrival=column("in_system_at_arrival"),
        itl_edges_ns=gap_bin_starts_ns(),
        itl_histogram=state.itl_histogram,
        itl_token_histogram=state.itl_token_histogram,
        accepted_at=state.accepted_at,
        drafted_at=state.drafted_at,
        totals=totals,
        makespan_ns=int(max(column("last_ns").max(initial=0), column("ended_ns").max(initial=0))),
        first_measured=measured[0],
        end_measured=measured[1],
        driver=driver,
        driver_reason=driver_reason,
        window_totals=window_totals,
    )
