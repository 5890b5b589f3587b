"""Cost models that are wrong on purpose: what a comparison with measurements must notice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.costs.prices import (
    PRICE_DRAFT_LAUNCH_NS,
    PRICE_DRAFT_PREFILL_PAIR_NS,
    PRICE_DRAFT_PREFILL_START_NS,
    PRICE_DRAFT_PREFILL_TOKEN_NS,
    Prices,
)
from simulator.runs.variant import CompiledVariant

_OF_DRAFTS = [
    PRICE_DRAFT_LAUNCH_NS,
    PRICE_DRAFT_PREFILL_PAIR_NS,
    PRICE_DRAFT_PREFILL_START_NS,
    PRICE_DRAFT_PREFILL_TOKEN_NS,
]


def with_prices(variant: CompiledVariant, prices: Prices) -> CompiledVariant:
    """The variant at other prices."""
    return replace(variant, setup=replace(variant.setup, prices=prices))


def verify_free(variant: CompiledVariant) -> CompiledVariant:
    """Verifying K drafts costs what decoding one token does: as if every step had a (K + 1)th of its rows."""
    rows = variant.settings.max_nodes + 1
    if rows == 1:
        return variant

    def thinned(table: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(table[-(-np.arange(len(table)) // rows)])

    prices = variant.prices
    attention = np.ascontiguousarray(np.broadcast_to(prices.attention[:1], prices.attention.shape))
    return with_prices(
        variant,
        prices._replace(
            target_tokens=thinned(prices.target_tokens),
            target_experts=thinned(prices.target_experts),
            target_head=thinned(prices.target_head),
            target_comm=thinned(prices.target_comm),
            sample=thinned(prices.sample),
            attention=attention,
        ),
    )


def drafts_free(variant: CompiledVariant) -> CompiledVariant:
    """Drafting takes no time, neither on the GPU nor on the host."""
    prices = variant.prices
    scalars = prices.scalars.copy()
    scalars[_OF_DRAFTS] = 0.0
    free = with_prices(
        variant,
        prices._replace(
            draft_tokens=np.zeros_like(prices.draft_tokens),
            draft_experts=np.zeros_like(prices.draft_experts),
            draft_head=np.zeros_like(prices.draft_head),
            draft_attention=np.zeros_like(prices.draft_attention),
            scalars=scalars,
        ),
    )
    return replace(free, settings=replace(free.settings, draft_pass_ns=0.0))


def kv_charged_per_query(variant: CompiledVariant) -> CompiledVariant:
    """The KV cache is read once for every query token in place of once for a request: K + 1 times."""
    prices = variant.prices
    queries = prices.query_knots.astype(np.float64)[:, None, None]
    return with_prices(
        variant, prices._replace(attention=np.ascontiguousarray(prices.attention[:1] * queries))
    )


WRONG = {
    "verify free": verify_free,
    "drafts free": drafts_free,
    "KV charged K + 1 times": kv_charged_per_query,
}
"""Name → what it does to a variant."""
