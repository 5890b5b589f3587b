"""Part of a trace: a window of time, requests that are not too long, the first ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simulator.errors import InputError, Problem
from simulator.traces.trace import Trace
from simulator.units import NS_PER_S


def select(
    trace: Trace,
    *,
    start_s: float = 0.0,
    end_s: float | None = None,
    max_prompt_tokens: int | None = None,
    max_output_tokens: int | None = None,
    limit: int | None = None,
) -> Trace:
    """The requests of `trace` that arrive from `start_s` on and before `end_s` and are no longer than asked.

    Times are those of the trace, from its first arrival; the part's own first arrival becomes its time 0.
    A turn that follows another goes with it, and goes out when the turn before goes out. `limit` then
    keeps the first requests. Raises InputError when nothing is left.
    """
    keep = trace.arrival_ns >= round(start_s * NS_PER_S)
    if end_s is not None:
        keep &= trace.arrival_ns < end_s * NS_PER_S
    follows = np.flatnonzero(trace.successor >= 0)
    keep[trace.successor[follows]] = True
    if max_prompt_tokens is not None:
        keep &= trace.prompt_tokens <= max_prompt_tokens
    if max_output_tokens is not None:
        keep &= trace.output_tokens <= max_output_tokens
    for row in follows:  # in order: a turn stands behind the one it follows
        keep[trace.successor[row]] &= keep[row]
    if limit is not None:
        keep &= np.cumsum(keep) <= limit
    if keep.all():
        return trace
    if not keep.any():
        raise InputError(
            Problem(file=trace.file, message=f"none of its {trace.requests} requests is selected")
        )
    return _part(trace, keep)


def _part(trace: Trace, keep: NDArray[np.bool_]) -> Trace:
    """The kept requests with successors, sessions and prefix ids numbered anew."""
    place = np.cumsum(keep) - 1
    successor = trace.successor[keep]
    goes_on = (successor >= 0) & keep[successor]
    arrival_ns = trace.arrival_ns[keep]
    known = arrival_ns >= 0
    counts = np.diff(trace.prefix_start)
    _, session = np.unique(trace.session[keep], return_inverse=True)
    _, ids = np.unique(trace.prefix_ids[np.repeat(keep, counts)], return_inverse=True)
    note = f"{Path(trace.file).name}: {int(keep.sum())} of {trace.requests} requests selected"
    return replace(
        trace,
        arrival_ns=np.where(known, arrival_ns - arrival_ns[known].min(), -1),
        prompt_tokens=trace.prompt_tokens[keep],
        output_tokens=trace.output_tokens[keep],
        session=session - int((trace.session[keep] < 0).any()),
        successor=np.where(goes_on, place[successor], -1),
        successor_delay_ns=np.where(goes_on, trace.successor_delay_ns[keep], 0),
        prefix_start=np.concatenate(([0], np.cumsum(counts[keep]))),
        prefix_ids=ids,
        notes=(*trace.notes, note),
    )
