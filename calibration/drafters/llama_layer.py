"""A decoder layer of the Llama type, from which EAGLE, EAGLE-3 and MTP heads are built.

It is the same for every family of targets, because published heads are Llama layers, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention, silu

from calibration.drafters.language_model import LanguageModel

KvStore = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Stores the keys and values of new rows (b, kv heads, n, d) and returns all that the rows may attend to."""


@dataclass(frozen=True)
class LlamaLayerShape:
    """Sizes of a layer."""

    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate: int
    norm_epsilon: float = 1e-5
    rope_theta: float = 10_000.0

    @staticmethod
    def of(network: LanguageModel) -> LlamaLayerShape:
        """Return the sizes of a target's layers; GPT-2's names are known, too."""
        config = network.config
        hidden = network.hidden_size
        heads = int(_first(config, hidden // 64 or 1, "num_attention_heads", "n_head"))
        rope = getattr(config, "rope_parameters", None) or {}
        return LlamaLayerShape(
            hidden=hidden,
            heads=heads,
            kv_heads=int(_first(config, heads, "num_key_value_heads")),
            head_size=int(_first(config, hidden // heads, "head_dim")),
            intermediate=int(_first(config, 4 * hidden, "intermediate_size", "n_inner")),
            norm_epsilon=float(_first(config, 1e-5, "rms_norm_eps", "layer_norm_epsilon")),
            rope_theta=float(rope.get("rope_theta") or _first(config, 10_000.0, "rope_theta")),
        )


class RmsNorm(nn.RMSNorm):
    """A norm that runs in the precision of its weights, whatever the precision of the matrices."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x (…, h) at unit root mean square, times the weights."""
        return super().forward(x.to(self.weight.dtype)).to(x.dtype)


class LlamaLayer(nn.Module):
    """Pre-norm attention and gated MLP on a residual stream.

    `wide`: attention reads the token's embedding and the state, each through its own norm (EAGLE-3);
    otherwise only the state.
    """

    def __init__(self, shape: LlamaLayerShape, wide: bool = False) -> None:
        super().__init__()
        self.shape = shape
        hidden, size = shape.hidden, shape.head_size
        entry = 2 * hidden if wide else hidden
        self.input_layernorm = RmsNorm(hidden, eps=shape.norm_epsilon)
        self.hidden_norm = RmsNorm(hidden, eps=shape.norm_epsilon) if wide else None
        self.q_proj = nn.Linear(entry, shape.heads * size, bias=False)
        self.k_proj = nn.Linear(entry, shape.kv_heads * size, bias=False)
        self.v_proj = nn.Linear(entry, shape.kv_heads * size, bias=False)
        self.o_proj = nn.Linear(shape.heads * size, hidden, bias=False)
        self.post_attention_layernorm = RmsNorm(hidden, eps=shape.norm_epsilon)
        self.gate_proj = nn.Linear(hidden, shape.intermediate, bias=False)
        self.up_proj = nn.Linear(hidden, shape.intermediate, bias=False)
        self.down_proj = nn.Linear(shape.intermediate, hidden, bias=False)

    def forward(
        self,
        state: Tensor,
        embedding: Tensor | None,
        positions: Tensor,
        mask: Tensor | None,
        store: KvStore | None = None,
    ) -> Tensor:
        """Return (b, n, h) of states (b, n, h) at positions (n,).

        embedding: (b, n, h), used if the layer is wide. mask: bool (n, keys), True = attends; None: causal.
        store: stores keys and values, and returns all that may be attended to.
        """
        if self.hidden_norm is None:
            entry = self.input_layernorm(state)
        else:
            entry = torch.cat([self.input_layernorm(embedding), self.hidden_norm(state)], -1)
        state = state + self.o_proj(self._attend(entry, positions, mask, store))
        inner = self.post_attention_layernorm(state)
        out: Tensor = state + self.down_proj(silu(self.gate_proj(inner)) * self.up_proj(inner))
        return out

    def _attend(self, entry: Tensor, positions: Tensor, mask: Tensor | None, store: KvStore | None) -> Tensor:
        batch, rows, _ = entry.shape
        shape = self.shape
        cos, sin = _rotary(positions, shape, entry)
        query = self._split(self.q_proj(entry), shape.heads)
        key = self._split(self.k_proj(entry), shape.kv_heads)
        query, key = _rotated(query, cos, sin), _rotated(key, cos, sin)
        value = self._split(self.v_proj(entry), shape.kv_heads)
        if store is not None:
            key, value = store(key, value)
        out = scaled_dot_product_attention(
            query,
            key.to(query.dtype),
            value.to(query.dtype),
            attn_mask=mask,
            is_causal=mask is None,
            enable_gqa=shape.heads != shape.kv_heads,
        )
        return out.transpose(1, 2).reshape(batch, rows, -1)

    def _split(self, flat: Tensor, heads: int) -> Tensor:
        return flat.reshape(*flat.shape[:-1], heads, self.shape.head_size).transpose(1, 2)


def _rotary(positions: Tensor, shape: LlamaLayerShape, like: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines (n, head size) of the rotary embedding at positions (n,)."""
    exponents = (
        torch.arange(0, shape.head_size, 2, dtype=torch.float32, device=positions.device) / shape.head_size
    )
    angles = positions[:, None].float() / shape.rope_theta**exponents
    both_halves = torch.cat([angles, angles], -1)
    return both_halves.cos().to(like.dtype), both_halves.sin().to(like.dtype)


def _rotated(flat: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    real, imaginary = flat.chunk(2, -1)
    return (flat * cos + torch.cat([-imaginary, real], -1) * sin).to(flat.dtype)


def _first(config: Any, otherwise: Any, *names: str) -> Any:
    """The first of these fields of a config that is set."""
    values = (getattr(config, name, None) for name in names)
    return next((value for value in values if value is not None), otherwise)
