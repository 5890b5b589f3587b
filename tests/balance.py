"""What must balance after any run: requests, tokens, KV blocks, and the order of times."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simulator.results.record import RunRecord
from simulator.runs.variant import CompiledVariant
from simulator.step.state import CANCELLED, DONE, REJECTED, TIMED_OUT, State
from simulator.traffic.workload import Requests

ENDED = (DONE, TIMED_OUT, CANCELLED, REJECTED)


def check_balance(
    variant: CompiledVariant, requests: Requests, record: RunRecord, states: Sequence[State], where: str
) -> None:
    """Requests, tokens and KV blocks add up, and times are in order."""
    arrived = record.arrival_ns >= 0
    assert arrived.all(), where
    assert np.isin(record.status, ENDED).all(), where
    done, cancelled = record.status == DONE, record.status == CANCELLED
    expected_tokens = np.minimum(
        requests.output_tokens, variant.setup.max_context_tokens - requests.prompt_tokens
    )
    if variant.settings.stop_trim:
        assert (record.emitted_tokens[done] == expected_tokens[done]).all(), where
        stops = requests.cancel_after_tokens[cancelled]
        assert (record.emitted_tokens[cancelled] == stops).all(), where
    else:
        assert (record.emitted_tokens[done] >= expected_tokens[done]).all(), where
    assert record.emitted_tokens.sum() == record.totals["emitted_tokens"], where
    first = (record.emitted_tokens > 0).astype(np.int64)
    trimmed = first + record.decode_rounds + record.accepted_tokens - record.emitted_tokens
    assert (trimmed >= -record.preemptions).all(), where
    if record.preemptions.sum() == 0:
        # The last token of a prompt that was cut, or that is found in memory but for one token, may run, and
        # count, as a decode.
        settings = variant.settings
        cut = int(first.sum()) if settings.chunked_prefill or settings.padded_drafts else 0
        assert 0 <= trimmed.sum() - record.totals["trimmed_tokens"] <= cut, where
    assert record.drafted_tokens.sum() - record.accepted_tokens.sum() == record.totals["rejected_rows"], where
    assert (record.accepted_tokens <= record.drafted_tokens).all(), where
    assert (record.draft_rounds <= record.decode_rounds).all(), where
    started = record.admitted_ns >= 0
    assert (record.arrival_ns[started] <= record.admitted_ns[started]).all(), where
    answered = record.first_ns >= 0
    assert (record.admitted_ns[answered] < record.first_ns[answered]).all(), where
    assert (record.first_ns[answered] <= record.last_ns[answered]).all(), where
    assert (record.last_ns <= record.ended_ns).all(), where
    finished = done | cancelled
    assert (record.last_ns[finished] == record.ended_ns[finished]).all(), where
    rejected = record.status == REJECTED
    assert (record.ended_ns[rejected] == record.arrival_ns[rejected]).all(), where
    assert (record.emitted_tokens[rejected] == 0).all(), where
    given_up = record.status == TIMED_OUT
    patience = record.arrival_ns[given_up] + variant.settings.timeout_ns
    assert (record.ended_ns[given_up] == patience).all(), where
    for state in states:
        engine = state.engine[0]
        assert engine["running_count"] == engine["waiting_count"] == engine["in_system"] == 0, where
        check_memory_is_given_back(state, where)
    assert (states[0].requests["capacity"] == 0).all(), where
    assert record.totals["peak_blocks"] <= record.totals["total_blocks"], where


def check_memory_is_given_back(state: State, where: str = "") -> None:
    """No request holds a block at the end: each is free, or kept for its contents."""
    engine = state.engine[0]
    assert engine["free_blocks"] + engine["cached_blocks"] == engine["total_blocks"], where
    assert min(engine["free_blocks"], engine["cached_blocks"]) >= 0, where
    assert (state.cache_pieces["holders"] == 0).all(), where
