"""Linear layers: y (m, n) = x (m, k) · W (n, k)ᵀ,
with the activation quantisation where the format has one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from simulator.costs.ops.numeric import loglog, neighbour_weights, smooth_max
from simulator.numerics.arrays import Floats

TILE_TOKENS = 64
"""Rows a tensor-core tile computes at once on Hopper (wgmma M): fewer cost the same arithmetic."""


@dataclass(frozen=True)
class GemmForm:
    """The smooth form, in µs: t0 + tk·k + quantise
    + smoothmax_p(bytes / (BW·eb), FLOPs of whole tiles / (F·ec)).

    bytes = n·k·weight + m·k·activation + 2·m·n. `weight_bytes` per parameter with its scales; `flops_per_s`
    is the peak of the arithmetic type. Quantising activations reads 2 and writes 1 byte per element of x.
    """

    bandwidth_bytes_per_s: float
    flops_per_s: float
    weight_bytes: float
    activation_bytes: float
    start_us: float
    memory_efficiency: float
    compute_efficiency: float
    smoothness: float
    per_k_us: float
    quantise_efficiency: float = 0.0  # 0: no quantisation
    tile_tokens: float = TILE_TOKENS

    def parts_us(self, n: ArrayLike, k: ArrayLike, m: ArrayLike) -> tuple[Floats, Floats, Floats]:
        """(memory, arithmetic, fixed) µs before they are combined; broadcast over n, k, m."""
        nn, kk, mm = (np.asarray(x, dtype=np.float64) for x in (n, k, m))
        moved = nn * kk * self.weight_bytes + mm * kk * self.activation_bytes + 2.0 * mm * nn
        flops = 2.0 * np.ceil(mm / self.tile_tokens) * self.tile_tokens * nn * kk
        memory = moved / (self.bandwidth_bytes_per_s * self.memory_efficiency) * 1e6
        compute = flops / (self.flops_per_s * self.compute_efficiency) * 1e6
        fixed = self.start_us + self.per_k_us * kk
        if self.quantise_efficiency:
            fixed = fixed + 3.0 * mm * kk / (self.bandwidth_bytes_per_s * self.quantise_efficiency) * 1e6
        return memory, compute, np.broadcast_to(fixed, np.broadcast_shapes(memory.shape, compute.shape))

    def time_us(self, n: ArrayLike, k: ArrayLike, m: ArrayLike) -> Floats:
        memory, compute, fixed = self.parts_us(n, k, m)
        return fixed + smooth_max(memory, compute, self.smoothness)


@dataclass(frozen=True)
class Gemm:
    """A `GemmForm` corrected by what was measured.

    `shapes` (s, 2) are (n, k) with a table, `knots` (j,) its values of m, `log_ratio` (s, j) = ln(measured
    ÷ form). A shape of the table is read; any other takes the correction of its neighbours in (log n, log
    k), clipped to the table's range. Without shapes the form stands alone.

    Between the knots a table is a log-log line, or, with `follows_form`, the form times the interpolated
    correction: an affine curve keeps its shape there (1 % at knots an octave apart), and steps of tiles do.
    `rises` False keeps what was measured where a kernel takes longer for fewer tokens.
    """

    form: GemmForm
    knots: Floats
    shapes: Floats
    log_ratio: Floats
    follows_form: bool = False
    rises: bool = True
    _log_shapes: Floats = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_log_shapes", np.log2(self.shapes))

    def time_us(self, n: float, k: float, m: ArrayLike) -> Floats:
        """µs of one matrix at m tokens (any shape of m); 0 at m = 0; never falls as m grows, see `rises`."""
        values = self.form.time_us(n, k, self.knots)
        if len(self.shapes):
            at = np.clip(np.log2([n, k]), self._log_shapes.min(axis=0), self._log_shapes.max(axis=0))
            values = values * np.exp(neighbour_weights(self._log_shapes, at) @ self.log_ratio)
        if self.rises:
            values = np.maximum.accumulate(values)
        return self._along_form(n, k, m, values) if self.follows_form else loglog(m, self.knots, values)

    def _along_form(self, n: float, k: float, m: ArrayLike, values: Floats) -> Floats:
        """The form at m, corrected as at the knots around it, and beyond the last one as at the last."""
        tokens = np.asarray(m, dtype=np.float64)
        counted = np.maximum(tokens, 1e-9)
        correction = np.log(values / self.form.time_us(n, k, self.knots))
        ratio = np.exp(np.interp(np.log(counted), np.log(self.knots), correction))
        return np.where(tokens > 0, self.form.time_us(n, k, counted) * ratio, 0.0)
