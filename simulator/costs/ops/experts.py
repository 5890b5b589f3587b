"""Routed experts: which are read, and what the fused mixture-of-experts kernels take."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from simulator.costs.ops.numeric import loglog, neighbour_weights, smooth_max
from simulator.numerics.arrays import Floats

TILE_TOKENS = 16
"""Tokens of one expert that a tile computes at once (the smallest tile of the fused kernels)."""

_FEATURE_SCALE = np.array([0.7, 1.0, 1.0, 0.5, 0.3])
"""How much an octave of hidden, intermediate, experts,
routing density and expert parallelism separates shapes.
"""


def experts_read(count: float, per_token: float, tokens: ArrayLike, skew: float) -> Floats:
    """Distinct experts that `tokens` tokens touch: X·(1 − (1 − k/X)^(T^s));
    s = 1 for independent uniform routing.

    arXiv 2505.19645; the exponent for skewed routing is fitted. At most X; k at one token.
    """
    t = np.asarray(tokens, dtype=np.float64)
    return count * (1.0 - (1.0 - per_token / count) ** (np.maximum(t, 0.0) ** skew))


@dataclass(frozen=True)
class ExpertsForm:
    """The smooth form, in µs, of one layer's routed experts on one rank of `expert_parallel`.

    t0 + smoothmax_p(bytes of the experts read and of the activations / (BW·eb), FLOPs of whole tiles /
    (F·ec)) + te per expert read. `intermediate` is what one rank holds.
    """

    bandwidth_bytes_per_s: float
    flops_per_s: float
    weight_bytes: float
    activation_bytes: float
    start_us: float
    memory_efficiency: float
    compute_efficiency: float
    smoothness: float
    per_expert_us: float
    skew: float

    def time_us(
        self,
        tokens: ArrayLike,
        hidden: float,
        intermediate: float,
        per_token: float,
        experts: float,
        expert_parallel: float,
        matrices: int = 3,
        union: bool = True,
    ) -> Floats:
        """µs at `tokens` tokens; `union` False: the weights of one token's experts are read, whatever T."""
        t = np.asarray(tokens, dtype=np.float64)
        read = (
            experts_read(experts, per_token, t if union else np.minimum(t, 1.0), self.skew) / expert_parallel
        )
        assigned = t * per_token / expert_parallel
        size = matrices * hidden * intermediate
        moved = read * size * self.weight_bytes
        moved = moved + assigned * (hidden * (self.activation_bytes + 2.0) + 6.0 * intermediate)
        each = np.divide(assigned, read, out=np.zeros(t.shape), where=read > 0)
        flops = 2.0 * size * read * np.maximum(each, TILE_TOKENS)
        memory = moved / (self.bandwidth_bytes_per_s * self.memory_efficiency) * 1e6
        compute = flops / (self.flops_per_s * self.compute_efficiency) * 1e6
        total = self.start_us + smooth_max(memory, compute, self.smoothness) + self.per_expert_us * read
        return np.where(t > 0, total, 0.0)


@dataclass(frozen=True)
class MixtureOfExperts:
    """An `ExpertsForm` corrected by what was measured, as `Gemm` is.

    `shapes` (s, 6): hidden, intermediate, experts per token, experts, and the tensor and expert parallelism
    the kernel ran with. `log_ratio` (s, j) over `knots` tokens. Neighbours are sought in (hidden,
    intermediate and experts on the rank, experts per token ÷ experts, expert parallelism).
    """

    form: ExpertsForm
    knots: Floats
    shapes: Floats
    log_ratio: Floats
    _features: Floats = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        h, i, k, e, tp, ep = (
            (self.shapes[:, column] for column in range(6)) if len(self.shapes) else [np.ones(0)] * 6
        )
        object.__setattr__(self, "_features", _features(h, i / tp, k, e, ep))

    def time_us(
        self,
        tokens: ArrayLike,
        hidden: float,
        intermediate: float,
        per_token: float,
        experts: float,
        expert_parallel: float = 1,
        matrices: int = 3,
        union: bool = True,
    ) -> Floats:
        """µs of one layer's routed experts on one rank.
        `intermediate` per rank, `experts` of the whole layer.
        """
        args = (hidden, intermediate, per_token, experts, expert_parallel, matrices, union)
        values = self.form.time_us(self.knots, *args)
        if len(self.shapes):
            query = _features(
                *(np.array([x], float) for x in (hidden, intermediate, per_token, experts, expert_parallel))
            )
            low, high = self._features.min(axis=0), self._features.max(axis=0)
            weights = neighbour_weights(self._features, np.clip(query[0], low, high))
            values = values * np.exp(weights @ self.log_ratio)
        return loglog(tokens, self.knots, np.maximum.accumulate(values))


def _features(h: Floats, i: Floats, k: Floats, e: Floats, ep: Floats) -> Floats:
    columns = (h, i, e / ep, k / e, ep)
    logs = np.stack([np.log2(np.asarray(x, dtype=np.float64)) for x in columns], axis=1)
    return np.asarray(logs * _FEATURE_SCALE, dtype=np.float64)
