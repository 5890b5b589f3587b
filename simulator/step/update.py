"""Update: what a finished step changes (docs/step.md §5–7): acceptance, emissions, stops and counters."""

from __future__ import annotations

from simulator.acceptance.base import GATED
from simulator.numerics.compiled import compiled, float_bits
from simulator.step.acceptance_sampling import (
    accepted_drafts,
    advance_drift,
    drafts_of_match,
    prompt_lookup,
)
from simulator.step.blocks import give_keys
from simulator.step.queues import bring_up_to, end_request, remove_ended_running
from simulator.step.schedule import may_draft
from simulator.step.state import (
    CANCELLED,
    DONE,
    EAGER,
    FIRST_BIN_BITS,
    FULL,
    GAP_BINS,
)
from simulator.step.views import (
    Engine,
    accepted_at_of,
    add,
    drafted_at_of,
    entry_at,
    itl_histogram_of,
    itl_token_histogram_of,
    plan_at,
    request_at,
    totals_of,
)


@compiled(inline=True)
def gap_bin(gap_ns: float) -> int:
    """Return the bin of a gap: the exponent and the leading ten bits of the mantissa of its float64, so that
    a bin is at most 0.1 % wide and no logarithm is taken.
    """
    return min(max((float_bits(gap_ns) >> 42) - FIRST_BIN_BITS, 0), GAP_BINS - 1)


@compiled(inline=True)
def _emit(e: Engine, r: int, tokens: int, now_ns: int) -> None:
    """Let `tokens` tokens of request `r` reach its client together at `now_ns`."""
    q = request_at(e, r)
    if q.emitted == 0:
        q.first_ns = now_ns
    else:
        gap_ns = now_ns - q.last_ns
        q.max_itl_ns = max(q.max_itl_ns, gap_ns)
        if q.measured:
            first = q.traffic_class * GAP_BINS
            bin_of_gap = first + gap_bin(float(gap_ns))
            add(itl_histogram_of(e), bin_of_gap, 1)
            bin_of_token = bin_of_gap if tokens == 1 else first + gap_bin(gap_ns / tokens)
            add(itl_token_histogram_of(e), bin_of_token, tokens)
    q.last_ns = now_ns
    q.emitted += tokens
    totals_of(e)[0].emitted_tokens += tokens


@compiled(inline=True)
def _sample(e: Engine, slot: int, index: int, now_ns: int) -> bool:
    """Apply one entry that samples: verify its drafts, emit, stop or draft again. Return whether the request
    ended.
    """
    t = totals_of(e)[0]
    p = plan_at(e, slot)
    entry = entry_at(e, slot, index)
    r = entry.request
    q = request_at(e, r)
    drafts = entry.drafts
    accepted = 0
    if drafts > 0:
        if not entry.padded:
            accepted = accepted_drafts(e, r, drafts)
            if e.acceptance_kind == GATED and not e.ragged:
                prompt_lookup(e, r)  # on the GPU: the drafts of a miss were junk, and all are rejected
        q.drafted += drafts
        q.accepted += accepted
        q.draft_rounds += 1
        t.rejected_rows += drafts - accepted
    if q.measured and entry.decodes:
        add(accepted_at_of(e), q.traffic_class * (e.max_depth + 1) + accepted, 1)
        add(drafted_at_of(e), q.traffic_class * (e.max_nodes + 1) + drafts, 1)
    q.decode_rounds += entry.decodes
    if e.drift_sd > 0.0:
        advance_drift(e, r, accepted + 1)
    gain = accepted + 1
    emitted = min(gain, q.output - q.emitted) if e.stop_trim else gain
    t.trimmed_tokens += gain - emitted
    _emit(e, r, emitted, now_ns)
    was_preempted = q.preempted_step == p.number
    if not was_preempted:  # the KV of a preempted request is gone: nothing is left to take back
        q.computed -= drafts - accepted
        # An engine that gives blocks their keys as it schedules what fills them gives those that a step fills
        # with its output theirs now, if it is asynchronous. Otherwise those of a last step have none.
        if q.emitted >= q.output if e.keys_after_results else e.asynchronous:
            give_keys(e, r, q.prompt + q.emitted - 1)
    if q.emitted >= q.output:
        end_request(e, r, CANCELLED if q.cancelled else DONE, now_ns)
        return True
    q.drafts = 0
    if p.draft_length > 0 and not was_preempted and may_draft(e, r) and (not e.ragged or prompt_lookup(e, r)):
        q.drafts = min(q.draft_length, p.draft_length)
        if e.ragged:
            q.drafts = drafts_of_match(e, r, q.drafts)
    return False


@compiled(inline=True)
def update(e: Engine, slot: int, now_ns: int) -> None:
    """Apply the results of the step in `slot` at its emission time `now_ns`."""
    t = totals_of(e)[0]
    p = plan_at(e, slot)
    bring_up_to(e, now_ns, 1)  # results come before what else falls on their instant
    any_ended = False
    for index in range(p.entries):
        entry = entry_at(e, slot, index)
        r = entry.request
        q = request_at(e, r)
        if q.status >= DONE:  # ended after the step was scheduled
            t.ghost_rows += entry.tokens
            continue
        if e.keys_after_results and not entry.decodes and q.preempted_step != p.number:
            give_keys(e, r, min(entry.start + entry.tokens, q.prompt + q.emitted))
        if entry.samples:
            any_ended |= _sample(e, slot, index, now_ns)
    if any_ended:  # once for all: each removal walks the list
        remove_ended_running(e)
    _count(e, slot)


@compiled(inline=True)
def _count(e: Engine, slot: int) -> None:
    """Add one step to the counters."""
    t = totals_of(e)[0]
    p = plan_at(e, slot)
    duration_ns = p.host_ns + p.verify_ns + p.accept_ns + p.draft_ns
    if p.decodes == p.entries:
        t.decode_steps += 1
    elif p.decodes > 0:
        t.mixed_steps += 1
    else:
        t.prefill_steps += 1
    if p.graph_mode == FULL:
        t.full_steps += 1
    elif p.graph_mode == EAGER:
        t.eager_steps += 1
    else:
        t.piecewise_steps += 1
    t.host_ns += p.host_ns
    t.hidden_ns += p.hidden_ns
    t.verify_ns += p.verify_ns
    t.accept_ns += p.accept_ns
    t.draft_ns += p.draft_ns
    t.attention_ns += p.attention_ns
    t.communication_ns += p.communication_ns
    t.decoding_ns += p.decodes * duration_ns
    t.query_tokens += p.tokens
    t.padded_tokens += p.padded_tokens
