"""Price tables: what every part of a step costs, as arrays the compiled step reads.

The cost model (`cost.py`) prices one pass in seconds and explains it; the step needs millions of prices
and cannot call Python, so the same operators are evaluated once over grids. All prices are nanoseconds
(float64); the step rounds once, at the end of a stage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from simulator.costs.cost import CostModel
    from simulator.costs.pricing import NetworkPricing

PRICE_PREFILL_PAIR_NS = 0
"""ns per (query, key) pair of full causal attention in a prefill chunk
of the target: all layers, one GPU.
"""
PRICE_PREFILL_WINDOW_PAIR_NS = 1
"""ns per (query, key) pair inside the sliding window, all windowed layers; 0 without windowed layers."""
PRICE_WINDOW_TOKENS = 2
"""The dominant window in tokens; 0 when the target has no windowed layer."""
PRICE_PREFILL_START_NS = 3
"""ns once in a pass of the target with prefill chunks (kernel starts of the attention of all layers)."""
PRICE_DRAFT_PREFILL_PAIR_NS = 4
PRICE_DRAFT_PREFILL_START_NS = 5
PRICE_LAUNCH_FULL_NS = 6
"""Extra ns of a target pass replayed as one full CUDA graph."""
PRICE_LAUNCH_PIECEWISE_NS = 7
"""Extra ns of a target pass run as piecewise CUDA graphs (attention launched between them)."""
PRICE_LAUNCH_EAGER_NS = 8
"""Extra ns of a target pass launched kernel by kernel."""
PRICE_DRAFT_LAUNCH_NS = 9
"""Extra ns on the GPU side of one drafter pass (its launch is host time: `HostCost.draft_pass_s`)."""
PRICE_PREFILL_TOKEN_NS = 10
"""ns per token of prefill chunks in the attention of the target: what it moves in addition to its pairs."""
PRICE_DRAFT_PREFILL_TOKEN_NS = 11
PRICE_LAUNCHING_EAGER_NS = 12
"""ns that the host takes to launch a pass of the target kernel by kernel: it lasts at least as long."""
PRICE_SAMPLE_SEQUENCE_NS = 13
"""ns of the accept stage for each sequence in it, in addition to its rows."""
PRICE_DRAFT_LAUNCHING_NS = 14
"""ns that the host takes to launch a pass of the drafter that no graph holds; 0 where one does."""
PRICE_COUNT = 15

DENSE_QUERY_TOKENS = 17
"""Every number of query tokens up to this one is a knot: chains of up to 16 drafts are priced exactly."""


class Prices(NamedTuple):
    """Every price of one (target, drafter, GPU, parallelism, serving engine) in ns; C-contiguous arrays.

    T = most tokens of a step; Q, B and C = knots of query tokens, batch and context. Attention is bilinear
    in (batch, mean context) on the plane of one knot of query tokens, and linear between these planes. Beyond
    the last knot of batch or context the last interval is continued. The last knot of query tokens is the
    most that a decode can have.
    """

    target_tokens: NDArray[np.float64]
    """(T+1,) token-wise operators of a target pass (linears, norms, small kernels, all-reduce); [0] = 0."""
    target_experts: NDArray[np.float64]
    """(T+1,) routed experts of a target pass at n real tokens; zeros for a dense model."""
    target_head: NDArray[np.float64]
    """(T+1,) lm head on n logit rows."""
    target_comm: NDArray[np.float64]
    """(T+1,) the communication part of `target_tokens`, for breakdowns only: already counted there."""
    sample: NDArray[np.float64]
    """(T+1,) the accept stage on n rows: rejection and sampler (plain: sampler)."""
    attention: NDArray[np.float64]
    """(Q, B, C) decode or verify attention of the target, `query_knots` query tokens per sequence."""
    draft_tokens: NDArray[np.float64]
    """(T+1,) as `target_tokens` for one drafter pass, with its fc; zeros without a drafter."""
    draft_experts: NDArray[np.float64]
    draft_head: NDArray[np.float64]
    """(T+1,) as `target_head`, with what the drafter does to choose its tokens."""
    draft_attention: NDArray[np.float64]
    """(Q, B, C)"""
    query_knots: NDArray[np.int64]
    """(Q,) ascending from 1."""
    batch_knots: NDArray[np.int64]
    """(B,) ascending from 1, last >= the most sequences."""
    context_knots: NDArray[np.int64]
    """(C,) ascending tokens of MEAN context per sequence, multiples of 64, last >= the longest context."""
    scalars: NDArray[np.float64]
    """(PRICE_COUNT,) see the `PRICE_*` indices."""


def compile_prices(
    cost: CostModel,
    *,
    max_tokens: int,
    max_sequences: int,
    max_context_tokens: int,
    max_query_tokens: int,
    expert_union: bool = True,
) -> Prices:
    """Every price the step can ask for, from the functions that `CostModel` explains passes with.

    `max_tokens` of a step, `max_query_tokens` of one decode (nodes + 1). `expert_union` False: a further
    token reads no further expert (for attribution). Raises ValueError for limits below 1.
    """
    limits = {"max_tokens": max_tokens, "max_sequences": max_sequences, "max_query_tokens": max_query_tokens}
    for name, value in {**limits, "max_context_tokens": max_context_tokens}.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, not {value}")
    n = np.arange(max_tokens + 1, dtype=np.float64)
    batches, contexts = knots(max_sequences, 1), knots(-(-max_context_tokens // 64), 1) * 64
    target, draft = cost.target_pricing, cost.draft_pricing
    queries = query_knots(max_query_tokens)
    no_drafter = np.zeros(max_tokens + 1)
    return Prices(
        target_tokens=_ns(target.tokens_us(n)),
        target_experts=_ns(target.experts_us(n, expert_union)),
        target_head=_ns(target.head_us(n)),
        target_comm=_ns(target.communication_us(n)),
        sample=_ns(target.sample_us(n)),
        attention=_attention(target, batches, contexts, queries),
        draft_tokens=_ns(draft.tokens_us(n)) if draft else no_drafter,
        draft_experts=_ns(draft.experts_us(n, expert_union)) if draft else no_drafter,
        draft_head=_ns(draft.head_us(n) + draft.draft_sample_us(n)) if draft else no_drafter,
        draft_attention=_attention(draft, batches, contexts, queries),
        query_knots=queries,
        batch_knots=batches,
        context_knots=contexts,
        scalars=_scalars(cost),
    )


def knots(last: int, first: int) -> NDArray[np.int64]:
    """Return 1, 2, 3, 4, 6, 8, 12, 16, …: half octaves from `first`, at least two, the last one >= `last`."""
    octaves, power = [first], 1
    while octaves[-1] < max(last, 2):
        power *= 2
        octaves += [knot for knot in (power, power * 3 // 2) if knot > octaves[-1]]
    return np.array([k for i, k in enumerate(octaves) if i < 2 or octaves[i - 1] < last], dtype=np.int64)


def query_knots(max_query_tokens: int) -> NDArray[np.int64]:
    """Return the numbers of query tokens that have a plane: each one up to DENSE_QUERY_TOKENS, then half
    octaves (24, 32, 48, …), the last one >= `max_query_tokens`.
    """
    dense = np.arange(1, min(max_query_tokens, DENSE_QUERY_TOKENS) + 1)
    if max_query_tokens <= DENSE_QUERY_TOKENS:
        return dense
    octaves = knots(max_query_tokens, 1)
    return np.concatenate([dense, octaves[octaves > DENSE_QUERY_TOKENS]])


def _ns(us: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.ascontiguousarray(us * 1000.0, dtype=np.float64)


def _attention(
    pricing: NetworkPricing | None,
    batches: NDArray[np.int64],
    contexts: NDArray[np.int64],
    queries: NDArray[np.int64],
) -> NDArray[np.float64]:
    if pricing is None:
        return np.zeros((len(queries), len(batches), len(contexts)))
    planes = [pricing.attention_us(batches[:, None], contexts[None, :], q) for q in queries.tolist()]
    return _ns(np.stack(planes))


def _scalars(cost: CostModel) -> NDArray[np.float64]:
    target, draft = cost.target_pricing, cost.draft_pricing
    out = np.zeros(PRICE_COUNT)
    out[PRICE_PREFILL_PAIR_NS] = target.prefill_pair_us(False) + target.index_pair_us()
    out[PRICE_PREFILL_WINDOW_PAIR_NS] = target.prefill_pair_us(True)
    out[PRICE_PREFILL_START_NS] = target.prefill_start_us()
    out[PRICE_PREFILL_TOKEN_NS] = target.prefill_token_us()
    out[PRICE_LAUNCH_FULL_NS] = target.launch_us("full")
    out[PRICE_LAUNCH_PIECEWISE_NS] = target.launch_us("piecewise")
    out[PRICE_LAUNCH_EAGER_NS] = target.launch_us("eager")
    out[PRICE_LAUNCHING_EAGER_NS] = target.launching_us()
    out[PRICE_SAMPLE_SEQUENCE_NS] = cost.profile.sampler_sequence_us(cost.sampling) / cost.attention_dp
    if draft is not None:
        out[PRICE_DRAFT_PREFILL_PAIR_NS] = draft.prefill_pair_us(False) + draft.prefill_pair_us(True)
        out[PRICE_DRAFT_PREFILL_START_NS] = draft.prefill_start_us()
        out[PRICE_DRAFT_PREFILL_TOKEN_NS] = draft.prefill_token_us()
        out[PRICE_DRAFT_LAUNCH_NS] = cost.draft_launch_us
        out[PRICE_DRAFT_LAUNCHING_NS] = cost.draft_launching_us
    out *= 1000.0
    out[PRICE_WINDOW_TOKENS] = target.window_tokens
    return out
