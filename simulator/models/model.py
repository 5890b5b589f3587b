"""What a transformer is made of, as far as its size and its cost are concerned: attention, layers, models.

Everything is derived from these frozen records by property; nothing is stored twice. Bytes are bytes on one
rank of a tensor-parallel group wherever a `tensor_parallel` argument appears. `matrices.py` has the matrices,
`config.py` makes a `Model` from a Hugging Face `config.json`, `catalogue.py` finds one by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from simulator.models.matrices import WEIGHT_FORMATS, Experts, LinearLayer, share, weight_bytes_each

__all__ = [
    "KV_CACHE_BYTES",
    "WEIGHT_FORMATS",
    "Attention",
    "Experts",
    "Layer",
    "LinearLayer",
    "Model",
    "MtpModule",
    "weight_bytes_each",
]

KV_CACHE_BYTES = {"bf16": 2, "fp8": 1}


@dataclass(frozen=True)
class Attention:
    """One layer's token mixer: what it multiplies, what it keeps per token
    and per sequence, what a query reads.

    kinds: `full` and `sliding` (GQA, MHA; sliding keeps `window_tokens`), `mla` (one latent of kv_lora_rank +
    rope_head_dim per token, the same on every rank), `sparse` (as mla or full, but a query reads
    `topk_tokens` entries chosen by an indexer that reads `index_bytes_per_token` of every entry),
    `compressed` (one entry per `compression` tokens, plus the last `window_tokens` as they are; the sparse
    fields apply to the compressed entries), `linear` (gated delta net, KDA) and `mamba2` (constant
    `state_bytes` per sequence, no entries).
    """

    kind: str
    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    linears: tuple[LinearLayer, ...]
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
        heads = self.kv_heads if self.replicated else share(self.kv_heads, tensor_parallel)
        return each * heads * per_head

    def kv_bytes_per_token(self, kv_cache: str = "bf16", tensor_parallel: int = 1) -> int:
        """Bytes by which one more token of context grows this layer's cache for good (0: window or state)."""
        if not self.keeps_all_tokens:
            return 0
        entry = self.entry_bytes(kv_cache, tensor_parallel) + self.index_bytes_per_token
        return share(entry, self.compression)

    def stored_bytes(
        self, context_tokens: int, kv_cache: str = "bf16", tensor_parallel: int = 1, states: int = 1
    ) -> int:
        """Bytes this layer keeps for one sequence of `context_tokens`, a constant state `states` times."""
        entry = self.entry_bytes(kv_cache, tensor_parallel)
        held_bytes = 0
        if self.keeps_all_tokens:
            held_bytes += share(context_tokens, self.compression) * (entry + self.index_bytes_per_token)
        if self.window_tokens is not None:
            held_bytes += min(context_tokens, self.window_tokens) * entry
        if self.state_bytes:
            held_bytes += (
                states * self.state_bytes * share(self.state_heads, tensor_parallel) // self.state_heads
            )
        return held_bytes

    def read_bytes(self, context_tokens: int, kv_cache: str = "bf16", tensor_parallel: int = 1) -> int:
        """Bytes one pass reads of one sequence's cache, whatever the number of query tokens up to a few."""
        entry = self.entry_bytes(kv_cache, tensor_parallel)
        read = 0
        if self.keeps_all_tokens:
            entries = share(context_tokens, self.compression)
            chosen = entries if self.topk_tokens is None else min(entries, self.topk_tokens)
            read += chosen * entry + entries * self.index_bytes_per_token
        if self.window_tokens is not None:
            read += min(context_tokens, self.window_tokens) * entry
        if self.state_bytes:
            read += self.state_bytes * share(self.state_heads, tensor_parallel) // self.state_heads
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
class Layer:
    """`count` identical decoder layers; any of attention,
    dense linears and experts may be absent (hybrids, NAS)."""

    count: int
    attention: Attention | None = None
    linears: tuple[LinearLayer, ...] = ()  # dense MLP, shared experts, router, latent projections
    experts: Experts | None = None
    other_parameters: int = 0  # norms, convolutions, per-head vectors of one layer; bf16, on every rank

    @property
    def all_linears(self) -> tuple[LinearLayer, ...]:
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

    def weight_bytes(self, tensor_parallel: int = 1, expert_parallel: int = 1, copies: int = 1) -> float:
        """Bytes of one such layer on one rank; all but the experts stands `copies` times on the ranks."""
        total = sum(linear.per_rank(tensor_parallel // copies).weight_bytes for linear in self.all_linears)
        if self.experts:
            total += self.experts.per_rank(tensor_parallel, expert_parallel).weight_bytes
        return total + 2.0 * self.other_parameters


@dataclass(frozen=True)
class MtpModule:
    """What a checkpoint carries to predict further tokens:
    `count` modules that take turns, one per draft pass.

    `fc` joins the embedding of the last token and the hidden state before it.
    The embedding is the model's, and so is the head unless each module has one of its own.
    """

    layers: tuple[Layer, ...]
    fc: LinearLayer
    count: int = 1
    other_parameters: int = 0
    own_head: bool = False


@dataclass(frozen=True)
class Model:
    """A language model's text part. `head` has out_features = vocabulary;
    tied: it has no weights of its own."""

    name: str
    hidden_size: int
    vocab_size: int
    layers: tuple[Layer, ...]
    head: LinearLayer
    embedding_parameters: int
    tied_embeddings: bool
    max_context_tokens: int
    weights: str  # the dominant format
    source: str
    other_parameters: int = 0  # final norm and the like
    mtp: MtpModule | None = None

    @property
    def layer_count(self) -> int:
        return sum(layer.count for layer in self.layers)

    @property
    def _ends(self) -> int:
        return (
            self.embedding_parameters
            + self.other_parameters
            + (0 if self.tied_embeddings else self.head.parameters)
        )

    @property
    def parameters(self) -> int:
        """All parameters of the text part, multi-token-prediction modules not included;
        a tied head counts once."""
        return sum(layer.count * layer.parameters for layer in self.layers) + self._ends

    @property
    def active_parameters(self) -> int:
        """Parameters one token passes through: as `parameters`, but only the routed experts it uses."""
        return sum(layer.count * layer.active_parameters for layer in self.layers) + self._ends

    def weight_bytes(self, tensor_parallel: int = 1, expert_parallel: int = 1, copies: int = 1) -> float:
        """Bytes of all weights on one rank: embeddings and head are cut by vocabulary and stay bf16.

        `copies`: groups of the ranks that each hold all but the experts.
        """
        total = sum(
            layer.count * layer.weight_bytes(tensor_parallel, expert_parallel, copies)
            for layer in self.layers
        )
        ranks = tensor_parallel // copies
        ends = self.embedding_parameters // self.vocab_size * share(self.vocab_size, ranks) * 2.0
        if not self.tied_embeddings:
            ends += self.head.per_rank(ranks).weight_bytes
        return total + ends + 2.0 * self.other_parameters

    def _attentions(self) -> Iterator[tuple[int, Attention]]:
        for layer in self.layers:
            if layer.attention is not None:
                yield layer.count, layer.attention

    def divides_over(self, ranks: int) -> bool:
        """Whether heads divide over `ranks` GPUs as engines demand: whole heads, KV heads whole or copied."""
        return all(
            a.heads % ranks == 0 and (a.replicated or a.kv_heads % ranks == 0 or ranks % a.kv_heads == 0)
            for _, a in self._attentions()
            if a.heads and a.kv_heads
        )

    def kv_bytes_per_token(self, kv_cache: str = "bf16", tensor_parallel: int = 1) -> int:
        """Bytes on one rank by which each further token
        of context grows the cache (windows and states: nothing)."""
        return sum(n * a.kv_bytes_per_token(kv_cache, tensor_parallel) for n, a in self._attentions())

    def kv_bytes(
        self, context_tokens: int, kv_cache: str = "bf16", tensor_parallel: int = 1, states: int = 1
    ) -> int:
        """Bytes on one rank that one sequence of `context_tokens` keeps, with windows and constant states.

        `states`: constant states of a layer: one, and one more per draft where a step verifies drafts.
        """
        return sum(
            n * a.stored_bytes(context_tokens, kv_cache, tensor_parallel, states)
            for n, a in self._attentions()
        )

    def with_weights(self, weights: str) -> Model:
        """The same model with all linears and experts in `weights`;
        embeddings, head, norms, router stay bf16.

        A model that is mostly in that format already is returned as it is, its exceptions included.
        """
        if weights == self.weights:
            return self
        mtp = self.mtp
        if mtp is not None:
            mtp = replace(mtp, layers=tuple(_layer_with_weights(layer, weights) for layer in mtp.layers))
        layers = tuple(_layer_with_weights(layer, weights) for layer in self.layers)
        return replace(self, layers=layers, weights=weights, mtp=mtp)


_ALWAYS_BF16 = ("router", "hyper_connection", "index_weights", "compress", "index_compress")


def _layer_with_weights(layer: Layer, weights: str) -> Layer:
    def converted(linears: tuple[LinearLayer, ...]) -> tuple[LinearLayer, ...]:
        return tuple(x if x.name in _ALWAYS_BF16 else replace(x, weights=weights, group=0) for x in linears)

    attention, experts = layer.attention, layer.experts
    return replace(
        layer,
        attention=replace(attention, linears=converted(attention.linears)) if attention else None,
        linears=converted(layer.linears),
        experts=replace(experts, weights=weights, group=0) if experts else None,
    )
