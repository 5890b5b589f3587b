"""Attention at decode and verify: many sequences, few query tokens each, a long cache.

The cache is read once per sequence whatever the number of query rows, because FlashAttention packs the g·q
rows of one KV head (g query heads per KV head, q query tokens) into tiles of 64.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from simulator.costs.ops.numeric import grid_lookup
from simulator.numerics.arrays import Floats

TILE_ROWS = 64
"""Query rows of one KV head that a tile holds; more rows need a second pass over the keys."""


@dataclass(frozen=True)
class DecodeAttention:
    """Measured decode attention of one KV-cache format, µs of one layer on one GPU.

    `time` is (d, h, b, c) over `head_dims`, `kv_heads` (per GPU), `batches`, `contexts`, logarithms of µs:
    it does not depend on query heads while g·q <= 64 (checked on held-out head counts). Interpolated
    log-log; beyond the last batch or context proportional; more KV heads than the last count as more
    sequences; another head dimension counts as the nearest one with KV heads scaled.
    """

    head_dims: Floats
    kv_heads: Floats
    batches: Floats
    contexts: Floats
    log_time: Floats
    flops_per_s: float
    compute_efficiency: float
    tile_penalty: float  # more time per further tile of 64 rows, as a fraction of what exceeds the start cost
    window_factors: Floats  # (d,) time of a sliding window over that of full attention to as many tokens

    @property
    def group(self) -> float | None:
        """Query heads per KV head that it was measured with; None: any."""
        return None

    def window_factor(self, head_dim: float) -> float:
        return float(self.window_factors[self._nearest(head_dim)])

    def _nearest(self, head_dim: float) -> int:
        return int(np.argmin(np.abs(np.log(self.head_dims / head_dim))))

    def time_us(
        self, batch: ArrayLike, context: ArrayLike, kv_heads: float, head_dim: float, rows: float = 1
    ) -> Floats:
        """µs for `batch` sequences of `context` tokens each;
        `rows` = g·q query rows per KV head. Broadcasts.
        """
        b, c = np.asarray(batch, dtype=np.float64), np.asarray(context, dtype=np.float64)
        at = self._nearest(head_dim)
        heads = kv_heads * head_dim / self.head_dims[at]
        sequences = b * max(1.0, heads / self.kv_heads[-1])
        heads = min(max(heads, self.kv_heads[0]), self.kv_heads[-1])
        axes = (np.log(self.kv_heads), np.log(self.batches), np.log(self.contexts))
        point = (np.log(heads), np.log(np.maximum(sequences, 1.0)), np.log(np.maximum(c, self.contexts[0])))
        base = np.exp(grid_lookup(self.log_time[at], axes, tuple(np.asarray(x) for x in point)))
        base = base * np.maximum(sequences / self.batches[-1], 1.0) * np.maximum(c / self.contexts[-1], 1.0)
        tiles = -(-rows // TILE_ROWS)
        if tiles > 1:
            start = float(np.exp(self.log_time[at].min()))
            base = start + np.maximum(base - start, 0.0) * (1.0 + self.tile_penalty * (tiles - 1))
            flops = 4.0 * b * c * kv_heads * tiles * TILE_ROWS * head_dim
            base = np.maximum(base, start + flops / (self.flops_per_s * self.compute_efficiency) * 1e6)
        return np.where((b > 0) & (c > 0), base, 0.0)


@dataclass(frozen=True)
class AttentionForm:
    """The smooth form, in µs, of decode and verify attention of one layer: start + cache / (BW·eb) + FLOPs /
    (F·ec) + a cost per query token. The cache is read once per sequence.
    """

    bandwidth_bytes_per_s: float
    flops_per_s: float
    cache_bytes: float  # of one value
    group: float  # query heads per KV head
    start_us: float
    memory_efficiency: float
    compute_efficiency: float
    per_query_us: float

    def time_us(
        self,
        batch: ArrayLike,
        context: ArrayLike,
        kv_heads: ArrayLike,
        head_dim: ArrayLike,
        queries: ArrayLike,
    ) -> Floats:
        """µs of `batch` sequences whose last of `queries` tokens sees `context` keys. Broadcasts."""
        b, c, h, d, q = (
            np.asarray(x, dtype=np.float64) for x in (batch, context, kv_heads, head_dim, queries)
        )
        memory = (
            2.0 * b * c * h * d * self.cache_bytes / (self.bandwidth_bytes_per_s * self.memory_efficiency)
        )
        flops = 4.0 * b * q * c * h * self.group * d
        compute = flops / (self.flops_per_s * self.compute_efficiency)
        return np.asarray(self.start_us + 1e6 * (memory + compute) + self.per_query_us * b * q)


@dataclass(frozen=True)
class MeasuredAttention:
    """An `AttentionForm` corrected by what was measured with several query tokens, as `Gemm` is.

    `log_ratio` (d, h, b, c, q) = ln(measured ÷ form) over `head_dims`, `kv_heads`, `batches`, `contexts` and
    `queries` per sequence; interpolated in logarithms, beyond the axes as at their ends.
    """

    form: AttentionForm
    head_dims: Floats
    kv_heads: Floats
    batches: Floats
    contexts: Floats
    queries: Floats
    log_ratio: Floats

    @property
    def group(self) -> float | None:
        """Query heads per KV head that it was measured with."""
        return self.form.group

    def window_factor(self, head_dim: float) -> float:
        """Windows are read like a cache of their length."""
        return 1.0

    def time_us(
        self, batch: ArrayLike, context: ArrayLike, kv_heads: float, head_dim: float, rows: float = 1
    ) -> Floats:
        """As `DecodeAttention.time_us`."""
        b, c = np.asarray(batch, dtype=np.float64), np.asarray(context, dtype=np.float64)
        queries = rows / self.form.group
        at = int(np.argmin(np.abs(np.log(self.head_dims / head_dim))))
        axes = tuple(np.log(x) for x in (self.kv_heads, self.batches, self.contexts, self.queries))
        point = (kv_heads, np.maximum(b, 1.0), np.maximum(c, 1.0), queries)
        ratio = grid_lookup(self.log_ratio[at], axes, tuple(np.log(np.asarray(x, np.float64)) for x in point))
        return np.where(
            (b > 0) & (c > 0), self.form.time_us(b, c, kv_heads, head_dim, queries) * np.exp(ratio), 0.0
        )


@dataclass(frozen=True)
class LatentAttention:
    """Measured MLA decode (the core kernel, absorbed form), µs of one layer: `log_time` (r, b, c).

    `rows` are heads × query tokens: all of them share the one latent of a token, so a verify pass is a
    decode with more heads. Beyond the last row count it is bound by arithmetic and proportional.
    """

    rows: Floats
    batches: Floats
    contexts: Floats
    log_time: Floats

    def time_us(self, batch: ArrayLike, context: ArrayLike, rows: float) -> Floats:
        b, c = np.asarray(batch, dtype=np.float64), np.asarray(context, dtype=np.float64)
        axes = (np.log(self.rows), np.log(self.batches), np.log(self.contexts))
        point = (np.log(rows), np.log(np.maximum(b, 1.0)), np.log(np.maximum(c, self.contexts[0])))
        base = np.exp(grid_lookup(self.log_time, axes, tuple(np.asarray(x) for x in point)))
        for x, axis in ((rows, self.rows), (b, self.batches), (c, self.contexts)):
            base = base * np.maximum(np.asarray(x) / axis[-1], 1.0)
        return np.where((b > 0) & (c > 0), base, 0.0)


@dataclass(frozen=True)
class StreamedCache:
    """Attention without a table: start + bytes ÷ (BW·e), against arithmetic.
    Windows, states, indexers, compressed.
    """

    bandwidth_bytes_per_s: float
    flops_per_s: float
    start_us: float
    memory_efficiency: float
    compute_efficiency: float

    def time_us(self, moved_bytes: ArrayLike, flops: ArrayLike) -> Floats:
        memory = np.asarray(moved_bytes, dtype=np.float64) / (
            self.bandwidth_bytes_per_s * self.memory_efficiency
        )
        compute = np.asarray(flops, dtype=np.float64) / (self.flops_per_s * self.compute_efficiency)
        return np.where((memory > 0) | (compute > 0), self.start_us + 1e6 * np.maximum(memory, compute), 0.0)


@dataclass(frozen=True)
class PrefillAttention:
    """Attention of prefill chunks, one layer.

    One kernel takes all chunks of a step, so its start is paid once; then FLOPs of the (query, key) pairs ÷
    (F·ec) + bytes of queries, keys, values and outputs ÷ (BW·em).
    """

    flops_per_s: float
    bandwidth_bytes_per_s: float
    start_us: float
    compute_efficiency: float
    memory_efficiency: float  # 0: tokens cost nothing beyond their pairs

    def pair_us(self, pair_flops: float) -> float:
        """µs of one (query, key) pair of one layer that costs `pair_flops`."""
        return pair_flops / (self.flops_per_s * self.compute_efficiency) * 1e6

    def token_us(self, token_bytes: float) -> float:
        """µs of one token of one layer that moves `token_bytes`."""
        if self.memory_efficiency == 0:
            return 0.0
        return token_bytes / (self.bandwidth_bytes_per_s * self.memory_efficiency) * 1e6
