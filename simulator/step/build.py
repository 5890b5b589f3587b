"""From settings, prices, acceptance and requests to the record arrays of one engine."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simulator.costs.prices import Prices
from simulator.numerics.random_numbers import STREAM_SURVIVAL, stream_keys
from simulator.step.state import (
    ARRAYS,
    ENGINE,
    ENTRY,
    GAP_BINS,
    NEVER,
    NO_STEP,
    NOT_ARRIVED,
    PLAN,
    REQUEST,
    ROWS_TOKENS,
    TOTALS,
    State,
)

if TYPE_CHECKING:
    from simulator.acceptance import AcceptanceTables
    from simulator.traffic.workload import Requests


UNLIMITED_BLOCKS = 10**12
"""`total_blocks` of an engine whose KV memory is not limited."""

SHARED = ("totals", "requests", "itl_histogram", "itl_token_histogram", "accepted_at", "drafted_at")
"""Arrays that replicas behind one router share."""


@dataclass(frozen=True)
class EngineSettings:
    """All settings of an engine that a step reads; names and units as in `state.ENGINE` (docs/step.md §1)."""

    max_num_seqs: int
    max_num_batched_tokens: int
    block_tokens: int
    total_blocks: int
    draft_length_by_batch: tuple[int, ...] = (0,)
    """K by the number of requests of the step; the last entry holds beyond its end."""
    asynchronous: bool = False
    emits_before_drafting: bool = False
    mixes_prefill: bool = True
    chunked_prefill: bool = True
    reserved_output: float = 0.0
    stop_is_foreseen: bool = False
    external_clients: bool = False
    think_time_ns: int = 0
    timeout_ns: int = NEVER
    lookahead_tokens: int = 0
    slots_per_request: int = 0
    ragged: bool = False
    has_drafter: bool = False
    drafter_has_kv: bool = False
    one_pass: bool = False
    max_context_tokens: int = NEVER
    first_pass_rows: int = ROWS_TOKENS
    loses_last_match: bool = False
    drafter_max_context: int = NEVER
    host_step_ns: float = 0.0
    host_per_sequence_ns: float = 0.0
    draft_step_ns: float = 0.0
    draft_pass_ns: float = 0.0
    lookup_step_ns: float = 0.0
    lookup_per_sequence_ns: float = 0.0
    hidden_step_ns: float = 0.0
    hidden_per_sequence_ns: float = 0.0
    request_latency_ns: int = 0
    request_ns: int = 0
    prompt_token_ns: float = 0.0
    graph_sizes: tuple[int, ...] = ()
    """CUDA-graph sizes in tokens, ascending; the last one is the cap."""
    full_graphs: bool = True
    """Uniform decode steps replay one graph."""
    piecewise_graphs: bool = True
    """Other steps within the cap replay graphs between attention kernels; otherwise they run eagerly."""
    graph_padding: bool = True
    gpu_scale: float = 1.0
    scales_decodes_only: bool = False
    prefill: bool = True
    stop_trim: bool = True
    ghost_rows: bool = True
    context_growth: bool = True
    host_overlap: bool = True

    @property
    def max_draft_length(self) -> int:
        """The largest K of any batch."""
        return max(self.draft_length_by_batch)


def graph_tables(settings: EngineSettings) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return padded tokens by tokens 0…cap, for uniform steps and for any other step.

    -1 where no graph is there, so that the step runs eagerly.

    Uniform steps use the graph sizes rounded up to a multiple of K + 1 (vLLM V1 `_set_cudagraph_sizes`).
    """
    cap = settings.graph_sizes[-1] if settings.graph_sizes else 0
    tokens = np.arange(cap + 1)
    nowhere = np.full(cap + 1, -1)
    if cap == 0:
        return nowhere, nowhere
    sizes = np.array(settings.graph_sizes, dtype=np.int64)
    width = settings.max_draft_length + 1
    uniform = np.unique(-(-sizes // width) * width)
    uniform = uniform[uniform <= cap]
    place = np.searchsorted(uniform, tokens)
    full = np.where(place < len(uniform), np.append(uniform, -1)[place], -1)
    mixed = np.append(sizes, -1)[np.searchsorted(sizes, tokens)]
    return (full if settings.full_graphs else nowhere), (mixed if settings.piecewise_graphs else nowhere)


def _cells(knots: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each value the index of the knot interval it lies in; the outer intervals reach on."""
    return np.clip(np.searchsorted(knots, values, side="right") - 1, 0, len(knots) - 2).astype(np.int64)


def gap_bin_starts_ns() -> NDArray[np.int64]:
    """Return the lower edges (GAP_BINS + 1,) of the bins of gaps in ns;
    the outer bins also take what lies beyond.
    """
    bins = np.arange(GAP_BINS + 1)
    return (1024 + (bins & 1023)) << (bins >> 10)


def cannot_run(
    settings: EngineSettings, prompt_tokens: NDArray[np.int64], output_tokens: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return which requests (n,) can never run.

    They need more KV blocks than there are, more context than the model has, or more tokens in one step
    than fit when prompts may not be cut.
    """
    whole = prompt_tokens + output_tokens
    too_large = whole + settings.lookahead_tokens > settings.total_blocks * settings.block_tokens
    too_large |= whole > settings.max_context_tokens
    if not settings.chunked_prefill:
        too_large |= whole + settings.slots_per_request > settings.max_num_batched_tokens
    return too_large


def _engine_record(
    settings: EngineSettings, acceptance: AcceptanceTables, requests: Requests, seed: int
) -> NDArray[np.void]:
    """Return the engine's own record (1,) ENGINE: its settings, and all memory free."""
    engine = np.zeros(1, ENGINE)
    for setting in fields(settings):
        if setting.name in ENGINE.names:  # type: ignore[operator]
            engine[setting.name] = getattr(settings, setting.name)
    engine["max_draft_length"] = settings.max_draft_length
    engine["prefix_block_tokens"] = requests.prefix_block_tokens
    engine["in_flight_step"] = NO_STEP
    engine["free_blocks"] = settings.total_blocks
    engine["seed"] = seed
    engine["bins"], engine["positions"] = acceptance.conditional.shape[1:]
    engine["acceptance_kind"] = acceptance.kind
    engine["match_by_request"] = acceptance.match_by_request
    for name in ("effect_low", "effect_bins_per_unit", "drift_sd", "drift_correlation"):
        engine[name] = getattr(acceptance, name)
    return engine


def _request_records(
    settings: EngineSettings,
    acceptance: AcceptanceTables,
    requests: Requests,
    seed: int,
    measured: tuple[int, int],
) -> NDArray[np.void]:
    """Return the requests (n,) REQUEST, none of which has come; a client's cancel is a stop like another."""
    n = len(requests.prompt_tokens)
    records = np.zeros(n, REQUEST)
    cancels = (requests.cancel_after_tokens > 0) & (requests.cancel_after_tokens < requests.output_tokens)
    records["prompt"] = requests.prompt_tokens
    records["output"] = np.where(cancels, requests.cancel_after_tokens, requests.output_tokens)
    records["cancelled"] = cancels
    records["cannot_run"] = cannot_run(settings, records["prompt"], records["output"])
    records["traffic_class"] = requests.traffic_class
    records["measured"][slice(*measured)] = 1
    records["matched"] = acceptance.matched_before
    records["random_key"] = stream_keys(seed, n, STREAM_SURVIVAL)
    records["status"] = NOT_ARRIVED
    records["last_step"] = records["preempted_step"] = NO_STEP - 1
    for name in ("admitted_ns", "first_ns", "last_ns", "ended_ns"):
        records[name] = -1
    records["arrival_ns"] = requests.arrival_ns
    return records


def _queues(settings: EngineSettings, requests: Requests) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the requests with a known arrival, by (arrival, number), and those that wait for a client.

    Both are empty where the clients are outside.
    """
    if settings.external_clients:
        return np.zeros(0, np.int32), np.zeros(0, np.int32)
    known = np.flatnonzero(requests.arrival_ns >= 0)
    known_arrivals = known[np.argsort(requests.arrival_ns[known], kind="stable")]
    waits_for_client = requests.arrival_ns < 0
    waits_for_client[requests.successor[requests.successor >= 0]] = False
    return known_arrivals.astype(np.int32), np.flatnonzero(waits_for_client).astype(np.int32)


def _draft_length_by_batch(settings: EngineSettings) -> NDArray[np.int64]:
    """Return K by the number of requests of a step, 0…seats."""
    lengths = np.array(settings.draft_length_by_batch, dtype=np.int64)
    return lengths[np.minimum(np.arange(settings.max_num_seqs + 1), len(lengths) - 1)]


def new_state(
    settings: EngineSettings,
    prices: Prices,
    acceptance: AcceptanceTables,
    requests: Requests,
    seed: int,
    measured: tuple[int, int] | None = None,
    shared_with: State | None = None,
) -> State:
    """Return an engine at time 0 with all its requests still to come.

    `measured`: the range of request numbers whose gaps and rounds are counted (default: all). With
    `external_clients` nothing is scheduled: the pipeline delivers every request. `beside`: another replica,
    whose requests and books this one shares.
    """
    n = len(requests.prompt_tokens)
    seats = settings.max_num_seqs
    classes = acceptance.conditional.shape[0]
    per_class = (classes, settings.max_draft_length + 1)
    full_graph, any_graph = graph_tables(settings)
    engine = _engine_record(settings, acceptance, requests, seed)
    engine["graph_cap"] = len(full_graph) - 1
    engine["first_measured"] = measured[0] if measured else 0
    known_arrivals, issue_order = _queues(settings, requests)
    hashes = int(requests.prefix_ids.max()) + 1 if len(requests.prefix_ids) else 0
    anchor = np.zeros(hashes + 1, np.int32)
    anchor[hashes] = hashes
    batch = prices.batch_knots
    batch_cell = _cells(batch, np.arange(seats + 1))
    context_cell = _cells(prices.context_knots, np.arange(0, int(prices.context_knots[-1]) + 64, 64))
    engine["query_knots"], batch_knots, context_knots = prices.attention.shape
    engine["context_knots"], engine["attention_plane"] = context_knots, batch_knots * context_knots
    engine["context_cells"] = len(context_cell)
    state = State(
        engine=engine,
        totals=np.zeros(3, TOTALS),
        requests=_request_records(settings, acceptance, requests, seed, measured or (0, n)),
        plans=np.zeros(2, PLAN),
        entries=np.zeros((2, seats), ENTRY),
        running=np.zeros(seats, np.int32),
        waiting=np.zeros(n + 1, np.int32),
        known_arrivals=known_arrivals,
        followups=np.zeros(n, np.int32),
        issue_order=issue_order,
        arrived=np.zeros(n, np.int32),
        ended=np.zeros(n if settings.external_clients else 0, np.int32),
        successor=requests.successor,
        successor_delay_ns=requests.successor_delay_ns,
        draft_length_by_batch=_draft_length_by_batch(settings),
        full_graph=full_graph,
        any_graph=any_graph,
        batch_cell=batch_cell,
        context_cell=context_cell,
        batch_part=(np.arange(seats + 1) - batch[batch_cell]) / (batch[batch_cell + 1] - batch[batch_cell]),
        context_scale=1.0 / np.diff(prices.context_knots),
        **{name: table for name, table in prices._asdict().items() if name != "batch_knots"},
        survival_bits=np.ceil(acceptance.conditional * 2.0**53).astype(np.int64),
        request_effect=acceptance.request_effect,
        normal_quantiles=acceptance.normal_quantiles,
        class_drafts=acceptance.drafts.astype(np.int64),
        match_probability=np.stack([acceptance.match_after_miss, acceptance.match_after_match], axis=1),
        trace_lengths=acceptance.trace_lengths,
        trace_start=acceptance.trace_start,
        itl_histogram=np.zeros((classes, GAP_BINS), np.int64),
        itl_token_histogram=np.zeros((classes, GAP_BINS), np.int64),
        accepted_at=np.zeros(per_class, np.int64),
        drafted_at=np.zeros(per_class, np.int64),
        prefix_start=requests.prefix_start,
        prefix_ids=requests.prefix_ids,
        hash_holders=np.full(hashes, -1, np.int32),
        hash_older=anchor,
        hash_newer=anchor.copy(),
    )
    if shared_with is not None:
        state = state._replace(**{name: getattr(shared_with, name) for name in SHARED})
    for name in ARRAYS:
        array = getattr(state, name)
        engine[f"{name}_at"], engine[f"{name}_len"] = array.ctypes.data, array.size
    return state
