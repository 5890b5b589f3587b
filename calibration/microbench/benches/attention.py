"""Attention: a few query tokens of each sequence against a long cold cache; prompts against themselves."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import torch
from torch.nn import functional

from calibration.decoder.ops import attention, causal_mask
from calibration.microbench.lab import DTYPES, ROOM_TOKENS, Lab
from calibration.microbench.point import Point
from calibration.microbench.subject import Grid, Subject
from calibration.microbench.timing import Work
from simulator.costs.network import AttentionLayers

_BF16 = 2


def attention_points(subject: Subject, grid: Grid) -> Iterator[Point]:
    """Decode (1 query) and verify (more) by batch and context, prefill without a cache; full attention."""
    for layers in subject.network.attentions:
        if layers.attention.kind != "full" or layers.attention.head_dim != layers.attention.v_head_dim:
            continue
        for batch, context in product(grid.batches, grid.contexts):
            if batch * context <= grid.most_cached_tokens:
                yield from (decode_point(layers, batch, queries, context) for queries in grid.queries)
        yield from (prefill_point(layers, batch, tokens) for batch, tokens in grid.prefills)


def decode_point(layers: AttentionLayers, batch: int, queries: int, context: int) -> Point:
    """`queries` tokens of each of `batch` sequences; the last sees `context` keys. The cache is read once."""
    heads, kv_heads, dim = layers.heads, layers.kv_heads, layers.attention.head_dim
    cached = 2.0 * batch * kv_heads * context * dim * _BF16
    moved = cached + 2.0 * batch * queries * heads * dim * _BF16
    shape = {"batch": batch, "queries": queries, "context": context} | _heads(layers)

    def prepare(lab: Lab) -> Work:
        copies = lab.cold("kv", 2, batch, kv_heads, context + ROOM_TOKENS, dim)
        asked = lab.random(batch, queries, heads, dim)
        before = torch.full((batch,), context - queries, device=asked.device)
        mask = causal_mask(before, queries, context, heads // kv_heads, DTYPES["bf16"])
        pairs = [(copy[0, :, :, :context], copy[1, :, :, :context]) for copy in copies]
        return Work(lambda i: attention(asked, *pairs[i % len(pairs)], mask), len(pairs))

    flops = 4.0 * batch * queries * heads * context * dim
    return Point("attention", "decode", shape, "bf16", moved, flops, cached, prepare)


def prefill_point(layers: AttentionLayers, batch: int, tokens: int) -> Point:
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
    return Point("attention", "prefill", shape, "bf16", moved, flops, moved, prepare)


def _heads(layers: AttentionLayers) -> dict[str, int]:
    return {"heads": layers.heads, "kv_heads": layers.kv_heads, "head_dim": layers.attention.head_dim}
