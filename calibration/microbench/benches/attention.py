"""Attention: a few query tokens of each sequence against a long cold cache; prompts against themselves."""

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
    """Decode (1 query) and verify (more) by batch and context, prefill without a cache; full attention.

    On a GPU both as the decoder here calls it (`decode`, with a mask of any shape, at the contexts of its
    layers) and as serving engines do (`flash`: without a mask, which torch's flash kernels refuse).
    """
    for layers in subject.network.attentions:
        if layers.attention.kind != "full" or layers.attention.head_dim != layers.attention.v_head_dim:
            continue
        for batch, context in product(grid.batches, grid.contexts):
            if batch * context > grid.most_cached_tokens:
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
    """`queries` tokens of each of `batch` sequences; the last sees `context` keys. The cache is read once."""
    heads, kv_heads, dim = layers.heads, layers.kv_heads, layers.attention.head_dim
    cached = 2.0 * batch * kv_heads * context * dim * _BF16
    moved = cached + 2.0 * batch * queries * heads * dim * _BF16
    shape = {"batch": batch, "queries": queries, "context": context} | _heads(layers)

    def prepare(lab: Lab) -> Work:
        copies = lab.cold("kv", 2, batch, kv_heads, context + ROOM_TOKENS, dim)
        pairs = [(copy[0, :, :, :context], copy[1, :, :, :context]) for copy in copies]
        if flash:
            rows = lab.random(batch, heads, queries, dim)
            return Work(lambda i: flash_attention(rows, *pairs[i % len(pairs)]), len(pairs))
        asked = lab.random(batch, queries, heads, dim)
        before = torch.full((batch,), context - queries, device=asked.device)
        mask = causal_mask(before, queries, context, heads // kv_heads, DTYPES["bf16"])
        return Work(lambda i: attention(asked, *pairs[i % len(pairs)], mask), len(pairs))

    flops = 4.0 * batch * queries * heads * context * dim
    op = "flash" if flash else "decode"
    return BenchPoint("attention", op, shape, "bf16", moved, flops, cached, prepare)


def flash_attention(rows: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The last query tokens (b, heads, q, d) to all keys before and with each, without a mask in memory."""
    queries, context = rows.shape[2], keys.shape[2]
    # One query sees every key. For more, torch's type of mask aligns the causal corner to the last key.
    mask: Any = None if queries == 1 else causal_lower_right(queries, context)
    return functional.scaled_dot_product_attention(rows, keys, values, attn_mask=mask, enable_gqa=True)


def prefill_point(layers: AttentionLayers, batch: int, tokens: int) -> BenchPoint:
    """Prompts of `tokens` tokens, each token to those up to itself."""
    heads, kv_heads, dim = layers.heads, layers.kv_heads, layers.attention.head_dim
    moved = 2.0 * batch * tokens * (heads + kv_heads) * dim * _BF16
    shape = {"batch": batch, "tokens": tokens} | _heads(layers)

    def prepare(lab: Lab) -> Work:
        asked = lab.random(batch, heads, tokens, dim)
        keys, values = lab.random(2, batch, kv_heads, tokens, dim)
        return Work(
            lambda _: functional.scaled_dot_product_attention(
                asked, keys, values, is_causal=True, enable_gqa=True
            )
        )

    flops = 2.0 * batch * heads * tokens * (tokens + 1) * dim
    return BenchPoint("attention", "prefill", shape, "bf16", moved, flops, moved, prepare)


def _heads(layers: AttentionLayers) -> dict[str, int]:
    return {"heads": layers.heads, "kv_heads": layers.kv_heads, "head_dim": layers.attention.head_dim}
