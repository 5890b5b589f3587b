"""Drafters that are made of the target: heads of its width, some of its layers, or all of it on a part of its
KV.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from simulator.errors import InputError, Problem
from simulator.models.drafter import DrafterModel
from simulator.models.model import Attention, Layer, LinearLayer, Model

KINDS = ("medusa", "layer_skip", "sparse_kv")


class OwnDrafter(NamedTuple):
    """What a scenario says of a drafter that is made of the target."""

    heads: int
    """Medusa: one per position."""
    layers: int | None
    """Layer-skipping: layers of the target that run; None: half of them."""
    window_tokens: int
    """Sparse KV: tokens of the context that a pass reads."""


def own_drafter(target: Model, kind: str, options: OwnDrafter) -> DrafterModel:
    """Return the drafter of one of `KINDS`. Raises InputError where the target cannot be cut like this."""
    if kind == "medusa":
        return _medusa(target, max(options.heads, 1))
    return (
        _skipping(target, options.layers) if kind == "layer_skip" else _sparse(target, options.window_tokens)
    )


def _medusa(target: Model, heads: int) -> DrafterModel:
    """Medusa-1: per head a residual block of the target's width and an output matrix (arXiv 2401.10774,
    FasterDecoding/Medusa:medusa/model/medusa_model.py). All heads read one row, so they are one wide matrix.
    """
    hidden, vocab = target.hidden_size, target.vocab_size
    blocks = Layer(1, linears=(LinearLayer("medusa_blocks", heads * hidden, hidden, bias=True),))
    model = replace(
        target,
        name=f"{heads} Medusa heads of {target.name}",
        layers=(blocks,),
        head=LinearLayer("medusa_heads", heads * vocab, hidden),
        embedding_parameters=0,
        tied_embeddings=False,
        weights="bf16",
        other_parameters=0,
        mtp=None,
    )
    return DrafterModel(model.name, "medusa", model, None, shares_embedding=True, shares_head=False)


def _skipping(target: Model, layers: int | None) -> DrafterModel:
    """The target with some of its layers, its own head and its own KV (arXiv 2309.08168, 2404.16710)."""
    layers_kept = max(target.layer_count // 2, 1) if layers is None else layers
    if not 1 <= layers_kept < target.layer_count:
        message, allowed = "is no part of the target's layers", f"1 to {target.layer_count - 1}"
        raise InputError(Problem(field="draft_layers", value=layers_kept, message=message, allowed=allowed))
    left, parts = layers_kept, []
    for index, layer in enumerate(target.layers):
        rest = sum(other.count for other in target.layers[index:])
        count = round(left * layer.count / rest)
        parts += [replace(layer, count=count)] if count else []
        left -= count
    name = f"{layers_kept} layers of {target.name}"
    return _of_target("layer_skip", replace(target, name=name, layers=tuple(parts), mtp=None))


def _sparse(target: Model, window_tokens: int) -> DrafterModel:
    """The whole target on the most useful tokens of its KV (StreamingLLM, SnapKV: arXiv 2408.11049)."""

    def cut(layer: Layer) -> Layer:
        attention = layer.attention
        if attention is None or not attention.keeps_all_tokens:
            return layer
        chosen = window_tokens if attention.topk_tokens is None else min(window_tokens, attention.topk_tokens)
        return replace(layer, attention=_reading(attention, chosen))

    name, layers = f"{target.name} on {window_tokens:,} tokens", tuple(cut(layer) for layer in target.layers)
    return _of_target("sparse_kv", replace(target, name=name, layers=layers, mtp=None))


def _reading(attention: Attention, tokens: int) -> Attention:
    kind = attention.kind if attention.kind == "compressed" else "sparse"
    return replace(attention, kind=kind, topk_tokens=tokens)


def _of_target(kind: str, model: Model) -> DrafterModel:
    """A drafter without weights or KV of its own."""
    shared = {"shares_embedding": True, "shares_head": True, "owns_weights": False}
    return DrafterModel(model.name, kind, model, None, **shared)
