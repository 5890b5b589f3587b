"""The operators of a profile applied to one network on one rank: µs by tokens, by rows, by (batch, context).

The explained cost of a pass and the compiled price tables both evaluate these functions, so they cannot
disagree.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from simulator.costs.network import AttentionLayers, Network
from simulator.costs.ops.attention import (
    DecodeAttention,
    LatentAttention,
    MeasuredAttention,
    PrefillAttention,
    StreamedCache,
)
from simulator.costs.ops.collectives import AllReduce
from simulator.costs.ops.gemm import Gemm
from simulator.costs.ops.rows import RowTable
from simulator.costs.profiles import Profile
from simulator.engines.preset import Preset
from simulator.models.model import KV_CACHE_BYTES
from simulator.numerics.arrays import Floats

PLAIN_TORCH = "torch"
"""`Preset.kernels` of a loop that calls torch's operators one by one."""
STREAMING = 0.8
"""Share of the bandwidth that fused norms and activations reach where a profile does not say (assumed)."""
LOGIT_BYTES = 2
"""Logits leave the head in bf16 and are gathered over the ranks."""


@dataclass(frozen=True)
class NetworkPricing:
    """Times of one network in µs, each for a pass through all its layers, on one GPU.

    Tokens, rows, sequences and pairs are those of all groups. Groups work in parallel on equal shares.
    """

    network: Network
    profile: Profile
    preset: Preset
    kv_cache: str
    sampling: str = ""
    """How this network's own tokens are chosen, as `Profile.sampler` names it."""

    def own(self, count: ArrayLike) -> Floats:
        """Return the tokens, rows or sequences of the fullest group, from the count of all groups."""
        of_all_groups = np.asarray(count, dtype=np.float64)
        return of_all_groups if self.network.groups == 1 else np.ceil(of_all_groups / self.network.groups)

    def matrices_us(self, tokens: ArrayLike) -> Floats:
        """All linear layers at that many (padded) tokens."""
        total, t = np.zeros(np.shape(tokens)), self.own(tokens)
        for matrix in self.network.matrices:
            total = total + matrix.count * self.gemm(matrix.weights).time_us(matrix.n, matrix.k, t)
        return total

    def gemm(self, weights: str) -> Gemm:
        """The linear operator of this engine."""
        return self.profile.gemm(weights, self.preset.kernels)

    def small_us(self, tokens: ArrayLike) -> Floats:
        """Norms, rope, KV write, activation: as measured in place, else the preset's cost per layer, and
        their memory traffic.
        """
        t = self.own(tokens)
        if self._rest is not None:
            layers = self.network.layers
            return layers * self._rest.time_us(t, self.network.traffic_bytes_per_token / layers)
        efficiency = self.profile.parts["elementwise"].coefficients.get("memory_efficiency", STREAMING)
        moved = t * self.network.traffic_bytes_per_token
        stream = moved / (self.profile.bandwidth() * float(efficiency)) * 1e6
        start = self.preset.small_kernel_s_per_layer * self.network.layers * 1e6
        return np.where(t > 0, start + stream, 0.0)

    def small_start_us(self) -> float:
        """The part of `small_us` that no token adds to."""
        if self._rest is not None:
            return self._rest.start_us * self.network.layers
        return self.preset.small_kernel_s_per_layer * 1e6 * self.network.layers

    def preparation_us(self, tokens: ArrayLike) -> Floats:
        """Embedding, positions, mask, once a pass; 0 where a profile has no part for them."""
        if self._preparation is None:
            return np.zeros(np.shape(tokens))
        return self._preparation.time_us(self.own(tokens), self.network.hidden)

    def reduce_us(self, tokens: ArrayLike) -> Floats:
        """All-reduces of the hidden states of that many tokens."""
        size = self.own(tokens) * self.network.hidden * 2
        return self.network.reduced * self._allreduce.time_us(size, self.network.tensor_parallel)

    def exchange_us(self, tokens: ArrayLike) -> Floats:
        """Bringing that many tokens to the experts of other groups and back; 0 for one group.

        Where every GPU holds whole experts of its own, tokens go to the GPUs of their experts; else every GPU
        gets all of them, and sums come back: an all-gather and a reduce-scatter, which an all-reduce is.
        """
        total: Floats = np.zeros(np.shape(tokens))
        if self.network.groups == 1:
            return total
        ranks, all_tokens = self.network.ranks, np.asarray(tokens, dtype=np.float64)
        for experts in self.network.experts:
            exchange = self.profile.exchange() if experts.expert_parallel == ranks else None
            if exchange is not None:
                each = exchange.time_us(self.own(tokens), experts.per_token * experts.hidden, ranks)
            else:
                each = self._allreduce.time_us(2.0 * all_tokens * experts.hidden, ranks)
            total = total + experts.count * each
        return total

    def communication_us(self, tokens: ArrayLike) -> Floats:
        """All-reduces and exchanges of that many tokens."""
        return self.reduce_us(tokens) + self.exchange_us(tokens)

    def tokens_us(self, tokens: ArrayLike) -> Floats:
        """Everything that depends on tokens alone: linears, small kernels, communication, preparation."""
        layers = self.matrices_us(tokens) + self.small_us(tokens) + self.communication_us(tokens)
        return layers if self._preparation is None else layers + self.preparation_us(tokens)

    def experts_us(self, tokens: ArrayLike, union: bool = True) -> Floats:
        """Routed experts at that many real tokens; `union` False: no expert is read for a further token."""
        total: Floats = np.zeros(np.shape(tokens))
        for experts in self.network.experts:
            operator = self.profile.experts(experts.weights)
            shape = (
                experts.hidden,
                experts.intermediate,
                experts.per_token,
                experts.experts,
                experts.expert_parallel,
                experts.matrices,
            )
            total = total + experts.count * operator.time_us(tokens, *shape, union)
        return total

    def head_us(self, rows: ArrayLike) -> Floats:
        """The lm head on logit rows, with the gathering of the vocabulary's parts."""
        head = self.network.head
        return self.gemm(head.weights).time_us(head.n, head.k, self.own(rows)) + self.gather_us(rows)

    def gather_us(self, rows: ArrayLike) -> Floats:
        """An all-gather moves half of what an all-reduce of the same result does."""
        size = self.own(rows) * self.network.head_features * LOGIT_BYTES
        return self._allreduce.time_us(size / 2, self.network.tensor_parallel)

    def sample_us(self, rows: ArrayLike) -> Floats:
        """Rejection and sampler over fp32 logits of the whole vocabulary."""
        return self.profile.sampler(self.sampling).time_us(self.own(rows), self.network.head_features)

    def draft_sample_us(self, rows: ArrayLike) -> Floats:
        """What a drafter does on its own logits in one pass; 0 where a profile has no part for it."""
        sampler = self.profile.draft_sampler(self.sampling)
        if sampler is None:
            return np.zeros(np.shape(rows))
        return sampler.time_us(self.own(rows), self.network.head_features)

    def attention_us(self, batch: ArrayLike, context: ArrayLike, query_tokens: int) -> Floats:
        """Decode or verify attention of all layers:
        `batch` sequences of `context` tokens, q query tokens each.
        """
        total: Floats = np.zeros(np.broadcast_shapes(np.shape(batch), np.shape(context)))
        for layers in self.network.attentions:
            layer_us = self.layer_attention_us(layers, self.own(batch), context, query_tokens)
            total = total + layers.count * layer_us
        return total

    def layer_attention_us(
        self, layers: AttentionLayers, batch: ArrayLike, context: ArrayLike, query_tokens: int
    ) -> Floats:
        """One layer of a kind, see `Attention.kind`; `batch` of one group."""
        a = layers.attention
        b, c = np.asarray(batch, dtype=np.float64), np.asarray(context, dtype=np.float64)
        if a.kind in ("linear", "mamba2"):
            return self._streamed.time_us(b * layers.state_bytes() * (1 + query_tokens), 0.0 * c)
        if a.kind == "compressed":
            return self._compressed_us(layers, b, c, query_tokens)
        seen = c if a.topk_tokens is None else np.minimum(c, a.topk_tokens)
        if a.kind == "sliding":
            seen = np.minimum(c, a.window_tokens or np.inf)
        if a.kv_lora_rank:
            core = self._latent.time_us(b, seen, layers.heads * query_tokens)
        else:
            dim, rows = (a.head_dim + a.v_head_dim) / 2, layers.heads / layers.kv_heads * query_tokens
            core = self._attention.time_us(b, seen, layers.kv_heads, dim, rows)
            if a.kind == "sliding":
                core = core * np.where(c > seen, self._attention.window_factor(dim), 1.0)
        return core + self._indexer_us(layers, b, c, query_tokens)

    def prefill_pair_us(self, windowed: bool) -> float:
        """µs per (query, key) pair of all layers whose pairs are all keys (or those in a window)."""
        return sum(
            layers.count * self._prefill.pair_us(pair_flops(layers) / self.network.groups)
            for layers in self.network.attentions
            if (window_of(layers) > 0) == windowed
        )

    def index_pair_us(self) -> float:
        """µs per pair of what sparse layers spend on choosing keys: their indexer scores every one."""
        return sum(
            layers.count * self._prefill.pair_us(2.0 * a.index_heads * a.index_head_dim / self.network.groups)
            for layers in self.network.attentions
            if (a := layers.attention).topk_tokens is not None
        )

    def prefill_start_us(self) -> float:
        """Once a step with prefill, whatever the chunks: the start of the attention kernel of every layer."""
        return self._prefill.start_us * sum(layers.count for layers in self.network.attentions)

    def prefill_token_us(self) -> float:
        """µs per token of prefill chunks: what attention moves of it in all layers."""
        return sum(
            layers.count * self._prefill.token_us(prefill_token_bytes(layers) / self.network.groups)
            for layers in self.network.attentions
        )

    @property
    def window_tokens(self) -> int:
        """The window (or number of chosen keys) that most layers have; 0: none."""
        layers_by_window: dict[int, int] = {}
        for layers in self.network.attentions:
            if window_of(layers):
                layers_by_window[window_of(layers)] = (
                    layers_by_window.get(window_of(layers), 0) + layers.count
                )
        return max(((count, window) for window, count in layers_by_window.items()), default=(0, 0))[1]

    def launch_us(self, mode: str) -> float:
        """What the GPU waits for launches that no graph holds:
        none (full), attention (piecewise), all (eager).
        """
        each = self.preset.launch_kernel_s * 1e6
        if mode == "full":
            return 0.0
        if mode == "piecewise":
            return 3 * each * sum(layers.count for layers in self.network.attentions)
        return each * self.network.kernels

    def launching_us(self) -> float:
        """What the host takes to launch a pass that no graph holds.

        Serving engines do more around a call than plain torch, whose calls a profile can have measured.
        """
        measured = self.profile.eager_call_us() if self.preset.kernels == PLAIN_TORCH else None
        if measured is not None:
            return measured * self.network.calls
        return self.preset.host.eager_call_s * 1e6 * self.network.calls

    def draft_launching_us(self) -> float:
        """What the host takes to launch a drafter's pass that no graph holds."""
        return self.preset.host.draft_call_s * 1e6 * self.network.calls

    def _indexer_us(self, layers: AttentionLayers, b: Floats, c: Floats, query_tokens: int) -> Floats:
        a = layers.attention
        if not a.index_bytes_per_token:
            return np.zeros(np.broadcast_shapes(b.shape, c.shape))
        entries = c / a.compression
        flops = 2.0 * b * entries * query_tokens * a.index_heads * a.index_head_dim
        return self._streamed.time_us(b * entries * a.index_bytes_per_token, flops)

    def _compressed_us(self, layers: AttentionLayers, b: Floats, c: Floats, query_tokens: int) -> Floats:
        """Every chosen compressed entry and the window are read once; the FLOPs are of every query token."""
        a = layers.attention
        entry = (
            KV_CACHE_BYTES[self.kv_cache]
            * a.kv_heads
            * (a.head_dim if a.shared_kv else a.head_dim + a.v_head_dim)
        )
        stored = c / a.compression if a.compression > 1 else np.zeros(c.shape)
        chosen = stored if a.topk_tokens is None else np.minimum(stored, a.topk_tokens)
        read = chosen + np.minimum(c, a.window_tokens or 0)
        flops = 2.0 * layers.heads * (a.head_dim + a.v_head_dim) * b * read * query_tokens
        core = self._streamed.time_us(b * read * entry, flops)
        return core + self._indexer_us(layers, b, c, query_tokens)

    @cached_property
    def _rest(self) -> RowTable | None:
        if not self._as_measured:
            return None
        return self.profile.rest_of_layer(self.network.traffic_bytes_per_token / self.network.layers)

    @cached_property
    def _preparation(self) -> RowTable | None:
        return self.profile.preparation(self.network.hidden) if self._as_measured else None

    @property
    def _as_measured(self) -> bool:
        """Whether small operators run one by one, as they were measured; on GPUs engines fuse them."""
        return self.preset.kernels == PLAIN_TORCH or self.profile.on_cpu

    @cached_property
    def _attention(self) -> DecodeAttention | MeasuredAttention:
        return self.profile.attention(self.kv_cache, self.preset.kernels)

    @cached_property
    def _latent(self) -> LatentAttention:
        return self.profile.latent(self.kv_cache)

    @cached_property
    def _streamed(self) -> StreamedCache:
        return self.profile.streamed()

    @cached_property
    def _prefill(self) -> PrefillAttention:
        return self.profile.prefill()

    @cached_property
    def _allreduce(self) -> AllReduce:
        return self.profile.allreduce(self.preset.kernels)


def window_of(layers: AttentionLayers) -> int:
    """Keys a query can see in this layer when that is bounded; 0: all."""
    a = layers.attention
    if a.kind == "sliding":
        return a.window_tokens or 0
    if a.kind == "compressed":
        return (a.window_tokens or 0) + (a.topk_tokens or 0)
    return a.topk_tokens or 0


def prefill_token_bytes(layers: AttentionLayers) -> float:
    """bf16 bytes of one token's query, key, value and output, heads of one rank; 0 without pairs."""
    a = layers.attention
    if a.kind in ("linear", "mamba2"):
        return 0.0
    return 2.0 * (layers.heads + layers.kv_heads) * (a.head_dim + a.v_head_dim)


def pair_flops(layers: AttentionLayers) -> float:
    """FLOPs of one (query, key) pair at prefill, heads of one rank.
    MLA multiplies keys and values per head there.
    """
    a = layers.attention
    if a.kind in ("linear", "mamba2"):
        return 0.0
    return 2.0 * layers.heads * (a.head_dim + a.v_head_dim)
