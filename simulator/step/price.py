"""Price: how long each stage of a scheduled step lasts (docs/step.md §4).

A sum over operators, each read from a table of the cost model, and rounded to nanoseconds once per stage.
Context is charged once per request whatever its number of query tokens (arXiv 2408.11049), every padded row
is computed, experts see real tokens only.
"""

from __future__ import annotations

from typing import Any

from simulator.costs.prices import (
    PRICE_DRAFT_LAUNCH_NS,
    PRICE_DRAFT_LAUNCHING_NS,
    PRICE_DRAFT_PREFILL_PAIR_NS,
    PRICE_DRAFT_PREFILL_START_NS,
    PRICE_DRAFT_PREFILL_TOKEN_NS,
    PRICE_LAUNCH_FULL_NS,
    PRICE_LAUNCHING_EAGER_NS,
    PRICE_PREFILL_PAIR_NS,
    PRICE_PREFILL_START_NS,
    PRICE_PREFILL_TOKEN_NS,
    PRICE_PREFILL_WINDOW_PAIR_NS,
    PRICE_SAMPLE_SEQUENCE_NS,
    PRICE_WINDOW_TOKENS,
)
from simulator.numerics.compiled import compiled
from simulator.step.state import EAGER, FULL, PIECEWISE
from simulator.step.views import (
    Engine,
    any_graph_of,
    attention_of,
    batch_cell_of,
    batch_part_of,
    context_cell_of,
    context_knots_of,
    context_scale_of,
    draft_attention_of,
    draft_experts_of,
    draft_head_of,
    draft_tokens_of,
    entry_at,
    first_logits_of,
    full_graph_of,
    has_full_graphs_of,
    item,
    pass_rows_of,
    passes_alike_of,
    passes_by_nodes_of,
    plan_at,
    query_part_of,
    query_plane_of,
    request_at,
    sample_of,
    scalars_of,
    target_comm_of,
    target_experts_of,
    target_head_of,
    target_tokens_of,
)


@compiled(inline=True)
def _cell(e: Engine, sequences: int, context_tokens: float) -> tuple[int, float, float]:
    """Return where (sequences, mean context) lies in a plane of the attention tables: the element of both
    lower knots, and the part of the batch interval and of the context interval.

    The outer intervals are continued.
    """
    b = item(batch_cell_of(e), sequences)
    # Context knots are multiples of 64, so that a shift finds the interval and no search is needed.
    c = item(context_cell_of(e), min(int(context_tokens) >> 6, e.context_cells - 1))
    part = (context_tokens - item(context_knots_of(e), c)) * item(context_scale_of(e), c)
    return b * e.context_knots + c, item(batch_part_of(e), sequences), part


@compiled(inline=True)
def _bilinear(e: Engine, table: Any, at: int, batch_part: float, context_part: float) -> float:
    """Return the price between the four knots whose lowest is element `at`."""
    low = item(table, at) + (item(table, at + 1) - item(table, at)) * context_part
    at += e.context_knots
    high = item(table, at) + (item(table, at + 1) - item(table, at)) * context_part
    return low + (high - low) * batch_part


@compiled(inline=True)
def _attention_ns(e: Engine, table: Any, cell: tuple[int, float, float], query_tokens: int) -> float:
    """Return the price of decode attention: bilinear in (sequences, mean context), and linear between knots
    of query tokens.
    """
    at, batch_part, context_part = cell
    at += item(query_plane_of(e), query_tokens)
    attention = _bilinear(e, table, at, batch_part, context_part)
    if query_tokens > e.dense_query_tokens:  # only in trees: every length of a chain is a knot
        query_part = item(query_part_of(e), query_tokens)
        if query_part > 0.0:
            next_knot = _bilinear(e, table, at + e.attention_plane, batch_part, context_part)
            attention += (next_knot - attention) * query_part
    return attention


@compiled(inline=True)
def _padded(e: Engine, tokens: int) -> int:
    """Return the CUDA-graph size that holds `tokens`, or `tokens` where there is none."""
    return max(item(any_graph_of(e), tokens), tokens) if e.graph_padding and tokens <= e.graph_cap else tokens


@compiled(inline=True)
def _graph(e: Engine, tokens: int, query_tokens: int) -> tuple[int, int]:
    """Return the CUDA-graph mode of a target pass of `tokens`, and to how many tokens it is padded.

    `query_tokens`: of each request of a uniform decode step; 0: the step is no such step.
    """
    uniform = item(has_full_graphs_of(e), query_tokens)
    if not e.graph_padding:
        return (FULL if uniform else PIECEWISE), tokens
    if tokens <= e.graph_cap:
        full = item(full_graph_of(e), query_tokens * (e.graph_cap + 1) + tokens)
        if uniform and full >= 0:
            return FULL, full
        if item(any_graph_of(e), tokens) >= 0:
            return PIECEWISE, item(any_graph_of(e), tokens)
    return EAGER, tokens


@compiled(inline=True)
def _pass_ns(e: Engine, rows: int, logit_rows: int) -> float:
    """Return the price of one drafter pass on `rows` rows without its attention and its launch."""
    return (
        item(draft_tokens_of(e), _padded(e, rows))
        + item(draft_experts_of(e), rows)
        + item(draft_head_of(e), logit_rows)
    )


@compiled(inline=True)
def _price_drafts(
    e: Engine,
    slot: int,
    tokens: int,
    decodes: tuple[int, float, float],
    query_tokens: int,
    pairs: float,
    chunks: int,
    after_step: tuple[int, float, float],
    scale: float,
    ahead_ns: int,
) -> int:
    """Return how long drafting takes after the accept stage: prompt lookups on the host, or drafter passes.

    `decodes` and `query_tokens` say where the decodes lie in the attention tables, `after_step` where all
    entries lie once the step has ended, `pairs` and `chunks` what prefill attention reads, and `ahead_ns` how
    long the host launches passes that no graph holds before the accept stage ends.
    """
    p = plan_at(e, slot)
    if not (p.drafts or (e.has_drafter and e.drafter_has_kv and p.drafters > 0)):
        return 0
    if not e.has_drafter:
        return int(e.lookup_step_ns + e.lookup_per_sequence_ns * p.drafting_samples + 0.5)
    requests = p.entries if e.prefill else p.decodes
    nodes = p.draft_length if p.drafts else 0
    first = nodes * e.max_passes  # where the passes of so many drafts begin in `pass_rows`
    rows = requests * item(pass_rows_of(e), first)
    if e.first_pass_reads_tokens:
        rows += tokens
    total = _pass_ns(e, rows, requests * item(first_logits_of(e), nodes))
    if chunks > 0 and e.first_pass_reads_tokens:
        total += pairs * item(scalars_of(e), PRICE_DRAFT_PREFILL_PAIR_NS)
        total += (p.tokens - p.decode_tokens) * item(scalars_of(e), PRICE_DRAFT_PREFILL_TOKEN_NS)
        total += item(scalars_of(e), PRICE_DRAFT_PREFILL_START_NS)
    if p.decodes > 0:
        total += _attention_ns(e, draft_attention_of(e), decodes, query_tokens)
    passes = item(passes_by_nodes_of(e), nodes)
    level = 1
    while level < passes:
        width = item(pass_rows_of(e), first + level)
        # Passes of one width are priced once and multiplied: all later passes of a chain are one product.
        alike = item(passes_alike_of(e), first + level)
        rows = requests * width
        later = _pass_ns(e, rows, rows) + _attention_ns(e, draft_attention_of(e), after_step, width)
        total += later * alike
        level += alike
    gpu_ns = (total + passes * item(scalars_of(e), PRICE_DRAFT_LAUNCH_NS)) * scale
    launching_ns = passes * item(scalars_of(e), PRICE_DRAFT_LAUNCHING_NS)
    gpu_ns = max(gpu_ns, launching_ns - ahead_ns)
    return int(gpu_ns + e.draft_step_ns + passes * e.draft_pass_ns + 0.5)


@compiled(inline=True)
def _wait_for_launches(e: Engine, slot: int, start_ns: int) -> None:
    """Let an eager pass that starts at `start_ns` last until the host has launched all of its kernels.

    The host begins when the step is scheduled and the launches of the step before are done.
    """
    p = plan_at(e, slot)
    begun_ns = start_ns
    if e.host_overlap:
        begun_ns = max(p.scheduled_ns, plan_at(e, 1 - slot).launched_ns) + p.hidden_ns
    p.launched_ns = begun_ns + int(item(scalars_of(e), PRICE_LAUNCHING_EAGER_NS) + 0.5)
    p.verify_ns = max(p.verify_ns, p.launched_ns - start_ns)


@compiled(inline=True)
def price(e: Engine, slot: int, start_ns: int) -> None:
    """Write the duration of every stage of the step in `slot`, which starts at `start_ns`, with the contexts
    of that instant.
    """
    p = plan_at(e, slot)
    p.launched_ns = 0
    context_sum = 0
    pairs = 0.0
    window_pairs = 0.0
    chunk_context = 0
    chunks = 0
    for index in range(p.entries):
        entry = entry_at(e, slot, index)
        q = request_at(e, entry.request)
        if entry.decodes:
            emitted = q.emitted if e.context_growth else q.output // 2
            context_sum += q.prompt + emitted - 1 + entry.tokens
        else:
            mean_keys = entry.start + entry.tokens / 2  # causal: a token sees half of its own chunk
            pairs += entry.tokens * mean_keys
            window_pairs += entry.tokens * min(mean_keys, item(scalars_of(e), PRICE_WINDOW_TOKENS))
            chunk_context += entry.start + entry.tokens
            chunks += 1
    tokens = p.tokens
    rows = p.decode_tokens + (p.samples - p.decodes)
    sampling = p.samples
    if not e.prefill:  # prefill entries stay in the step, but they take no GPU time
        tokens = p.decode_tokens
        rows = p.decode_tokens
        sampling = p.decodes
        pairs = 0.0
        window_pairs = 0.0
        chunk_context = 0
        chunks = 0

    if tokens == 0:
        p.verify_ns = 0
        p.accept_ns = 0
        p.draft_ns = 0
        p.attention_ns = 0
        p.communication_ns = 0
        p.padded_tokens = 0
        p.graph_mode = FULL
        return

    mode, padded = _graph(e, tokens, p.uniform if chunks == 0 else 0)
    attention = 0.0
    if chunks > 0:
        attention = pairs * item(scalars_of(e), PRICE_PREFILL_PAIR_NS)
        attention += (p.tokens - p.decode_tokens) * item(scalars_of(e), PRICE_PREFILL_TOKEN_NS)
        attention += item(scalars_of(e), PRICE_PREFILL_START_NS)
        attention += window_pairs * item(scalars_of(e), PRICE_PREFILL_WINDOW_PAIR_NS)
    context = 0.0
    query_tokens = 1
    decodes = (0, 0.0, 0.0)
    if p.decodes > 0:
        context = context_sum / p.decodes if p.decodes > 1 else float(context_sum)
        query_tokens = p.uniform if p.uniform else (p.decode_tokens + p.decodes - 1) // p.decodes
        decodes = _cell(e, p.decodes, context)
        attention += _attention_ns(e, attention_of(e), decodes, query_tokens)
    target = item(target_tokens_of(e), padded) + item(target_experts_of(e), tokens) + attention
    target += item(target_head_of(e), rows) + item(scalars_of(e), PRICE_LAUNCH_FULL_NS + mode)
    scale = e.gpu_scale
    if e.scales_decodes_only and chunks > 0:
        scale = 1.0 + (scale - 1.0) * p.decode_tokens / tokens
    p.verify_ns = int(target * scale + 0.5)
    accept = item(sample_of(e), rows) + sampling * item(scalars_of(e), PRICE_SAMPLE_SEQUENCE_NS)
    p.accept_ns = int(accept * scale + 0.5)
    ahead_ns = 0
    if e.asynchronous and e.host_overlap:
        ahead_ns = p.verify_ns + p.accept_ns - p.hidden_ns
    if mode == EAGER:
        ahead_ns -= int(item(scalars_of(e), PRICE_LAUNCHING_EAGER_NS) + 0.5)
        _wait_for_launches(e, slot, start_ns)
    ahead_ns = max(ahead_ns, 0)
    after_step = decodes
    if chunks > 0:
        after_step = _cell(e, p.entries, (chunk_context + context_sum) / p.entries)
    p.draft_ns = _price_drafts(
        e, slot, tokens, decodes, query_tokens, pairs, chunks, after_step, scale, ahead_ns
    )
    p.attention_ns = int(attention * scale + 0.5)
    p.communication_ns = int(item(target_comm_of(e), padded) * scale + 0.5)
    p.padded_tokens = padded
    p.graph_mode = mode
