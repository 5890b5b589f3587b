"""Price tables: what every part of a step costs, as arrays the compiled step reads.

The cost model (`cost.py`) prices one pass in seconds and explains it; the step needs millions of prices
and cannot call Python, so the same operators are evaluated once over grids. All prices are nanoseconds
(float64); the step rounds once, at the end of a stage.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

PRICE_PREFILL_PAIR_NS = 0
"""ns per (query, key) pair of full causal attention in a prefill chunk of the target: all layers, one GPU."""
PRICE_PREFILL_WINDOW_PAIR_NS = 1
"""ns per (query, key) pair inside the sliding window, all windowed layers; 0 without windowed layers."""
PRICE_WINDOW_TOKENS = 2
"""The dominant window in tokens; 0 when the target has no windowed layer."""
PRICE_PREFILL_CHUNK_NS = 3
"""Floor in ns per prefill chunk of the target (kernel starts of the attention of all layers)."""
PRICE_DRAFT_PREFILL_PAIR_NS = 4
PRICE_DRAFT_PREFILL_CHUNK_NS = 5
PRICE_LAUNCH_FULL_NS = 6
"""Extra ns of a target pass replayed as one full CUDA graph."""
PRICE_LAUNCH_PIECEWISE_NS = 7
"""Extra ns of a target pass run as piecewise CUDA graphs (attention launched between them)."""
PRICE_LAUNCH_EAGER_NS = 8
"""Extra ns of a target pass launched kernel by kernel."""
PRICE_DRAFT_LAUNCH_NS = 9
"""Extra ns on the GPU side of one drafter pass (its launch is host time: `HostCost.draft_pass_s`)."""
PRICE_COUNT = 10


class Prices(NamedTuple):
    """Every price of one (target, drafter, GPU, parallelism, serving engine) in ns; C-contiguous arrays.

    T = most tokens of a step, Q = most query tokens of one decode, B and C = knots of batch and context.
    Bilinear in (batch, mean context), in linear space; beyond the last knot the last interval is continued.
    """

    target_tokens: NDArray[np.float64]
    """(T+1,) token-wise operators of a target pass (linears, norms, small kernels, all-reduce); [0] = 0."""
    target_experts: NDArray[np.float64]
    """(T+1,) routed experts of a target pass at n real tokens; zeros for a dense model."""
    target_head: NDArray[np.float64]
    """(T+1,) lm head on n logit rows."""
    target_comm: NDArray[np.float64]
    """(T+1,) the all-reduce part of `target_tokens`, for breakdowns only: already counted there."""
    sample: NDArray[np.float64]
    """(T+1,) the accept stage on n rows: rejection and sampler (plain: sampler)."""
    attention: NDArray[np.float64]
    """(Q, B, C) decode or verify attention of the target, q = 1..Q query tokens per sequence (index q-1)."""
    draft_tokens: NDArray[np.float64]
    """(T+1,) as `target_tokens` for one drafter pass, with its fc; zeros without a drafter."""
    draft_experts: NDArray[np.float64]
    draft_head: NDArray[np.float64]
    draft_attention: NDArray[np.float64]
    """(Q, B, C)"""
    batch_knots: NDArray[np.int64]
    """(B,) ascending from 1, last >= the most sequences."""
    context_knots: NDArray[np.int64]
    """(C,) ascending tokens of MEAN context per sequence, multiples of 64, last >= the longest context."""
    scalars: NDArray[np.float64]
    """(PRICE_COUNT,) see the `PRICE_*` indices."""
