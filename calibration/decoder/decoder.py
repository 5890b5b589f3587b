"""The decoder: a static KV cache, and passes of q tokens per sequence through all or some layers.

No call waits for the device, and all shapes are fixed by (batch, queries, span), so that a pass can be
captured as a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from calibration.decoder.ops import add_norm, attention, causal_mask, norm, rope, rope_tables, silu_mul
from calibration.decoder.shape import DecoderShape
from calibration.decoder.weights import DecoderWeights


@dataclass(frozen=True)
class Cache:
    """Keys and values (layers, batch, kv_heads, max tokens, head_dim).

    Rows beyond a sequence's length are garbage that no query attends to, so that lowering the length drops
    tokens.
    """

    keys: Tensor
    values: Tensor

    @classmethod
    def empty(
        cls, shape: DecoderShape, batch: int, tokens: int, dtype: torch.dtype, device: str, layers: int = 0
    ) -> Cache:
        """Room for `tokens` tokens of `batch` sequences in `layers` layers (0: all)."""
        size = (layers or shape.layers, batch, shape.kv_heads, tokens, shape.head_dim)
        return cls(*(torch.zeros(size, dtype=dtype, device=device) for _ in range(2)))


@dataclass(frozen=True)
class PassInputs:
    """The inputs that all layers of a pass share, made once by `Decoder.prepare`."""

    hidden: Tensor  # (b, q, hidden) embeddings
    cosines: Tensor
    sines: Tensor
    mask: Tensor
    rows: Tensor  # (b, 1), (b, q): indices of the new keys and values
    positions: Tensor
    span: int


class Decoder:
    """A Llama-type decoder of one rank."""

    def __init__(self, shape: DecoderShape, weights: DecoderWeights) -> None:
        self.shape, self.weights = shape, weights
        self.dtype, self.device = weights.embedding.dtype, weights.embedding.device

    def first_layers(self, count: int) -> Decoder:
        """The decoder with only the first `count` layers, a drafter without training."""
        layers = self.weights.layers[:count]
        return Decoder(replace(self.shape, layers=count), replace(self.weights, layers=layers))

    def cache(self, batch: int, tokens: int, layers: int = 0) -> Cache:
        """An empty cache for this decoder, or its first `layers` layers."""
        return Cache.empty(self.shape, batch, tokens, self.dtype, str(self.device), layers)

    def prepare(self, tokens: Tensor, lengths: Tensor, span: int) -> PassInputs:
        """Embed tokens (b, q) that follow `lengths` (b,) cached tokens; attention covers `span` >= lengths +
        q.
        """
        batch, queries = tokens.shape
        shape = self.shape
        positions = lengths[:, None] + torch.arange(queries, device=self.device)
        cosines, sines = rope_tables(positions, shape.head_dim, shape.rope_theta, self.dtype)
        return PassInputs(
            hidden=functional.embedding(tokens, self.weights.embedding),
            cosines=cosines,
            sines=sines,
            mask=causal_mask(lengths, queries, span, shape.queries_per_kv_head, self.dtype),
            rows=torch.arange(batch, device=self.device)[:, None],
            positions=positions,
            span=span,
        )

    def layer(self, index: int, hidden: Tensor, step: PassInputs, cache: Cache) -> Tensor:
        """One decoder layer on (b, q, hidden); writes the tokens' keys and values to the cache."""
        w, shape, eps = self.weights.layers[index], self.shape, self.shape.norm_eps
        batch, queries, _ = hidden.shape
        qkv = functional.linear(norm(hidden, w.norm, eps), w.qkv)
        heads = qkv.view(batch, queries, shape.heads + 2 * shape.kv_heads, shape.head_dim)
        rotated = rope(heads[:, :, : shape.heads + shape.kv_heads], step.cosines, step.sines)
        keys, values = cache.keys[index], cache.values[index]
        keys[step.rows, :, step.positions] = rotated[:, :, shape.heads :]
        values[step.rows, :, step.positions] = heads[:, :, shape.heads + shape.kv_heads :]
        span = step.span
        mixed = attention(rotated[:, :, : shape.heads], keys[:, :, :span], values[:, :, :span], step.mask)
        hidden, normed = add_norm(hidden, functional.linear(mixed, w.o), w.mlp_norm, eps)
        return hidden + functional.linear(silu_mul(functional.linear(normed, w.gate_up)), w.down)

    def head(self, hidden: Tensor) -> Tensor:
        """Logits (…, vocab) of hidden states after the last layer: final norm and output matrix."""
        return functional.linear(norm(hidden, self.weights.norm, self.shape.norm_eps), self.weights.head)

    def forward(
        self, tokens: Tensor, lengths: Tensor, cache: Cache, span: int, layers: Iterable[int] | None = None
    ) -> Tensor:
        """Hidden states (b, q, hidden) after all layers, or after `layers`, before the head."""
        step = self.prepare(tokens, lengths, span)
        hidden = step.hidden
        for index in range(self.shape.layers) if layers is None else layers:
            hidden = self.layer(index, hidden, step, cache)
        return hidden
