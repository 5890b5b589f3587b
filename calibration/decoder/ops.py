"""The operators of a decoder layer besides its matrices, as a layer calls them and benches time them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def norm(hidden: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm over the last dimension."""
    return functional.rms_norm(hidden, weight.shape, weight, eps)


def add_norm(hidden: Tensor, delta: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The residual sum and its norm."""
    total = hidden + delta
    return total, norm(total, weight, eps)


def rope_tables(positions: Tensor, head_dim: int, theta: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines (b, q, 1, head_dim / 2) of the rotary embedding at positions (b, q)."""
    steps = torch.arange(0, head_dim, 2, device=positions.device, dtype=torch.float32) / head_dim
    angles = positions.to(torch.float32)[..., None, None] * theta**-steps
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rope(heads: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotate (b, q, heads, d); the halves of a head are its real and imaginary parts, as in Llama."""
    real, imaginary = heads.chunk(2, dim=-1)
    return torch.cat((real * cosines - imaginary * sines, imaginary * cosines + real * sines), dim=-1)


def silu_mul(gate_up: Tensor) -> Tensor:
    """The gated activation (…, 2 i) → (…, i)."""
    gate, up = gate_up.chunk(2, dim=-1)
    return functional.silu(gate) * up


def causal_mask(lengths: Tensor, queries: int, span: int, groups: int, dtype: torch.dtype) -> Tensor:
    """Additive mask (b, 1, groups · q, span): query i attends to the cache up to and including its own
    position.

    `lengths` (b,) tokens in the cache before this pass, `groups` query heads per KV head.
    """
    last = lengths[:, None] + torch.arange(queries, device=lengths.device)
    hidden = torch.arange(span, device=lengths.device) > last[:, :, None]
    mask = torch.zeros(hidden.shape, dtype=dtype, device=lengths.device).masked_fill_(hidden, -torch.inf)
    return mask[:, None, None].expand(-1, 1, groups, -1, -1).reshape(len(lengths), 1, groups * queries, span)


def attention(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Attention of (b, q, heads, d) to keys and values (b, kv_heads, span, d) → (b, q, heads · d).

    The query heads of one KV head are stacked as rows, so that the cache is read once.
    """
    batch, count, heads, dim = queries.shape
    kv_heads = keys.shape[1]
    packed = queries.reshape(batch, count, kv_heads, heads // kv_heads, dim).permute(0, 2, 3, 1, 4)
    packed = packed.reshape(batch, kv_heads, -1, dim)
    out = functional.scaled_dot_product_attention(packed, keys, values, attn_mask=mask)
    out = out.reshape(batch, kv_heads, heads // kv_heads, count, dim).permute(0, 3, 1, 2, 4)
    return out.reshape(batch, count, heads * dim)
