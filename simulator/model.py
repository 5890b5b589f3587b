"""What a transformer is made of, as far as its size and its cost are concerned: matrices, attention, experts, layers.

Everything is derived from these frozen records by property; nothing is stored twice. Bytes are bytes per rank of a
tensor-parallel group wherever a `tensor_parallel` argument appears. `model_config.py` makes a `Model` from a Hugging
Face `config.json`; `catalogue.py` finds one by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

WEIGHT_FORMATS = ("bf16", "fp8", "fp8_block", "int4", "mxfp4")
KV_CACHE_FORMATS = ("bf16", "fp8")
KV_CACHE_BYTES = {"bf16": 2, "fp8": 1}

_WEIGHT_BYTES = {"bf16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "int4": 0.5, "mxfp4": 0.5}
# One scale per this many weights, and its bytes: fp8_block one fp32 per 128 x 128 tile, int4 one bf16 per group of 128
# (GPTQ and AWQ defaults), mxfp4 one shared exponent byte per 32 (OCP MX specification 1.0). fp8 per tensor: nothing to count.
_SCALES = {"bf16": (1, 0), "fp8": (1, 0), "fp8_block": (128 * 128, 4), "int4": (128, 2), "mxfp4": (32, 1)}


def weight_bytes_each(weights: str, group: int = 0) -> float:
    """Bytes of one weight in this format, its share of the scales included; `group` overrides weights per scale."""
    usual_group, scale_bytes = _SCALES[weights]
    return _WEIGHT_BYTES[weights] + scale_bytes / (group or usual_group)


def _share(size: int, ranks: int) -> int:
    """The largest part one of `ranks` ranks holds of `size` equal pieces."""
    return -(-size // ranks)


@dataclass(frozen=True)
class Linear:
    """One weight matrix (out_features x in_features), or `count` alike within a layer, as the engine multiplies it.

    Projections that engines fuse are one `Linear` (qkv, gate_up). `kv_features` of the outputs belong to K and V of
    `kv_heads` heads: they are cut over at most that many ranks and repeated beyond. `bias` outputs carry a bias.
    """

    name: str
    out_features: int
    in_features: int
    weights: str = "bf16"
    shard: str = "column"  # column: outputs are cut over the ranks | row: inputs | replicated
    count: int = 1
    kv_features: int = 0
    kv_heads: int = 0
    bias: bool = False
    group: int = 0  # weights per scale; 0: the format's usual

    @property
    def parameters(self) -> int:
        return self.count * self.out_features * (self.in_features + int(self.bias))

    @property
    def weight_bytes(self) -> float:
        """Bytes, scales included; biases stay bf16."""
        matrix = self.out_features * self.in_features * weight_bytes_each(self.weights, self.group)
        return self.count * (matrix + 2 * self.out_features * int(self.bias))

    def per_rank(self, tensor_parallel: int) -> Linear:
        """The piece one rank holds."""
        if tensor_parallel == 1 or self.shard == "replicated":
            return self
        if self.shard == "row":
            return replace(self, in_features=_share(self.in_features, tensor_parallel))
        if not self.kv_features:
            return replace(self, out_features=_share(self.out_features, tensor_parallel))
        kv = self.kv_features // self.kv_heads * _share(self.kv_heads, tensor_parallel)
        own = _share(self.out_features - self.kv_features, tensor_parallel)
        return replace(self, out_features=own + kv, kv_features=kv, kv_heads=_share(self.kv_heads, tensor_parallel))


@dataclass(frozen=True)
class Attention:
    """One layer's token mixer: what it multiplies, what it keeps per token and per sequence, what a query reads.

    kinds: `full` and `sliding` (GQA, MHA; sliding keeps `window_tokens`), `mla` (one latent of kv_lora_rank +
    rope_head_dim per token, the same on every rank), `sparse` (as mla or full, but a query reads `topk_tokens` entries
    chosen by an indexer that reads `index_bytes_per_token` of every entry), `compressed` (one entry per `compression`
    tokens, plus the last `window_tokens` as they are; the sparse fields apply to the compressed entries), `linear`
    (gated delta net, KDA) and `mamba2` (constant `state_bytes` per sequence, no entries).
    """

    kind: str
    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    linears: tuple[Linear, ...]
    window_tokens: int | None = None
    kv_lora_rank: int = 0
    rope_head_dim: int = 0
    topk_tokens: int | None = None  # entries, when compressed
    index_bytes_per_token: int = 0  # per entry, when compressed
    index_heads: int = 0
    index_head_dim: int = 0
    compression: int = 1
    shared_kv: bool = False  # K and V are one stored vector (compressed attention)
    state_bytes: int = 0  # per sequence, all heads
    state_heads: int = 0  # heads the state is cut by

    @property
    def keeps_all_tokens(self) -> bool:
        """Whether its cache grows with the context without end."""
        return self.kind in ("full", "mla", "sparse") or (self.kind == "compressed" and self.compression > 1)

    @property
    def replicated(self) -> bool:
        """Whether every rank keeps the whole cache."""
        return self.kv_lora_rank > 0 or self.kind == "compressed"

    def entry_bytes(self, kv_cache: str = "bf16", tensor_parallel: int = 1) -> int:
        """Bytes of one stored K/V entry on one rank, index keys not included."""
        each = KV_CACHE_BYTES[kv_cache]
        if self.kv_lora_rank:
            return each * (self.kv_lora_rank + self.rope_head_dim)
        per_head = self.head_dim if self.shared_kv else self.head_dim + self.v_head_dim
        heads = self.kv_heads if self.replicated else _share(self.kv_heads, tensor_parallel)
        return each * heads * per_head

    def kv_bytes_per_token(self, kv_cache: str = "bf16", tensor_parallel: int = 1) -> int:
        """Bytes by which one more token of context grows this layer's cache for good (0: window or state)."""
        if not self.keeps_all_tokens:
            return 0
        entry = self.entry_bytes(kv_cache, tensor_parallel) + self.index_bytes_per_token
        return _share(entry, self.compression)

    def stored_bytes(self, context_tokens: int, kv_cache: str = "bf16", tensor_parallel: int = 1) -> int:
        """Bytes this layer keeps for one sequence of `context_tokens`."""
        entry = self.entry_bytes(kv_cache, tensor_parallel)
        kept = 0
        if self.keeps_all_tokens:
            kept += _share(context_tokens, self.compression) * (entry + self.index_bytes_per_token)
        if self.window_tokens is not None:
            kept += min(context_tokens, self.window_tokens) * entry
        if self.state_bytes:
            kept += self.state_bytes * _share(self.state_heads, tensor_parallel) // self.state_heads
        return kept

    def read_bytes(self, context_tokens: int, kv_cache: str = "bf16", tensor_parallel: int = 1) -> int:
        """Bytes one pass reads of one sequence's cache, whatever the number of query tokens up to a few."""
        entry = self.entry_bytes(kv_cache, tensor_parallel)
        read = 0
        if self.keeps_all_tokens:
            entries = _share(context_tokens, self.compression)
            chosen = entries if self.topk_tokens is None else min(entries, self.topk_tokens)
            read += chosen * entry + entries * self.index_bytes_per_token
        if self.window_tokens is not None:
            read += min(context_tokens, self.window_tokens) * entry
        if self.state_bytes:
            read += self.state_bytes * _share(self.state_heads, tensor_parallel) // self.state_heads
        return read

    @property
    def pair_flops(self) -> int:
        """FLOPs of one query token against one stored entry, all heads (2 per multiply-add; QK^T and PV).

        MLA in its absorbed form, as decode runs it: scores over latent and rope, values over the latent.
        """
        if self.kv_lora_rank:
            return 2 * self.heads * (2 * self.kv_lora_rank + self.rope_head_dim)
        return 2 * self.heads * (self.head_dim + self.v_head_dim)


@dataclass(frozen=True)
class Experts:
    """The routed experts of one layer: `count` MLPs of hidden -> intermediate -> hidden, `per_token` of them used.

    `matrices` is 3 for gated activations and 2 otherwise. `hidden` is the latent width where tokens are projected
    down before routing (latent MoE).
    """

    count: int
    per_token: int
    hidden: int
    intermediate: int
    matrices: int = 3
    weights: str = "bf16"
    bias: bool = False
    group: int = 0

    @property
    def parameters_each(self) -> int:
        biases = ((self.matrices - 1) * self.intermediate + self.hidden) * int(self.bias)
        return self.matrices * self.hidden * self.intermediate + biases

    @property
    def parameters(self) -> int:
        return self.count * self.parameters_each

    @property
    def weight_bytes_each(self) -> float:
        """Bytes of one expert, scales included; biases stay bf16."""
        matrices = self.matrices * self.hidden * self.intermediate
        return matrices * weight_bytes_each(self.weights, self.group) + 2 * (self.parameters_each - matrices)

    @property
    def weight_bytes(self) -> float:
        return self.count * self.weight_bytes_each

    def per_rank(self, tensor_parallel: int, expert_parallel: int = 1) -> Experts:
        """What one rank holds: whole experts over `expert_parallel` groups, each cut over the ranks of its group."""
        cut = max(1, tensor_parallel // expert_parallel)
        return replace(self, count=_share(self.count, expert_parallel), intermediate=_share(self.intermediate, cut))


@dataclass(frozen=True)
class Layer:
    """`count` identical decoder layers; any of attention, dense linears and experts may be absent (hybrids, NAS)."""

    count: int
    attention: Attention | None = None
    linears: tuple[Linear, ...] = ()  # dense MLP, shared experts, router, latent projections
    experts: Experts | None = None
    other_parameters: int = 0  # norms, convolutions, per-head vectors of one layer; bf16, on every rank

    @property
    def all_linears(self) -> tuple[Linear, ...]:
        return (self.attention.linears if self.attention else ()) + self.linears

    @property
    def dense_parameters(self) -> int:
        """Parameters of one such layer without its routed experts."""
        return sum(linear.parameters for linear in self.all_linears) + self.other_parameters

    @property
    def parameters(self) -> int:
        return self.dense_parameters + (self.experts.parameters if self.experts else 0)

    @property
    def active_parameters(self) -> int:
        routed = self.experts.per_token * self.experts.parameters_each if self.experts else 0
        return self.dense_parameters + routed

    def weight_bytes(self, tensor_parallel: int = 1, expert_parallel: int = 1) -> float:
        """Bytes of one such layer on one rank."""
        total = sum(linear.per_rank(tensor_parallel).weight_bytes for linear in self.all_linears)
        if self.experts:
            total += self.experts.per_rank(tensor_parallel, expert_parallel).weight_bytes
        return total + 2.0 * self.other_parameters


@dataclass(frozen=True)
class Model:
    """A language model's text part. `head` has out_features = vocabulary; tied: it has no weights of its own."""

    name: str
    hidden_size: int
    vocab_size: int
    layers: tuple[Layer, ...]
    head: Linear
    embedding_parameters: int
    tied_embeddings: bool
    max_context_tokens: int
    weights: str  # the dominant format
    source: str
    other_parameters: int = 0  # final norm and the like

    @property
    def layer_count(self) -> int:
        return sum(layer.count for layer in self.layers)

    @property
    def _ends(self) -> int:
        return self.embedding_parameters + self.other_parameters + (0 if self.tied_embeddings else self.head.parameters)

    @property
    def parameters(self) -> int:
        """All parameters of the text part, multi-token-prediction modules not included; a tied head counts once."""
        return sum(layer.count * layer.parameters for layer in self.layers) + self._ends

    @property
    def active_parameters(self) -> int:
        """Parameters one token passes through: as `parameters`, but only the routed experts it uses."""
        return sum(layer.count * layer.active_parameters for layer in self.layers) + self._ends

    def weight_bytes(self, tensor_parallel: int = 1, expert_parallel: int = 1) -> float:
        """Bytes of all weights on one rank: embeddings and head are cut by vocabulary and stay bf16."""
        total = sum(layer.count * layer.weight_bytes(tensor_parallel, expert_parallel) for layer in self.layers)
        ends = self.embedding_parameters // self.vocab_size * _share(self.vocab_size, tensor_parallel) * 2.0
        if not self.tied_embeddings:
            ends += self.head.per_rank(tensor_parallel).weight_bytes
        return total + ends + 2.0 * self.other_parameters

    def _attentions(self) -> Iterator[tuple[int, Attention]]:
        for layer in self.layers:
            if layer.attention is not None:
                yield layer.count, layer.attention

    def kv_bytes_per_token(self, kv_cache: str = "bf16", tensor_parallel: int = 1) -> int:
        """Bytes on one rank by which each further token of context grows the cache (windows and states: nothing)."""
        return sum(n * a.kv_bytes_per_token(kv_cache, tensor_parallel) for n, a in self._attentions())

    def kv_bytes(self, context_tokens: int, kv_cache: str = "bf16", tensor_parallel: int = 1) -> int:
        """Bytes on one rank that one sequence of `context_tokens` keeps: windows and constant states included."""
        return sum(n * a.stored_bytes(context_tokens, kv_cache, tensor_parallel) for n, a in self._attentions())

    def with_weights(self, weights: str) -> Model:
        """The same model with all linears and experts in `weights`; embeddings, head, norms, router stay bf16."""
        layers = tuple(_layer_with_weights(layer, weights) for layer in self.layers)
        return replace(self, layers=layers, weights=weights)


def _layer_with_weights(layer: Layer, weights: str) -> Layer:
    def converted(linears: tuple[Linear, ...]) -> tuple[Linear, ...]:
        return tuple(x if x.name == "router" else replace(x, weights=weights, group=0) for x in linears)

    attention, experts = layer.attention, layer.experts
    return replace(
        layer,
        attention=replace(attention, linears=converted(attention.linears)) if attention else None,
        linears=converted(layer.linears),
        experts=replace(experts, weights=weights, group=0) if experts else None,
    )
