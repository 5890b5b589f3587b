"""The records and arrays of one engine: its requests, the two steps that it holds, and its tables.

All that a step reads or changes is in them or in the engine's own record (`engine.py`), so that the same
plain functions run compiled over a whole run and one stage at a time under SimPy. Times are integer
nanoseconds of the simulated clock.
"""

from __future__ import annotations

from typing import Any, NamedTuple, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

NEVER = 2**62
"""A time that does not come, in ns; a length that no request reaches, in tokens."""
NO_STEP = -1
"""No step runs: nothing is in flight."""

WAITING, RUNNING, DONE, TIMED_OUT, CANCELLED, REJECTED, NOT_ARRIVED = range(7)
"""Status of a request. From DONE to REJECTED it has ended; NOT_ARRIVED: its arrival has not come."""

FULL, PIECEWISE, EAGER = range(3)
"""CUDA-graph mode of the target pass."""

HOST, GPU, DRAFTER_GPU, KV_LINK = range(4)
"""What the stages of a step occupy, one stage at a time: the host thread that serves the GPU, the GPUs of the
target, a drafter's own, the link that carries KV between GPUs. The scheduler has a thread to itself.
"""
RESOURCES = 4

SCHEDULE, WAIT, START, UPDATE = range(4)
"""What an engine decides next (docs/step.md §5): which requests run; the same once something reaches its
queues; that the scheduled step starts; what the results of the running step change."""

GAP_BINS = 34 * 1024
"""Bins of gaps between emissions: 1,024 to the octave from 2^10 ns (1 µs) to 2^44 ns (4.9 hours)."""
FIRST_BIN_BITS = (1023 + 10) << 10
"""Exponent and leading ten mantissa bits of 2^10 as a float64."""

REQUEST = np.dtype(
    [
        # What it asks for
        ("prompt", "i4"),
        ("output", "i4"),  # output tokens at which it stops
        ("traffic_class", "i2"),
        ("cancelled", "i2"),  # the stop is a client's cancellation
        ("cannot_run", "i2"),  # it needs more blocks or tokens than there are
        ("measured", "i2"),  # its gaps and rounds are counted
        # Where it is on its way
        ("status", "i2"),
        ("draft_length", "i2"),  # drafts that a round of this request gets at most
        ("computed", "i4"),  # tokens whose KV the scheduler counts as computed, the running step included
        ("emitted", "i4"),
        ("drafts", "i4"),  # drafts that the request brings to its next round, not verified yet
        ("capacity", "i4"),  # tokens that its blocks can hold
        ("reserved", "i4"),  # blocks that its admission reserved
        ("named_blocks", "i4"),  # leading blocks that it may share with other requests
        ("keyed_tokens", "i4"),  # tokens whose full blocks have a key in the prefix cache
        ("pieces", "i4"),  # leading blocks that it holds as pieces of their own
        ("last_step", "i4"),  # number of the newest step in which it has an entry
        ("in_flight_drafts", "i4"),  # drafts in that entry
        ("in_flight_samples", "i2"),  # whether that entry samples
        ("matched", "i2"),  # whether its last prompt lookup found a match
        ("preempted_step", "i4"),  # the step that ran when it was last preempted
        # What happened to it
        ("drafted", "i4"),
        ("accepted", "i4"),
        ("draft_rounds", "i4"),
        ("decode_rounds", "i4"),
        ("preemptions", "i4"),
        ("in_system_at_arrival", "i4"),
        ("random_key", "u8"),  # of the stream that decides which of its drafts are accepted
        ("drift", "f8"),  # drift of acceptance at output position `emitted`, logit scale
        ("arrival_ns", "i8"),  # when its client sent it
        ("front_end_ns", "i8"),  # share of the event loop at which it is parsed; then when it is tokenized
        ("admitted_ns", "i8"),
        ("first_ns", "i8"),
        ("last_ns", "i8"),
        ("ended_ns", "i8"),
        ("max_itl_ns", "i8"),
        ("emitted_before_arrival", "i8"),
    ],
    align=True,
)
"""One request."""

ENTRY = np.dtype(
    [
        ("request", "i4"),
        ("tokens", "i4"),  # query tokens
        ("drafts", "i4"),  # of which drafts: the nodes that this step verifies
        ("decodes", "i4"),  # a decode or verify row, not a prefill chunk
        ("samples", "i4"),  # it reaches the end of what is known, so that a token comes out
        ("start", "i4"),  # tokens computed before it
        ("padded", "i4"),  # its drafts only fill it up to the rows of a decode: all are rejected
    ],
    align=True,
)
"""One request in one step."""

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
        ("draft_length", "i8"),  # K: drafts that a request gets at most at the end of this step
        ("drafts", "i8"),  # whether the step drafts; otherwise a drafter only keeps its KV current
        ("running_entries", "i8"),  # of requests that ran before
        ("prefills_on", "i8"),  # a running request prefills in it
        ("uniform", "i8"),  # query tokens that each decode has; 0: they differ
        ("preempted", "i8"),  # scheduling it preempted a request
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
"""One step, from when it is scheduled until its results are applied."""

STAGE = np.dtype(
    [
        ("price", "i8"),  # which of `PRICED` it lasts; -1: no time
        ("resource", "i8"),  # HOST … KV_LINK
        ("after", "i8"),  # the stage of the same step that it waits for; -1: the start of the step
    ],
    align=True,
)
"""One stage of every step of an engine."""

PIECE = np.dtype(
    [
        ("key", "i8"),  # what it contains; NO_KEY: no request will look for it
        ("blocks", "i4"),  # KV blocks
        ("holders", "i4"),  # requests that hold it
        ("older", "i4"),  # the piece that came free before it, and after it, while no request holds it
        ("newer", "i4"),
        ("next_in_bucket", "i4"),  # the next piece of the bucket of its key, or the next unused one
    ],
    align=True,
)
"""A piece of the prefix cache (`blocks.py`)."""

PRICED = ("host_ns", "verify_ns", "accept_ns", "draft_ns")
"""The durations in a plan, next to each other, that a stage can last."""

CLIENTS = np.dtype(
    [
        ("issue_index", "i8"),  # of `issue_order`, how many have been issued
        ("ended_count", "i8"),  # of `ended`, how many have not been reported
    ],
    align=True,
)
"""What the clients of all engines share."""

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
"""Counters over all steps."""


class State(NamedTuple):
    """One engine and its requests.

    n requests, S = `max_num_seqs`, M nodes and D positions at most in one round, P pieces of the prefix
    cache.
    """

    engine: NDArray[np.void]
    """(1,) ENGINE"""
    totals: NDArray[np.void]
    """(3,) TOTALS: so far; and snapshots of the steps and stages, at the arrival of request `first_measured`
    and at the newest arrival.
    """
    requests: NDArray[np.void]
    """(n,) REQUEST, in issue order."""
    plans: NDArray[np.void]
    """(2,) PLAN: the step that runs and the next one, in turns."""
    entries: NDArray[np.void]
    """(2, S) ENTRY"""
    stages: NDArray[np.void]
    """(G,) STAGE, in the order in which a step queues for its resources."""
    stage_ends: NDArray[np.int64]
    """(G,) when each stage of the running step ends, where stages queue."""
    clocks: NDArray[np.int64]
    """(4,) until when each resource is occupied."""
    running: NDArray[np.int32]
    """(S,) running requests in order of admission."""
    waiting: NDArray[np.int32]
    """(n + 1,) ring of waiting requests."""
    known_arrivals: NDArray[np.int32]
    """Requests with known arrivals, by (arrival, number)."""
    followups: NDArray[np.int32]
    """(n,) requests whose arrival became known, by (arrival, number)."""
    clients: NDArray[np.void]
    """(1,) CLIENTS"""
    issue_order: NDArray[np.int32]
    """Requests of a closed loop that wait for a free client."""
    arrived: NDArray[np.int32]
    """(n,) requests by arrival, for timeouts and the way through the front end."""
    ended: NDArray[np.int32]
    """(n,) requests whose clients have not been told yet that they ended."""
    successor: NDArray[np.int64]
    """(n,) next turn of the session or -1."""
    successor_delay_ns: NDArray[np.int64]
    draft_length_by_batch: NDArray[np.int64]
    """(S + 1,) K after a step with that many requests."""
    depth_by_nodes: NDArray[np.int64]
    """(M + 1,) drafts → positions at which they can be accepted; a chain: the same number."""
    passes_by_nodes: NDArray[np.int64]
    """(M + 1,) drafts → drafter passes that make them."""
    first_logits: NDArray[np.int64]
    """(M + 1,) rows of each request that the first of these passes takes logits of."""
    pass_rows: NDArray[np.int64]
    """(M + 1, most passes) rows that each request adds to every one of these passes."""
    passes_alike: NDArray[np.int64]
    """(M + 1, most passes) how many passes in a row, from this one on, have the same rows."""
    full_graph: NDArray[np.int64]
    """(M + 2, cap + 1) padded tokens of a uniform step of q query tokens for each decode and N tokens; -1
    where no graph is large enough.
    """
    has_full_graphs: NDArray[np.int64]
    """(M + 2,) whether steps of q query tokens for each decode have full graphs, if they are large enough."""
    any_graph: NDArray[np.int64]
    """(cap + 1,) padded tokens of any other step."""
    batch_cell: NDArray[np.int64]
    """(S + 1,) knot interval of a batch."""
    context_cell: NDArray[np.int64]
    """Knot interval of a mean context, by context // 64."""
    batch_part: NDArray[np.float64]
    """(S + 1,) where in its knot interval a batch lies, 0…1."""
    context_scale: NDArray[np.float64]
    """1 ÷ width of each context interval."""
    query_plane: NDArray[np.int64]
    """(Q + 1,) where the plane of attention prices begins for the knot at or below so many query tokens."""
    query_part: NDArray[np.float64]
    """(Q + 1,) where between that knot and the next a number of query tokens lies, 0…1; 0: on the knot."""
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
    """(classes, bins, D) the draft at position j is accepted when its 53 random bits are below
    ceil(c_j · 2^53), which is u < c_j.
    """
    request_effect: NDArray[np.float64]
    """(n,) or (1,): a request's own shift of acceptance, logit scale."""
    normal_quantiles: NDArray[np.float64]
    class_drafts: NDArray[np.int64]
    match_probability: NDArray[np.float64]
    """(classes, 2), or (n, 2) where requests differ: after a miss, after a match."""
    match_drafts: NDArray[np.int64]
    """(classes, match_levels) drafts that equally likely matches bring at most."""
    trace_lengths: NDArray[np.int64]
    trace_start: NDArray[np.int64]
    itl_histogram: NDArray[np.int64]
    """(classes, GAP_BINS) gaps between emissions of measured requests."""
    itl_token_histogram: NDArray[np.int64]
    """(classes, GAP_BINS) gap ÷ tokens of the emission, one count per token."""
    accepted_at: NDArray[np.int64]
    """(classes, D + 1) measured rounds by accepted drafts."""
    drafted_at: NDArray[np.int64]
    """(classes, M + 1) measured rounds by verified drafts."""
    prefix_start: NDArray[np.int64]
    prefix_ids: NDArray[np.int64]
    cache_pieces: NDArray[np.void]
    """(P + 1,) PIECE; element 0 is the anchor of the ring of pieces that no request holds, which are in the
    order in which they came free.
    """
    cache_buckets: NDArray[np.int32]
    """(B,) the first piece of each bucket of keys, 0: none. A bucket has its pieces in the order in which
    they were made.
    """
    held_pieces: NDArray[np.int32]
    """Which piece a request holds as each of its named blocks, one request after another."""


def _element(hint: Any) -> np.dtype[Any]:
    """Return the dtype of the elements of an `NDArray[...]`."""
    (element,) = get_args(get_args(hint)[1])
    return np.dtype(element)


_RECORDS = {
    "totals": TOTALS,
    "requests": REQUEST,
    "plans": PLAN,
    "entries": ENTRY,
    "stages": STAGE,
    "clients": CLIENTS,
    "cache_pieces": PIECE,
}

ARRAYS: dict[str, np.dtype[Any]] = {
    name: _RECORDS.get(name, _element(hint))
    for name, hint in get_type_hints(State).items()
    if name != "engine"
}
"""The arrays of an engine by name → dtype of their elements; the compiled code sees all of them flat."""
