"""Run records made by hand, so that every figure is known without simulating."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from simulator.results.record import RunRecord
from simulator.step.build import gap_bin_starts_ns
from simulator.step.state import DONE, TOTALS

MS = 1_000_000
"""Nanoseconds in a millisecond."""


def record_of_requests(
    arrival_ms: Sequence[float],
    first_ms: Sequence[float],
    gaps_ms: Sequence[Sequence[tuple[float, int]]],
    *,
    measured: tuple[int, int] | None = None,
    traffic_class: Sequence[int] | None = None,
    totals: Mapping[str, int] | None = None,
    **fields: Any,
) -> RunRecord:
    """A run in which every request ends.
    `gaps_ms`: per request its emissions after the first, (gap in ms, tokens).

    Requests are admitted on arrival and their first emission holds one token. Every later emission is one
    round with a draft of `tokens` − 1 accepted of 3. `fields` replace whole fields of the record.
    """
    count = len(arrival_ms)
    first, end = measured or (0, count)
    classes = np.array(traffic_class if traffic_class is not None else [0] * count, dtype=np.int64)
    edges = gap_bin_starts_ns()
    shape = (int(classes.max(initial=0)) + 1, len(edges) - 1)
    gaps, token_gaps = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    accepted_at, drafted_at = np.zeros((shape[0], 4), np.int64), np.zeros((shape[0], 4), np.int64)
    arrival = np.array([round(x * MS) for x in arrival_ms], dtype=np.int64)
    first_ns = np.array([round(x * MS) for x in first_ms], dtype=np.int64)
    last_ns = first_ns.copy()
    worst = np.zeros(count, np.int64)
    emitted = np.ones(count, np.int64)
    emissions = [(int(when), 1) for when in first_ns]
    for r, emissions_of in enumerate(gaps_ms):
        for gap_ms, tokens in emissions_of:
            gap = round(gap_ms * MS)
            last_ns[r] += gap
            worst[r] = max(worst[r], gap)
            emitted[r] += tokens
            emissions.append((int(last_ns[r]), tokens))
            if first <= r < end:
                gaps[classes[r], np.searchsorted(edges, gap, side="right") - 1] += 1
                token_gaps[classes[r], np.searchsorted(edges, gap // tokens, side="right") - 1] += tokens
                accepted_at[classes[r], tokens - 1] += 1
                drafted_at[classes[r], 3] += 1
    rounds = np.array([len(emissions_of) for emissions_of in gaps_ms], dtype=np.int64)
    when = np.array([moment for moment, _ in sorted(emissions)])
    so_far = np.concatenate([[0], np.cumsum([tokens for _, tokens in sorted(emissions)], dtype=np.int64)])
    before = so_far[np.searchsorted(when, arrival, side="right")]
    record = RunRecord(
        arrival_ns=arrival,
        admitted_ns=arrival,
        first_ns=first_ns,
        last_ns=last_ns,
        ended_ns=last_ns,
        emitted_tokens=emitted,
        max_itl_ns=worst,
        drafted_tokens=3 * rounds,
        accepted_tokens=emitted - 1 - rounds,
        draft_rounds=rounds,
        decode_rounds=rounds,
        preemptions=np.zeros(count, np.int64),
        traffic_class=classes,
        status=np.full(count, DONE, np.int64),
        emitted_before_arrival=before,
        in_system_at_arrival=np.zeros(count, np.int64),
        itl_edges_ns=edges,
        itl_histogram=gaps,
        itl_token_histogram=token_gaps,
        accepted_at=accepted_at,
        drafted_at=drafted_at,
        totals=dict.fromkeys((*(TOTALS.names or ()), "steps", "busy_ns", "total_blocks"), 0)
        | dict(totals or {}),
        makespan_ns=int(last_ns.max(initial=0)),
        first_measured=first,
        end_measured=end,
        driver="fast_forward",
        driver_reason=None,
    )
    return replace(record, **fields)


def closed_loop_record(
    clients: int,
    requests_each: int,
    rounds: int,
    step_ms: float,
    tokens: int = 1,
    *,
    draws: Sequence[int] = (),
    **fields: Any,
) -> RunRecord:
    """Clients in lock step: each request gets its first token one step after it was issued,
    then `rounds` emissions of `tokens`.

    `draws` gives the tokens of the emissions in place of a constant, request by request in turn.
    """
    length_ms = (rounds + 1) * step_ms
    starts = [index * length_ms for index in range(requests_each) for _ in range(clients)]
    drawn = [[(step_ms, draws[r % len(draws)] if draws else tokens)] * rounds for r in range(len(starts))]
    busy = round(requests_each * length_ms * MS)
    steps = requests_each * (rounds + 1)
    totals = {"steps": steps, "busy_ns": busy, "verify_ns": busy, "peak_blocks": 40, "total_blocks": 50}
    fields = {"measured": (clients, len(starts)), "totals": totals} | fields
    return record_of_requests(starts, [start + step_ms for start in starts], drawn, **fields)
