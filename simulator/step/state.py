"""What one engine knows: record arrays, one record per request, planned step and engine.

Everything a step reads or changes stands here, so that the same plain functions run compiled over a whole run
and one stage at a time under SimPy. Times are integer nanoseconds of the simulated clock.
"""

from __future__ import annotations

from typing import Any, NamedTuple, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

NEVER = 2**62
"""A time that does not come."""
NO_STEP = -1
"""No step runs: nothing is in flight."""

WAITING, RUNNING, DONE, TIMED_OUT, CANCELLED, REJECTED, NOT_ARRIVED = range(7)
"""Status of a request. UNBORN: its arrival has not come; from DONE to REJECTED it has ended."""

FULL, PIECEWISE, EAGER = range(3)
"""CUDA-graph mode of the target pass."""

ROWS_TOKENS, ROWS_TOKENS_AND_REQUESTS, ROWS_REQUESTS = range(3)
"""Rows of the first drafter pass: all query tokens of the step,
those and one per request, or one per request.
"""

GAP_BINS = 34 * 1024
"""Bins of gaps: 1,024 to the octave from 2^10 ns (1 µs) to 2^44 ns (4.9 hours)."""
FIRST_BIN_BITS = (1023 + 10) << 10
"""Exponent and leading ten mantissa bits of 2^10 as a float64."""

REQUEST = np.dtype(
    [
        # what it asks
        ("prompt", "i4"),
        ("output", "i4"),  # output tokens at which it stops
        ("traffic_class", "i2"),
        ("cancelled", "i2"),  # the stop is a client's cancel
        ("cannot_run", "i2"),  # it needs more blocks or tokens than there are
        ("measured", "i2"),  # its gaps and rounds are counted
        # where it stands
        ("status", "i2"),
        ("computed", "i4"),  # tokens whose KV the scheduler counts as computed, the running step included
        ("emitted", "i4"),
        ("drafts", "i4"),  # draft tokens that wait to be verified
        ("capacity", "i4"),  # tokens that the held blocks can hold
        ("reserved", "i4"),  # blocks that its admission set aside
        ("shared_hashes", "i4"),  # leading hash blocks held together with others
        ("last_step", "i4"),  # number of the newest step it has an entry in
        ("in_flight_drafts", "i4"),  # drafts in that entry
        ("in_flight_samples", "i2"),  # whether that entry samples
        ("matched", "i2"),  # whether its last lookup found a match
        ("preempted_step", "i4"),  # the step that ran when it was last preempted
        # what happened to it
        ("drafted", "i4"),
        ("accepted", "i4"),
        ("draft_rounds", "i4"),
        ("decode_rounds", "i4"),
        ("preemptions", "i4"),
        ("in_system_at_arrival", "i4"),
        ("random_key", "u8"),
        ("drift", "f8"),  # acceptance drift at output position `emitted`, logit scale
        ("arrival_ns", "i8"),  # when its client sent it
        ("front_end_ns", "i8"),  # share of the loop at which it is parsed; then when it is tokenized
        ("admitted_ns", "i8"),
        ("first_ns", "i8"),
        ("last_ns", "i8"),
        ("ended_ns", "i8"),
        ("worst_gap_ns", "i8"),
        ("emitted_before_arrival", "i8"),
    ],
    align=True,
)

ENTRY = np.dtype(
    [
        ("request", "i4"),
        ("tokens", "i4"),  # query tokens
        ("drafts", "i4"),  # of which drafts
        ("decodes", "i4"),  # a decode or verify row, not a prefill chunk
        ("samples", "i4"),  # it reaches the end of what is known
        ("start", "i4"),  # tokens computed before it
    ],
    align=True,
)

PLAN = np.dtype(
    [
        ("number", "i8"),
        ("entries", "i8"),
        ("decodes", "i8"),
        ("decode_tokens", "i8"),
        ("tokens", "i8"),  # query tokens N
        ("samples", "i8"),  # entries that sample
        ("drafters", "i8"),  # entries whose request may draft
        ("drafting_samples", "i8"),  # of which sample
        ("draft_length", "i8"),  # K of the drafts made at the end of this step
        ("drafts", "i8"),  # whether passes 2…K run
        ("uniform", "i8"),  # all decodes have the largest query length
        ("preempted", "i8"),  # composing it preempted somebody
        ("scheduled_ns", "i8"),  # when
        ("launched_ns", "i8"),  # until when the host launches its kernels one by one; 0: a graph
        ("hidden_ns", "i8"),
        ("host_ns", "i8"),
        ("verify_ns", "i8"),
        ("accept_ns", "i8"),
        ("draft_ns", "i8"),
        ("attention_ns", "i8"),  # decode and prefill attention, a part of verify_ns
        ("communication_ns", "i8"),  # all-reduces of the target pass, a part of verify_ns
        ("padded_tokens", "i8"),
        ("graph_mode", "i8"),
    ],
    align=True,
)

TOTALS = np.dtype(
    [
        (name, "i8")
        for name in (
            "decode_steps mixed_steps prefill_steps full_steps piecewise_steps eager_steps "
            "host_ns hidden_ns verify_ns accept_ns draft_ns attention_ns communication_ns decoding_ns "
            "query_tokens padded_tokens ghost_rows rejected_rows trimmed_tokens cut_drafts preemptions "
            "peak_blocks emitted_tokens match_lookups matches prefix_hit_tokens prompt_tokens"
        ).split()
    ],
    align=True,
)


class State(NamedTuple):
    """One engine and its requests. n requests, S seats, K drafts, H prefix hashes."""

    engine: NDArray[np.void]
    """(1,) ENGINE"""
    totals: NDArray[np.void]
    """(3,) TOTALS: so far; and, steps and stages alone, when request `first_measured` came and when the
    newest one did.
    """
    requests: NDArray[np.void]
    """(n,) REQUEST, in issue order."""
    plans: NDArray[np.void]
    """(2,) PLAN: the running step and the next."""
    entries: NDArray[np.void]
    """(2, S) ENTRY"""
    running: NDArray[np.int32]
    """(S,) requests by admission."""
    waiting: NDArray[np.int32]
    """(n + 1,) ring of waiting requests."""
    known_arrivals: NDArray[np.int32]
    """Requests with known arrivals, by (arrival, number)."""
    followups: NDArray[np.int32]
    """(n,) requests whose arrival became known, by (arrival, number)."""
    issue_order: NDArray[np.int32]
    """Requests of a closed loop that wait for a free client."""
    arrived: NDArray[np.int32]
    """(n,) requests by arrival, for give-ups and the way to the front end."""
    ended: NDArray[np.int32]
    """(n,) requests that ended since the pipeline last looked."""
    successor: NDArray[np.int64]
    """(n,) next turn of the session or -1."""
    successor_delay_ns: NDArray[np.int64]
    draft_length_by_batch: NDArray[np.int64]
    """(S + 1,) K after a step with that many requests."""
    full_graph: NDArray[np.int64]
    """(cap + 1,) padded tokens of a uniform step of N tokens; -1 where none is large enough."""
    any_graph: NDArray[np.int64]
    """(cap + 1,) padded tokens of any other step."""
    batch_cell: NDArray[np.int64]
    """(S + 1,) knot interval of a batch."""
    context_cell: NDArray[np.int64]
    """knot interval of a mean context, by context // 64."""
    batch_part: NDArray[np.float64]
    """(S + 1,) where in its knot interval a batch lies, 0…1."""
    context_scale: NDArray[np.float64]
    """1 ÷ width of each context interval."""
    context_knots: NDArray[np.int64]
    """This and the following are fields of `prices.Prices`."""
    target_tokens: NDArray[np.float64]
    target_experts: NDArray[np.float64]
    target_head: NDArray[np.float64]
    target_comm: NDArray[np.float64]
    sample: NDArray[np.float64]
    attention: NDArray[np.float64]
    draft_tokens: NDArray[np.float64]
    draft_experts: NDArray[np.float64]
    draft_head: NDArray[np.float64]
    draft_attention: NDArray[np.float64]
    scalars: NDArray[np.float64]
    survival_bits: NDArray[np.int64]
    """(classes, bins, K) the draft at position j survives when its 53 random bits are below ceil(c_j · 2^53),
    which is u < c_j.
    """
    request_effect: NDArray[np.float64]
    """(n,) or (1,): a request's own shift of acceptance, logit scale."""
    normal_quantiles: NDArray[np.float64]
    class_drafts: NDArray[np.int64]
    match_probability: NDArray[np.float64]
    """(classes, 2), or (n, 2) where requests differ: after a miss, after a match."""
    trace_lengths: NDArray[np.int64]
    trace_start: NDArray[np.int64]
    itl_histogram: NDArray[np.int64]
    """(classes, bins) gaps between emissions of measured requests."""
    itl_token_histogram: NDArray[np.int64]
    """(classes, bins) gap ÷ tokens, one count per token."""
    accepted_at: NDArray[np.int64]
    """(classes, K + 1) measured rounds by accepted drafts."""
    drafted_at: NDArray[np.int64]
    """(classes, K + 1) measured rounds by drafts."""
    prefix_start: NDArray[np.int64]
    prefix_ids: NDArray[np.int64]
    hash_holders: NDArray[np.int32]
    """(H,) requests that hold a hash block; -1 when it is not in memory."""
    hash_older: NDArray[np.int32]
    """(H + 1,) chain of blocks kept for their contents, least recently used first; H is the ring's anchor."""
    hash_newer: NDArray[np.int32]


def _element(hint: Any) -> np.dtype[Any]:
    """Return the dtype of the elements of an `NDArray[...]`."""
    (element,) = get_args(get_args(hint)[1])
    return np.dtype(element)


_RECORDS = {"totals": TOTALS, "requests": REQUEST, "plans": PLAN, "entries": ENTRY}

ARRAYS: dict[str, np.dtype[Any]] = {
    name: _RECORDS.get(name, _element(hint))
    for name, hint in get_type_hints(State).items()
    if name != "engine"
}
"""The arrays of an engine by name → dtype of their elements; the compiled code sees all of them flat."""

ENGINE = np.dtype(
    [
        # settings
        ("max_num_seqs", "i8"),
        ("max_num_batched_tokens", "i8"),
        ("block_tokens", "i8"),
        ("total_blocks", "i8"),
        ("reserved_output", "f8"),  # share of a request's output that admission sets blocks aside for
        ("asynchronous", "i8"),
        ("emits_before_drafting", "i8"),
        ("mixes_prefill", "i8"),
        ("chunked_prefill", "i8"),
        ("stop_is_foreseen", "i8"),
        ("external_clients", "i8"),  # follow-up requests are issued outside
        ("think_time_ns", "i8"),
        ("first_measured", "i8"),  # the request that opens the window of the rates
        ("timeout_ns", "i8"),
        # the speculation method
        ("max_draft_length", "i8"),
        ("lookahead_tokens", "i8"),
        ("slots_per_request", "i8"),
        ("ragged", "i8"),
        ("has_drafter", "i8"),  # a model drafts: passes cost time
        ("drafter_has_kv", "i8"),
        ("one_pass", "i8"),  # all drafts come from pass 1
        ("first_pass_rows", "i8"),
        ("loses_last_match", "i8"),
        ("drafter_max_context", "i8"),
        # the host
        ("host_step_ns", "f8"),
        ("host_per_sequence_ns", "f8"),
        ("draft_step_ns", "f8"),  # once in a step that drafts
        ("draft_pass_ns", "f8"),
        ("lookup_step_ns", "f8"),  # once in a step that drafts without a model
        ("lookup_per_sequence_ns", "f8"),
        ("hidden_step_ns", "f8"),
        ("hidden_per_sequence_ns", "f8"),
        # the front end
        ("request_latency_ns", "i8"),
        ("request_ns", "i8"),
        ("prompt_token_ns", "f8"),
        # CUDA graphs
        ("graph_cap", "i8"),
        ("graph_padding", "i8"),
        # the band of the cost model
        ("gpu_scale", "f8"),  # every GPU stage is multiplied by it
        ("scales_decodes_only", "i8"),  # of a step that also prefills, the decodes' share of its tokens only
        # mechanisms
        ("prefill", "i8"),
        ("host_overlap", "i8"),
        ("stop_trim", "i8"),
        ("ghost_rows", "i8"),
        ("context_growth", "i8"),
        # prefix cache
        ("prefix_block_tokens", "i8"),
        # the clock
        ("now_ns", "i8"),
        ("ready", "i8"),  # a composed step waits to start at `now_ns`
        ("slot", "i8"),  # which of the two plans it is
        ("in_flight_step", "i8"),  # number of the running step while the next is composed
        ("in_flight_draft_length", "i8"),
        ("next_number", "i8"),
        # queues and memory
        ("running_count", "i8"),
        ("waiting_head", "i8"),
        ("waiting_count", "i8"),
        ("known_arrival_index", "i8"),
        ("followup_head", "i8"),
        ("followup_tail", "i8"),
        ("issue_index", "i8"),
        ("arrived_count", "i8"),
        ("entered_count", "i8"),  # of the arrived, how many have entered the front end
        ("parsed_count", "i8"),
        ("joined_count", "i8"),
        ("loop_share_ns", "i8"),  # work that each request in the front end's loop has had since the beginning
        ("loop_carry_ns", "i8"),  # time that was too short to be shared
        ("loop_now_ns", "i8"),  # until when it is shared
        ("tokenizer_free_ns", "i8"),
        ("give_up_index", "i8"),
        ("quiet_until_ns", "i8"),  # before it nobody arrives or gives up
        ("ended_count", "i8"),  # requests that ended since the pipeline last looked
        ("free_blocks", "i8"),
        ("cached_blocks", "i8"),  # held by nobody, kept for their contents
        ("reserved_blocks", "i8"),  # what admission set aside for the running requests
        ("in_system", "i8"),
        # acceptance, the scalar part
        ("seed", "i8"),
        ("acceptance_kind", "i8"),
        ("match_by_request", "i8"),
        ("query_knots", "i8"),  # extents of the attention tables
        ("context_knots", "i8"),
        ("attention_plane", "i8"),  # batch knots × context knots
        ("context_cells", "i8"),
        ("bins", "i8"),
        ("positions", "i8"),  # columns of `survival_bits`
        ("effect_low", "f8"),
        ("effect_bins_per_unit", "f8"),
        ("drift_sd", "f8"),
        ("drift_correlation", "f8"),
        # where the arrays are, and how many elements they have
        *((f"{name}_at", "i8") for name in ARRAYS),
        *((f"{name}_len", "i8") for name in ARRAYS),
    ],
    align=True,
)
