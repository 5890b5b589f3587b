"""The shape of a Llama-type decoder on one rank, from a model of the simulator."""

from __future__ import annotations

from dataclasses import dataclass, replace

from simulator.errors import InputError, Problem
from simulator.models.matrices import share
from simulator.models.model import Layer, Model


@dataclass(frozen=True)
class DecoderShape:
    """Sizes on one rank. `heads`, `kv_heads`, `intermediate` and `vocab` are this rank's share."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    max_context_tokens: int
    norm_eps: float = 1e-5
    rope_theta: float = 100_000.0

    @classmethod
    def of(cls, model: Model, tensor_parallel: int = 1) -> DecoderShape:
        """The shape of a dense model with identical layers and grouped-query attention. Raises InputError."""
        layer = model.layers[0]
        attention = layer.attention
        mlp_width = _mlp_width(layer, model.hidden_size)
        if (
            len({replace(block, count=1) for block in model.layers}) > 1
            or attention is None
            or mlp_width is None
        ):
            raise InputError(_refused(model.name))
        if attention.kind != "full" or attention.v_head_dim != attention.head_dim:
            raise InputError(_refused(model.name))
        return cls(
            name=model.name,
            layers=model.layer_count,
            hidden=model.hidden_size,
            heads=share(attention.heads, tensor_parallel),
            kv_heads=max(1, share(attention.kv_heads, tensor_parallel)),
            head_dim=attention.head_dim,
            intermediate=share(mlp_width, tensor_parallel),
            vocab=share(model.vocab_size, tensor_parallel),
            max_context_tokens=model.max_context_tokens,
        )

    @property
    def queries_per_kv_head(self) -> int:
        return self.heads // self.kv_heads

    @property
    def layer_parameters(self) -> int:
        """Parameters in the matrices of one layer."""
        attention = (2 * self.heads + 2 * self.kv_heads) * self.head_dim * self.hidden
        return attention + 3 * self.intermediate * self.hidden


def _mlp_width(layer: Layer, hidden: int) -> int | None:
    """The intermediate width of a gated MLP; None if the layer has another MLP."""
    linears = {linear.name: linear for linear in layer.linears}
    if set(linears) != {"gate_up", "down"} or layer.experts is not None:
        return None
    down = linears["down"].in_features
    return (
        down
        if linears["gate_up"].out_features == 2 * down and linears["down"].out_features == hidden
        else None
    )


def _refused(name: str) -> Problem:
    return Problem(
        field="model",
        value=name,
        message="is not a dense Llama-type decoder (identical layers, grouped-query attention, gated MLP)",
        allowed="a model like Llama, Qwen or SmolLM",
    )
