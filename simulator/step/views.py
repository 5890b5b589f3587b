"""The arrays of an engine, as the compiled step sees them: `requests_of(e)[r]`.

An engine record holds the address and the number of elements of each array (`build.new_state`). A view made
from an address owns nothing. So one argument passes everything, and the inner loop counts no references: with
the arrays in a tuple the same step ran forty times slower.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simulator.numerics.compiled import compiled, pointer
from simulator.step.engine import ENGINE
from simulator.step.state import ARRAYS

Engine = Any
"""One record of `engine.ENGINE`."""


def _view(name: str) -> Callable[[Engine], Any]:
    from numba import carray  # type: ignore[attr-defined]

    at, length, dtype = f"{name}_at", f"{name}_len", ARRAYS[name]

    @compiled(inline=True)
    def view(e: Engine) -> Any:
        return carray(pointer(e[at]), e[length], dtype)

    return view


totals_of = _view("totals")
requests_of = _view("requests")
plans_of = _view("plans")
entries_of = _view("entries")
stages_of = _view("stages")
stage_ends_of = _view("stage_ends")
clocks_of = _view("clocks")

running_of = _view("running")
waiting_of = _view("waiting")
known_arrivals_of = _view("known_arrivals")
followups_of = _view("followups")
clients_of = _view("clients")
issue_order_of = _view("issue_order")
arrived_of = _view("arrived")
ended_of = _view("ended")
successor_of = _view("successor")
successor_delay_ns_of = _view("successor_delay_ns")

draft_length_by_batch_of = _view("draft_length_by_batch")
depth_by_nodes_of = _view("depth_by_nodes")
passes_by_nodes_of = _view("passes_by_nodes")
first_logits_of = _view("first_logits")
pass_rows_of = _view("pass_rows")
passes_alike_of = _view("passes_alike")
full_graph_of = _view("full_graph")
has_full_graphs_of = _view("has_full_graphs")
any_graph_of = _view("any_graph")

batch_cell_of = _view("batch_cell")
context_cell_of = _view("context_cell")
batch_part_of = _view("batch_part")
context_scale_of = _view("context_scale")
query_plane_of = _view("query_plane")
query_part_of = _view("query_part")
context_knots_of = _view("context_knots")
target_tokens_of = _view("target_tokens")
target_experts_of = _view("target_experts")
target_head_of = _view("target_head")
target_comm_of = _view("target_comm")
sample_of = _view("sample")
attention_of = _view("attention")
draft_tokens_of = _view("draft_tokens")
draft_experts_of = _view("draft_experts")
draft_head_of = _view("draft_head")
draft_attention_of = _view("draft_attention")
scalars_of = _view("scalars")

survival_bits_of = _view("survival_bits")
request_effect_of = _view("request_effect")
normal_quantiles_of = _view("normal_quantiles")
class_drafts_of = _view("class_drafts")
match_probability_of = _view("match_probability")
match_drafts_of = _view("match_drafts")
trace_lengths_of = _view("trace_lengths")
trace_start_of = _view("trace_start")

itl_histogram_of = _view("itl_histogram")
itl_token_histogram_of = _view("itl_token_histogram")
accepted_at_of = _view("accepted_at")
drafted_at_of = _view("drafted_at")

prefix_start_of = _view("prefix_start")
prefix_ids_of = _view("prefix_ids")
cache_pieces_of = _view("cache_pieces")
cache_buckets_of = _view("cache_buckets")
held_pieces_of = _view("held_pieces")


def _engine_view() -> Callable[[int], Engine]:
    from numba import carray  # type: ignore[attr-defined]

    @compiled(inline=True)
    def engine_at(address: int) -> Engine:
        return carray(pointer(address), 1, ENGINE)[0]

    return engine_at


engine_at = _engine_view()
"""The engine's record at an address."""


@compiled(inline=True)
def item(view: Any, index: int) -> Any:
    """Return one element of a view. The index is unsigned: a signed one may count from the end, and numba
    tests for that at every access.
    """
    return view[np.uint64(index)]


@compiled(inline=True)
def add(view: Any, index: int, amount: int) -> None:
    """Add to one element of a view."""
    view[np.uint64(index)] += amount


@compiled(inline=True)
def request_at(e: Engine, r: int) -> Any:
    """Return the record of request `r`."""
    return item(requests_of(e), r)


@compiled(inline=True)
def plan_at(e: Engine, slot: int) -> Any:
    """Return the plan in `slot`."""
    return item(plans_of(e), slot)


@compiled(inline=True)
def entry_at(e: Engine, slot: int, index: int) -> Any:
    """Return entry `index` of the step in `slot`."""
    return item(entries_of(e), slot * e.max_num_seqs + index)


@compiled(inline=True)
def piece_at(e: Engine, piece: int) -> Any:
    """Return a piece of the prefix cache."""
    return item(cache_pieces_of(e), piece)
