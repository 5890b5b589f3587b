"""What one pass of a network does on one rank: matrices, experts,
attention layers, all-reduces, alike ones counted.

A `Model` lists layers; a price needs each distinct shape once,
with how often it occurs. Nothing here is a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from simulator.models.matrices import Experts, LinearLayer, share
from simulator.models.model import Attention, Layer, Model


@dataclass(frozen=True)
class Matrix:
    """`count` matrices (n outputs, k inputs) of a weight format on one rank."""

    name: str
    n: int
    k: int
    weights: str
    count: int


@dataclass(frozen=True)
class RoutedExperts:
    """`count` layers of routed experts. `intermediate` on one rank; `experts` of the whole layer."""

    hidden: int
    intermediate: int
    per_token: int
    experts: int
    expert_parallel: int
    matrices: int
    weights: str
    count: int


@dataclass(frozen=True)
class AttentionLayers:
    """`count` alike attention layers, with the heads of one rank."""

    attention: Attention
    heads: int
    kv_heads: int
    count: int

    def state_bytes(self) -> float:
        """Constant state of one sequence and layer on this rank."""
        a = self.attention
        return a.state_bytes * self.heads / a.heads if a.state_bytes else 0.0


@dataclass(frozen=True)
class Network:
    """One network on one rank of a tensor-parallel group.

    `groups` of `tensor_parallel` ranks hold requests of their own, and all but the experts, which all of the
    `groups` × `tensor_parallel` ranks share.
    `traffic_bytes_per_token`: what norms, rope and activations move for one token, all layers.
    `reduced`: all-reduces of one hidden state per token in a pass. `kernels` of a pass, and `calls` of the
    host for one that no graph holds.
    """

    name: str
    matrices: tuple[Matrix, ...]
    experts: tuple[RoutedExperts, ...]
    attentions: tuple[AttentionLayers, ...]
    head: Matrix
    head_features: int
    hidden: int
    layers: int
    kernels: int
    calls: int
    reduced: int
    traffic_bytes_per_token: float
    tensor_parallel: int
    groups: int

    @property
    def ranks(self) -> int:
        """GPUs that share the experts."""
        return self.tensor_parallel * self.groups


def network(
    model: Model,
    tensor_parallel: int = 1,
    expert_parallel: int = 1,
    fc: LinearLayer | None = None,
    groups: int = 1,
) -> Network:
    """The network of one of `tensor_parallel` ranks; `fc`: a drafter's projection, run once a pass."""
    tp = tensor_parallel // groups
    layers = [_without_idle_routing(layer) for layer in model.layers]
    matrices = _matrices(layers, tp, () if fc is None else (fc,))
    head = model.head.per_rank(tp)
    blocks = sum(layer.count * (_blocks(layer) - _exchanges(layer, groups)) for layer in layers)
    reduced = blocks + 1 if tp > 1 else 0
    return Network(
        name=model.name,
        matrices=matrices,
        experts=_experts(layers, tensor_parallel, expert_parallel),
        attentions=_attentions(layers, tp),
        head=Matrix("lm_head", head.out_features, head.in_features, head.weights, 1),
        head_features=model.head.out_features,
        hidden=model.hidden_size,
        layers=model.layer_count,
        kernels=sum(layer.count * _kernels(layer) for layer in layers),
        calls=sum(layer.count * _calls(layer) for layer in layers) + reduced,
        reduced=reduced,
        traffic_bytes_per_token=sum(layer.count * _traffic(layer, model.hidden_size, tp) for layer in layers),
        tensor_parallel=tp,
        groups=groups,
    )


def _without_idle_routing(layer: Layer) -> Layer:
    """The layer with experts that every token takes as what they are: a dense MLP, as wide as all of them."""
    experts = layer.experts
    if experts is None or experts.per_token < experts.count:
        return layer
    width = experts.count * experts.intermediate
    mlp = (
        LinearLayer("gate_up", (experts.matrices - 1) * width, experts.hidden, experts.weights),
        LinearLayer("down", experts.hidden, width, experts.weights, "row"),
    )
    return replace(layer, linears=(*layer.linears, *mlp), experts=None)


def _matrices(layers: Iterable[Layer], tp: int, extra: Iterable[LinearLayer]) -> tuple[Matrix, ...]:
    counts: Counter[tuple[str, int, int, str]] = Counter()
    for count, linear in [
        *((1, linear) for linear in extra),
        *((layer.count, linear) for layer in layers for linear in layer.all_linears),
    ]:
        own = linear.per_rank(tp)
        counts[own.name, own.out_features, own.in_features, own.weights] += count * linear.count
    return tuple(Matrix(*shape, count) for shape, count in counts.items())


def _experts(layers: Iterable[Layer], tp: int, ep: int) -> tuple[RoutedExperts, ...]:
    counts: Counter[Experts] = Counter()
    for layer in layers:
        if layer.experts is not None:
            counts[layer.experts] += layer.count
    return tuple(
        RoutedExperts(
            hidden=shape.hidden,
            intermediate=shape.per_rank(tp, ep).intermediate,
            per_token=shape.per_token,
            experts=shape.count,
            expert_parallel=ep,
            matrices=shape.matrices,
            weights=shape.weights,
            count=count,
        )
        for shape, count in counts.items()
    )


def _attentions(layers: Iterable[Layer], tp: int) -> tuple[AttentionLayers, ...]:
    counts: Counter[Attention] = Counter()
    for layer in layers:
        if layer.attention is not None:
            counts[layer.attention] += layer.count
    return tuple(
        AttentionLayers(shape, share(shape.heads, tp), max(1, share(shape.kv_heads, tp)), count)
        for shape, count in counts.items()
    )


def _blocks(layer: Layer) -> int:
    """Sub-blocks that end in an all-reduce under tensor parallelism: the mixer, and the MLP or experts."""
    return int(layer.attention is not None) + int(bool(layer.linears) or layer.experts is not None)


def _exchanges(layer: Layer, groups: int) -> int:
    """Sub-blocks whose all-reduce is an exchange of tokens between groups: the experts."""
    return int(layer.experts is not None and groups > 1)


def _kernels(layer: Layer) -> int:
    """Kernels of one layer launched one by one: matrices, attention with its KV write, norms, activation."""
    mixer = 2 if layer.attention is not None else 0
    return sum(linear.count for linear in layer.all_linears) + mixer + (3 if layer.experts else 0) + 4


def _calls(layer: Layer) -> int:
    """What the host calls for one layer without a graph: its kernels, and what frameworks do around them.

    Inputs of fp8 matrices are quantised, with scales of their own where those are of blocks; latent attention
    splits, norms, multiplies and copies; experts need the choice and the sorting of tokens, and a sum.
    Approximate.
    """
    latent = layer.attention is not None and layer.attention.kv_lora_rank
    quantising = {"fp8": 1, "fp8_block": 2}
    around = sum(linear.count * quantising.get(linear.weights, 0) for linear in layer.all_linears)
    if layer.experts:
        around += 6 + 2 * quantising.get(layer.experts.weights, 0)
    return _kernels(layer) + around + (10 if latent else 0)


def _traffic(layer: Layer, hidden: int, tp: int) -> float:
    """Bytes per token of one layer: 8 per hidden value and add-norm,
    rope and KV write, the gated activation.
    """
    mixer = _outputs(layer.attention.linears if layer.attention else (), tp)
    mlp = _outputs(layer.linears, tp)
    return 8.0 * hidden * _blocks(layer) + 4.0 * mixer + 3.0 * mlp


def _outputs(linears: Iterable[LinearLayer], tp: int) -> int:
    """Outputs of the column-cut matrices on one rank."""
    return sum(linear.per_rank(tp).out_features for linear in linears if linear.shard == "column")
