"""Attention: a few query tokens per sequence on a long cold cache, and prompts without a cache."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.bias import causal_lower_right

from calibration.decoder.ops import attention, causal_mask
from calibration.microbench.lab import DTYPES, ROOM_TOKENS, Lab
from calibration.microbench.point import BenchPoint
from calibration.microbench.subject import BenchSubject, ShapeGrid
from calibration.microbench.timing import Work
from simulator.costs.network import AttentionLayers

_BF16 = 2


def attention_points(subject: BenchSubject, grid: ShapeGrid, on_gpu: bool) -> Iterator[BenchPoint]:
    """Decode (1 query) and verify (more queries) by batch and context, and prefill without a cache; full
    attention only.

    On a GPU decode is timed in two ways: as this package's decoder calls it (`decode`: with any mask, at the
    contexts of its layers) and as serving engines call it (`flash`: without a mask, which torch's flash
    kernels do not accept).
    """
    for layers in subject.network.attentions:
        if layers.attention.kind != "full" or layers.attention.head_dim != layers.attention.v_head_dim:
            continue
        for batch, context in product(grid.batches, grid.contexts):
            if batch * context > grid.max_cached_tokens:
                continue
            for queries in grid.queries:
                if not on_gpu or context <= 2 * max(grid.layer_contexts):
                    yield decode_point(layers, batch, queries, context)
                if on_gpu:
                    yield decode_point(layers, batch, queries, context, flash=True)
        yield from (prefill_point(layers, batch, tokens) for batch, tokens in grid.prefills)


def decode_point(
    layers: AttentionLayers, batch: int, queries: int, context: int, flash: bool = False
) -> BenchPoint:
    """`queries` tokens of each of `batch` sequences; the last attends to `context` keys. The cache is read
    once.
    """
    heads, kv_heads, dim = layers.heads, layers.kv_heads, layers.attention.head_dim
    cached_bytes = 2.0 * batch * kv_heads * context * dim * _BF16
    moved_bytes = cached_bytes + 2.0 * batch * queries * heads * dim * _BF16
    shape = {"batch": batch, "queries": queries, "context": context} | _heads(layers)

    def prepare(lab: Lab) -> Work:
        copies = lab.cold("kv", 2, batch, kv_heads, context + ROOM_TOKENS, dim)
        pairs = [(copy[0, :, :, :context], copy[1, :, :, :context]) for copy in copies]
        if flash:
            rows = lab.random(batch, heads, queries, dim)
            return Work(lambda i: flash_attention(rows, *pairs[i % len(pairs)]), len(pairs))
        query_rows = lab.random(batch, queries, heads, dim)
        before = torch.full((batch,), context - queries, device=query_rows.device)
        mask = causal_mask(before, queries, context, heads // kv_heads, DTYPES["bf16"])
        return Work(lambda i: attention(query_rows, *pairs[i % len(pairs)], mask), len(pairs))

    flops = 4.0 * batch * queries * heads * context * dim
    op = "flash" if flash else "decode"
    return BenchPoint("attention", op, shape, "bf16", moved_bytes, flops, cached_bytes, prepare)


def flash_attention(rows: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The last query tokens (b, heads, q, d) attend to all keys up to their own, without a mask in memory."""
    queries, context = rows.shape[2], keys.shape[2]
    # One query attends to every key. For more, this bias aligns the causal corner with the last key.
    mask: Any = None if queries == 1 else causal_lower_right(queries, context)
    return functional.scaled_dot_product_attention(rows, keys, values, attn_mask=mask, enable_gqa=True)


def prefill_point(layers: AttentionLayers, batch: int, tokens: int) -> BenchPoint:
    """Prompts of `tokens` tokens with causal attention."""
    heads, kv_heads, dim = layers.heads, layers.kv_heads, layers.attention.head_dim
    moved_bytes = 2.0 * batch * tokens * (heads + kv_heads) * dim * _BF16
    shape = {"batch": batch, "tokens": tokens} | _heads(layers)

    def prepare(lab: Lab) -> Work:
        query_rows = lab.random(batch, heads, tokens, dim)
        keys, values = lab.random(2, batch, kv_heads, tokens, dim)
        return Work(
            lambda _: functional.scaled_dot_product_attention(
                query_rows, keys, values, is_causal=True, enable_gqa=True
            )
        )

    flops = 2.0 * batch * heads * tokens * (tokens + 1) * dim
    return BenchPoint("attention", "prefill", shape, "bf16", moved_bytes, flops, moved_bytes, prepare)


def _heads(layers: AttentionLayers) -> dict[str, int]:
    return {"heads": layers.heads, "kv_heads": layers.kv_heads, "head_dim": layers.attention.head_dim}
