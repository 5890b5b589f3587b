"""From settings, prices, acceptance and requests to the record and arrays of one engine."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.acceptance.tables import AcceptanceTables
from simulator.costs.prices import Prices
from simulator.numerics.random_numbers import STREAM_SURVIVAL, stream_keys
from simulator.speculation.shape import DraftShape
from simulator.step.engine import ENGINE
from simulator.step.requests import RequestTable
from simulator.step.settings import SETTING_FIELDS, EngineSettings
from simulator.step.stages import SERIAL, stage_records
from simulator.step.state import (
    ARRAYS,
    CLIENTS,
    ENTRY,
    GAP_BINS,
    NO_STEP,
    NOT_ARRIVED,
    PIECE,
    PLAN,
    REQUEST,
    RESOURCES,
    TOTALS,
    State,
)

UNLIMITED_BLOCKS = 10**12
"""`total_blocks` of an engine whose KV memory is not limited."""

SHARED = (
    "totals",
    "requests",
    "clients",
    "ended",
    "itl_histogram",
    "itl_token_histogram",
    "accepted_at",
    "drafted_at",
)
"""Arrays that replicas behind one router share."""

Arrays = dict[str, NDArray[Any]]


def graph_tables(settings: EngineSettings) -> Arrays:
    """Return the padded tokens of 0…cap tokens of a uniform step, by its query tokens for each decode, and of
    any other step; and which uniform steps have graphs of their own.

    -1 where no graph is large enough, so that the step runs eagerly. A uniform step uses the graph sizes
    rounded up to a multiple of its query tokens (vLLM V1 `_set_cudagraph_sizes`). The second model runner
    captures those of every K of a schedule (vLLM 0.32 `v1/worker/gpu/cudagraph_utils.py`).
    """
    cap = settings.graph_sizes[-1] if settings.graph_sizes else 0
    widths = {settings.max_nodes + 1}
    if settings.graphs_of_every_length:
        widths |= {length + 1 for length in settings.draft_lengths}
    full = np.full((settings.max_nodes + 2, cap + 1), -1)
    mixed = np.full(cap + 1, -1)
    if cap > 0:
        tokens, sizes = np.arange(cap + 1), np.array(settings.graph_sizes, dtype=np.int64)
        for width in widths if settings.full_graphs else ():
            uniform = np.unique(-(-sizes // width) * width)
            uniform = np.append(uniform[uniform <= cap], -1)
            full[width] = uniform[np.searchsorted(uniform[:-1], tokens)]
        if settings.piecewise_graphs:
            mixed = np.append(sizes, -1)[np.searchsorted(sizes, tokens)]
    has_graphs = np.isin(np.arange(settings.max_nodes + 2), list(widths)).astype(np.int64)
    return {"full_graph": full, "any_graph": mixed, "has_full_graphs": has_graphs}


def _cells(knots: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the index of the knot interval in which each value lies; the outer intervals are continued."""
    return np.clip(np.searchsorted(knots, values, side="right") - 1, 0, len(knots) - 2).astype(np.int64)


def gap_bin_starts_ns() -> NDArray[np.int64]:
    """Return the edges (GAP_BINS + 1,) of the bins of gaps in ns; the outer bins also take gaps beyond."""
    bins = np.arange(GAP_BINS + 1)
    return (1024 + (bins & 1023)) << (bins >> 10)


def cannot_run(
    settings: EngineSettings, prompt_tokens: NDArray[np.int64], output_tokens: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return which requests (n,) can never run.

    They need more KV blocks than there are, more context than the model has, or more tokens in one step
    than fit when prompts may not be cut.
    """
    total_tokens = prompt_tokens.astype(np.int64) + output_tokens
    # The last token that comes out needs no slot, unless slots are reserved for the whole output.
    slots = total_tokens - 1 + settings.lookahead_tokens + settings.padded_drafts
    slots += settings.reserved_output > 0
    too_large = np.minimum(slots, settings.max_context_tokens) > settings.total_blocks * settings.block_tokens
    too_large |= total_tokens > settings.max_context_tokens
    if not settings.chunked_prefill:
        too_large |= total_tokens + settings.slots_per_request > settings.max_num_batched_tokens
    return too_large


def _engine_record(
    settings: EngineSettings, acceptance: AcceptanceTables, requests: RequestTable, seed: int
) -> NDArray[np.void]:
    """Return the engine's own record (1,) ENGINE: its settings, and all memory free."""
    engine = np.zeros(1, ENGINE)
    for name, _ in SETTING_FIELDS:
        engine[name] = getattr(settings, name)
    engine["max_nodes"], engine["max_depth"] = settings.max_nodes, settings.max_depth
    engine["prefix_block_tokens"] = requests.prefix_block_tokens
    engine["cache_block_tokens"] = cache_block_tokens(settings, requests.prefix_block_tokens)
    engine["in_flight_step"] = NO_STEP
    engine["free_blocks"] = settings.total_blocks
    engine["seed"] = seed
    engine["bins"], engine["positions"] = acceptance.conditional.shape[1:]
    engine["acceptance_kind"] = acceptance.kind
    engine["match_levels"] = acceptance.match_drafts.shape[1]
    engine["match_by_request"] = acceptance.match_by_request
    for name in ("effect_low", "effect_bins_per_unit", "drift_sd", "drift_correlation"):
        engine[name] = getattr(acceptance, name)
    return engine


def _request_records(
    settings: EngineSettings,
    acceptance: AcceptanceTables,
    requests: RequestTable,
    seed: int,
    measured: tuple[int, int],
) -> NDArray[np.void]:
    """Return the requests (n,) REQUEST, none of which has arrived. A client's cancellation is a stop as any
    other.
    """
    n = len(requests.prompt_tokens)
    records = np.zeros(n, REQUEST)
    cancels = (requests.cancel_after_tokens > 0) & (requests.cancel_after_tokens < requests.output_tokens)
    records["prompt"] = requests.prompt_tokens
    records["output"] = np.where(cancels, requests.cancel_after_tokens, requests.output_tokens)
    records["cancelled"] = cancels
    records["cannot_run"] = cannot_run(settings, records["prompt"], records["output"])
    records["traffic_class"] = requests.traffic_class
    if settings.prefix_caching and requests.prefix_block_tokens:
        per_name = requests.prefix_block_tokens // cache_block_tokens(settings, requests.prefix_block_tokens)
        records["named_blocks"] = np.diff(requests.prefix_start) * per_name
    records["measured"][slice(*measured)] = 1
    records["matched"] = acceptance.matched_before
    records["random_key"] = stream_keys(seed, n, STREAM_SURVIVAL)
    records["status"] = NOT_ARRIVED
    records["draft_length"] = settings.max_nodes
    records["last_step"] = records["preempted_step"] = NO_STEP - 1
    for name in ("admitted_ns", "first_ns", "last_ns", "ended_ns"):
        records[name] = -1
    records["arrival_ns"] = requests.arrival_ns
    return records


def _queues(requests: RequestTable) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the requests with a known arrival, by (arrival, number), and those that wait for a client."""
    known = np.flatnonzero(requests.arrival_ns >= 0)
    known_arrivals = known[np.argsort(requests.arrival_ns[known], kind="stable")]
    waits_for_client = requests.arrival_ns < 0
    waits_for_client[requests.successor[requests.successor >= 0]] = False
    return known_arrivals.astype(np.int32), np.flatnonzero(waits_for_client).astype(np.int32)


@lru_cache(maxsize=64)
def _shape_arrays(shape: DraftShape, max_nodes: int) -> Arrays:
    """Return what 0…max_nodes drafts mean for depth and passes; the same arrays for every engine."""
    rows = [shape.pass_rows(nodes) for nodes in range(max_nodes + 1)]
    pass_rows = np.zeros((len(rows), max(len(passes) for passes in rows)), np.int64)
    alike = np.zeros_like(pass_rows)
    for nodes, passes in enumerate(rows):
        pass_rows[nodes, : len(passes)] = passes
        for level in reversed(range(len(passes))):
            next_is_alike = passes[level + 1 : level + 2] == passes[level : level + 1]
            alike[nodes, level] = 1 + (alike[nodes, level + 1] if next_is_alike else 0)
    return {
        "depth_by_nodes": np.array([shape.depth(nodes) for nodes in range(max_nodes + 1)], dtype=np.int64),
        "passes_by_nodes": np.array([len(passes) for passes in rows], dtype=np.int64),
        "first_logits": np.array([shape.first_logits(nodes) for nodes in range(max_nodes + 1)], np.int64),
        "pass_rows": pass_rows,
        "passes_alike": alike,
    }


def _draft_length_by_batch(settings: EngineSettings) -> NDArray[np.int64]:
    """Return K by the number of requests of a step (max_num_seqs + 1,)."""
    lengths = np.array(settings.draft_length_by_batch, dtype=np.int64)
    return lengths[np.minimum(np.arange(settings.max_num_seqs + 1), len(lengths) - 1)]


@lru_cache(maxsize=64)
def _query_arrays(query_knots: tuple[int, ...], plane: int, max_query_tokens: int) -> Arrays:
    """Return where 0…max_query_tokens query tokens lie among the planes of `plane` prices each; above the
    last knot they count as that knot.
    """
    knots = np.array(query_knots)
    queries = np.minimum(np.arange(1, max_query_tokens + 1), knots[-1])
    cell = np.searchsorted(knots, queries, side="right") - 1
    part = (queries - knots[cell]) / (np.append(knots, knots[-1] + 1)[cell + 1] - knots[cell])
    return {"query_plane": np.append(0, cell * plane), "query_part": np.append(0.0, part)}


def _price_arrays(settings: EngineSettings, prices: Prices) -> Arrays:
    """Return the price tables, and where batches and contexts lie between their knots.

    Each batch has its interval and its part of it in a table; a context is found by its 64 tokens, which no
    knot divides.
    """
    batches, batch_knots = np.arange(settings.max_num_seqs + 1), prices.batch_knots
    batch_cell = _cells(batch_knots, batches)
    return {
        **{name: table for name, table in prices._asdict().items() if name in ARRAYS},
        "batch_cell": batch_cell,
        "batch_part": (batches - batch_knots[batch_cell]) / np.diff(batch_knots)[batch_cell],
        "context_cell": _cells(prices.context_knots, np.arange(0, int(prices.context_knots[-1]) + 64, 64)),
        "context_scale": 1.0 / np.diff(prices.context_knots),
    }


def _acceptance_arrays(acceptance: AcceptanceTables) -> Arrays:
    """Return the acceptance tables as the step compares them: thresholds in random bits, matches in pairs."""
    return {
        "survival_bits": np.ceil(acceptance.conditional * 2.0**53).astype(np.int64),
        "request_effect": acceptance.request_effect,
        "normal_quantiles": acceptance.normal_quantiles,
        "class_drafts": acceptance.drafts.astype(np.int64),
        "match_probability": np.stack([acceptance.match_after_miss, acceptance.match_after_match], axis=1),
        "match_drafts": acceptance.match_drafts,
        "trace_lengths": acceptance.trace_lengths,
        "trace_start": acceptance.trace_start,
    }


def cache_block_tokens(settings: EngineSettings, prefix_block_tokens: int) -> int:
    """Return the tokens of a piece of the prefix cache: a KV block. Where a KV block is a single token
    (SGLang), a block that `prefix_ids` names comes and goes as a whole.
    """
    return (
        prefix_block_tokens if settings.block_tokens == 1 and prefix_block_tokens else settings.block_tokens
    )


def _prefix_arrays(settings: EngineSettings, requests: RequestTable) -> Arrays:
    """Return the named blocks of the requests, and an empty prefix cache.

    A piece is at least one block of memory; where all blocks of all requests fit, each of them becomes one
    piece at most.
    """
    size = cache_block_tokens(settings, requests.prefix_block_tokens)
    pieces = named = 0
    if settings.prefix_caching:
        ahead = settings.lookahead_tokens + 2 * (settings.max_nodes + 1)
        tokens = requests.prompt_tokens + requests.output_tokens + ahead
        pieces = min(settings.total_blocks, int((tokens // settings.block_tokens + 1).sum()))
        named = len(requests.prefix_ids) * (requests.prefix_block_tokens // size)
    return {
        "prefix_start": requests.prefix_start,
        "prefix_ids": requests.prefix_ids,
        "cache_pieces": np.zeros(pieces + 1, PIECE),
        "cache_buckets": np.zeros(1 << pieces.bit_length(), np.int32),
        "held_pieces": np.zeros(named, np.int32),
    }


def new_state(
    settings: EngineSettings,
    prices: Prices,
    acceptance: AcceptanceTables,
    requests: RequestTable,
    seed: int,
    measured: tuple[int, int] | None = None,
    *,
    binds_clients: bool = True,
    shared_with: State | None = None,
) -> State:
    """Return an engine at time 0 with all its requests still to arrive.

    `measured`: the range of request numbers whose gaps and rounds are counted (default: all).
    `binds_clients`: arrivals and what follows a request are data of this engine; otherwise every request is
    delivered to it, and the ends are reported. `shared_with`: another replica, whose requests, clients and
    counters this one shares.
    """
    n, max_num_seqs = len(requests.prompt_tokens), settings.max_num_seqs
    classes = acceptance.conditional.shape[0]
    graphs = graph_tables(settings)
    known_arrivals, issue_order = _queues(requests)
    priced = _price_arrays(settings, prices)
    shaped = _shape_arrays(settings.shape, settings.max_nodes)
    plane = len(prices.batch_knots) * len(prices.context_knots)
    widest = max(settings.max_nodes + 1, int(shaped["pass_rows"].max()))
    queries = _query_arrays(tuple(prices.query_knots.tolist()), plane, widest)
    engine = _engine_record(settings, acceptance, requests, seed)
    engine["first_measured"] = measured[0] if measured else 0
    engine["binds_clients"] = binds_clients
    engine["known_arrival_index"] = 0 if binds_clients else len(known_arrivals)
    stage_names = [stage.name for stage in settings.stages]
    engine["stage_count"] = len(stage_names)
    engine["stages_queue"] = (settings.stages, settings.next_step_after) != (SERIAL, "draft")
    engine["results_after"] = stage_names.index(settings.results_after)
    engine["next_step_after"] = stage_names.index(settings.next_step_after)
    engine["graph_cap"] = len(graphs["any_graph"]) - 1
    engine["max_passes"] = shaped["pass_rows"].shape[1]
    engine["dense_query_tokens"] = np.flatnonzero(np.append(queries["query_part"], 1.0))[0] - 1
    engine["context_knots"] = len(prices.context_knots)
    engine["attention_plane"] = plane
    engine["context_cells"] = len(priced["context_cell"])
    state = State(
        engine=engine,
        totals=np.zeros(3, TOTALS),
        requests=_request_records(settings, acceptance, requests, seed, measured or (0, n)),
        plans=np.zeros(2, PLAN),
        stages=stage_records(settings.stages),
        stage_ends=np.zeros(len(settings.stages), np.int64),
        clocks=np.zeros(RESOURCES, np.int64),
        entries=np.zeros((2, max_num_seqs), ENTRY),
        running=np.zeros(max_num_seqs, np.int32),
        waiting=np.zeros(n + 1, np.int32),
        known_arrivals=known_arrivals,
        followups=np.zeros(n, np.int32),
        issue_order=issue_order,
        arrived=np.zeros(n, np.int32),
        ended=np.zeros(0 if binds_clients else n, np.int32),
        clients=np.zeros(1, CLIENTS),
        successor=requests.successor,
        successor_delay_ns=requests.successor_delay_ns,
        itl_histogram=np.zeros((classes, GAP_BINS), np.int64),
        itl_token_histogram=np.zeros((classes, GAP_BINS), np.int64),
        accepted_at=np.zeros((classes, settings.max_depth + 1), np.int64),
        drafted_at=np.zeros((classes, settings.max_nodes + 1), np.int64),
        draft_length_by_batch=_draft_length_by_batch(settings),
        **graphs,
        **shaped,
        **priced,
        **queries,
        **_acceptance_arrays(acceptance),
        **_prefix_arrays(settings, requests),
    )
    if shared_with is not None:
        state = state._replace(**{name: getattr(shared_with, name) for name in SHARED})
    for name in ARRAYS:
        array = getattr(state, name)
        engine[f"{name}_at"], engine[f"{name}_len"] = array.ctypes.data, array.size
    return state
