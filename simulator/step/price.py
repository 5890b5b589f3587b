"""Price: how long each stage of a composed step lasts (docs/step.md §4).

A sum over operators, each read from a table of the cost model; rounded to nanoseconds once per stage. Context is charged once per
request whatever its number of query tokens (arXiv 2408.11049), every padded row is computed, experts see real tokens only.
"""

from __future__ import annotations

from typing import Any

from simulator.compiled import compiled
from simulator.prices import (
    PRICE_DRAFT_LAUNCH_NS,
    PRICE_DRAFT_PREFILL_CHUNK_NS,
    PRICE_DRAFT_PREFILL_PAIR_NS,
    PRICE_LAUNCH_FULL_NS,
    PRICE_PREFILL_CHUNK_NS,
    PRICE_PREFILL_PAIR_NS,
    PRICE_PREFILL_WINDOW_PAIR_NS,
    PRICE_WINDOW_TOKENS,
)
from simulator.step.state import EAGER, FULL, PIECEWISE, ROWS_REQUESTS, ROWS_TOKENS_AND_REQUESTS
from simulator.step.views import (
    Engine,
    any_graph_of,
    attention_of,
    batch_cell_of,
    batch_part_of,
    context_cell_of,
    context_scale_of,
    context_knots_of,
    draft_attention_of,
    draft_experts_of,
    draft_head_of,
    draft_tokens_of,
    entry_at,
    full_graph_of,
    plans_of,
    requests_of,
    sample_of,
    scalars_of,
    target_comm_of,
    target_experts_of,
    target_head_of,
    target_tokens_of,
)


@compiled(inline=True)
def _attention_ns(e: Engine, table: Any, sequences: int, context_tokens: float, query_tokens: int) -> float:
    """Return the price of decode attention: bilinear in (sequences, mean context), the outer intervals continued."""
    b = batch_cell_of(e)[sequences]
    c = context_cell_of(e)[min(int(context_tokens) >> 6, e.context_cells - 1)]
    x = batch_part_of(e)[sequences]
    y = (context_tokens - context_knots_of(e)[c]) * context_scale_of(e)[c]
    at = (min(query_tokens, e.query_knots) - 1) * e.attention_plane + b * e.context_knots + c
    low = table[at] + (table[at + 1] - table[at]) * y
    at += e.context_knots
    high = table[at] + (table[at + 1] - table[at]) * y
    return low + (high - low) * x


@compiled(inline=True)
def _padded(e: Engine, tokens: int) -> int:
    """Return the CUDA-graph size that holds `tokens`, or `tokens` where there is none."""
    return max(any_graph_of(e)[tokens], tokens) if e.graph_padding and tokens <= e.graph_cap else tokens


@compiled(inline=True)
def _price_drafts(
    e: Engine,
    slot: int,
    tokens: int,
    context: float,
    query_tokens: int,
    pairs: float,
    chunks: int,
    whole: float,
) -> int:
    """Return the time of the drafter's passes after the accept stage.

    `context` and `query_tokens` are those of the decodes, `pairs` and `chunks` those of prefill attention, `whole` the mean
    context of all entries after the step.
    """
    p = plans_of(e)[slot]
    if not e.has_drafter or not (p.drafts or (e.drafter_has_kv and p.drafters > 0)):
        return 0
    requests = p.entries if e.prefill else p.decodes
    rows = tokens
    if e.first_pass_rows == ROWS_TOKENS_AND_REQUESTS:
        rows = tokens + requests
    elif e.first_pass_rows == ROWS_REQUESTS:
        rows = requests
    total = draft_tokens_of(e)[_padded(e, rows)] + draft_experts_of(e)[rows] + draft_head_of(e)[requests]
    total += (
        pairs * scalars_of(e)[PRICE_DRAFT_PREFILL_PAIR_NS]
        + chunks * scalars_of(e)[PRICE_DRAFT_PREFILL_CHUNK_NS]
    )
    if p.decodes > 0:
        total += _attention_ns(e, draft_attention_of(e), p.decodes, context, query_tokens)
    passes = 1
    if p.drafts and not e.one_pass and p.draft_length > 1 and requests > 0:
        later = (
            draft_tokens_of(e)[_padded(e, requests)]
            + draft_experts_of(e)[requests]
            + draft_head_of(e)[requests]
        )
        later += _attention_ns(e, draft_attention_of(e), requests, whole, 1)
        total += later * (p.draft_length - 1)
        passes = p.draft_length
    gpu_ns = (total + passes * scalars_of(e)[PRICE_DRAFT_LAUNCH_NS]) * e.gpu_scale
    launches = 1 if e.draft_pass_once else passes
    return int(gpu_ns + launches * e.draft_pass_ns + 0.5)


@compiled(inline=True)
def price(e: Engine, slot: int) -> None:
    """Write the duration of every stage of the step in `slot`, with the contexts that are true now."""
    p = plans_of(e)[slot]
    context_sum = 0
    pairs = 0.0
    window_pairs = 0.0
    after = 0
    chunks = 0
    window = scalars_of(e)[PRICE_WINDOW_TOKENS]
    for index in range(p.entries):
        entry = entry_at(e, slot, index)
        q = requests_of(e)[entry.request]
        if entry.decodes:
            emitted = q.emitted if e.context_growth else q.output // 2
            context_sum += q.prompt + emitted - 1 + entry.tokens
        else:
            seen = entry.start + entry.tokens / 2
            pairs += entry.tokens * seen
            window_pairs += entry.tokens * min(seen, window)
            after += entry.start + entry.tokens
            chunks += 1
    tokens = p.tokens
    rows = p.decode_tokens + (p.samples - p.decodes)
    if not e.prefill:
        tokens = p.decode_tokens
        rows = p.decode_tokens
        pairs = 0.0
        window_pairs = 0.0
        after = 0
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

    mode = EAGER
    padded = tokens
    uniform = p.uniform and chunks == 0
    if not e.graph_padding:
        mode = FULL if uniform else PIECEWISE
    elif tokens <= e.graph_cap:
        if uniform and full_graph_of(e)[tokens] >= 0:
            mode = FULL
            padded = full_graph_of(e)[tokens]
        elif any_graph_of(e)[tokens] >= 0:
            mode = PIECEWISE
            padded = any_graph_of(e)[tokens]

    attention = pairs * scalars_of(e)[PRICE_PREFILL_PAIR_NS] + chunks * scalars_of(e)[PRICE_PREFILL_CHUNK_NS]
    attention += window_pairs * scalars_of(e)[PRICE_PREFILL_WINDOW_PAIR_NS]
    context = 0.0
    query_tokens = 1
    if p.decodes > 0:
        context = context_sum / p.decodes
        query_tokens = e.max_draft_length + 1 if p.uniform else (p.decode_tokens + p.decodes - 1) // p.decodes
        attention += _attention_ns(e, attention_of(e), p.decodes, context, query_tokens)
    target = target_tokens_of(e)[padded] + target_experts_of(e)[tokens] + attention
    target += target_head_of(e)[rows] + scalars_of(e)[PRICE_LAUNCH_FULL_NS + mode]
    p.verify_ns = int(target * e.gpu_scale + 0.5)
    p.accept_ns = int(sample_of(e)[rows] * e.gpu_scale + 0.5)
    whole = (after + context_sum) / p.entries if chunks > 0 else context
    p.draft_ns = _price_drafts(e, slot, tokens, context, query_tokens, pairs, chunks, whole)
    p.attention_ns = int(attention * e.gpu_scale + 0.5)
    p.communication_ns = int(target_comm_of(e)[padded] * e.gpu_scale + 0.5)
    p.padded_tokens = padded
    p.graph_mode = mode
