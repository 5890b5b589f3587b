"""Applies values of uncertain inputs to a variant: prices, host times, memory. Nothing is compiled again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from experiments.sensitivity.inputs import DRAFT_GPU, HOST, KERNELS, KV, OUTPUTS, PROMPTS
from simulator.costs.prices import (
    PRICE_DRAFT_PREFILL_PAIR_NS,
    PRICE_DRAFT_PREFILL_START_NS,
    PRICE_DRAFT_PREFILL_TOKEN_NS,
    PRICE_PREFILL_PAIR_NS,
    PRICE_PREFILL_START_NS,
    PRICE_PREFILL_TOKEN_NS,
    PRICE_PREFILL_WINDOW_PAIR_NS,
    Prices,
)
from simulator.costs.pricing import NetworkPricing
from simulator.numerics.arrays import Floats
from simulator.runs.variant import CompiledVariant
from simulator.traffic.workload import Requests
from simulator.units import NS_PER_S

_PREFILL = [
    PRICE_PREFILL_PAIR_NS,
    PRICE_PREFILL_WINDOW_PAIR_NS,
    PRICE_PREFILL_START_NS,
    PRICE_PREFILL_TOKEN_NS,
]
_DRAFT_PREFILL = [PRICE_DRAFT_PREFILL_PAIR_NS, PRICE_DRAFT_PREFILL_START_NS, PRICE_DRAFT_PREFILL_TOKEN_NS]


class AdjustableVariant:
    """A variant whose parameters can be changed any number of times."""

    def __init__(self, variant: CompiledVariant) -> None:
        self.variant = variant
        tokens = len(variant.prices.target_tokens)
        cost = variant.setup.cost
        self.target, self.drafter = (
            _parts(pricing, tokens) for pricing in (cost.target_pricing, cost.draft_pricing)
        )

    def adjusted(self, parameters: Mapping[str, float]) -> CompiledVariant:
        """The variant with factors on kernels and memory, and host times in s.

        Other parameters are left alone.
        """
        variant = self.variant
        factors = {
            name: parameters[name] for name in (*KERNELS, DRAFT_GPU) if parameters.get(name, 1.0) != 1.0
        }
        if factors:
            variant = replace(variant, setup=replace(variant.setup, prices=self.prices(factors)))
        # Each group of data-parallel attention has a host of its own for its share of the requests.
        groups = variant.scenario.hardware.attention_dp
        changes: dict[str, float] = {
            setting: parameters[name] * NS_PER_S / (groups if "per_sequence" in name else 1)
            for name, setting in HOST.items()
            if name in parameters
        }
        if parameters.get(KV, 1.0) != 1.0:
            changes["total_blocks"] = int(variant.settings.total_blocks * parameters[KV])
        return replace(variant, settings=replace(variant.settings, **changes)) if changes else variant  # type: ignore[arg-type]

    def prices(self, factors: Mapping[str, float]) -> Prices:
        """The tables with operators scaled, target and drafter alike; `draft_gpu` scales the drafter's."""
        prices = self.variant.prices
        changes = [factors.get(name, 1.0) - 1 for name in ("linear", "small", "allreduce")]
        attention, experts = (factors.get(name, 1.0) for name in ("attention", "experts"))
        draft = factors.get(DRAFT_GPU, 1.0)
        extra_ns, extra_draft_ns = (
            sum(change * part for change, part in zip(changes, parts, strict=True))
            for parts in (self.target, self.drafter)
        )
        linear, _, reduce = (1 + change for change in changes)
        scalars = prices.scalars.copy()
        scalars[_PREFILL] *= attention
        scalars[_DRAFT_PREFILL] *= attention * draft
        return prices._replace(
            target_tokens=prices.target_tokens + extra_ns,
            target_comm=prices.target_comm * reduce,
            target_experts=prices.target_experts * experts,
            target_head=prices.target_head * linear,
            sample=prices.sample * factors.get("sampler", 1.0),
            attention=prices.attention * attention,
            draft_tokens=(prices.draft_tokens + extra_draft_ns) * draft,
            draft_experts=prices.draft_experts * experts * draft,
            draft_head=prices.draft_head * linear * draft,
            draft_attention=prices.draft_attention * attention * draft,
            scalars=scalars,
        )


def _parts(pricing: NetworkPricing | None, tokens: int) -> tuple[Floats, Floats, Floats]:
    """Linear layers, small kernels and all-reduces of a pass by its tokens, ns; zeros without a network."""
    count = np.arange(tokens, dtype=np.float64)
    if pricing is None:
        return 0 * count, 0 * count, 0 * count
    us = pricing.matrices_us(count), pricing.small_us(count), pricing.communication_us(count)
    return us[0] * 1000.0, us[1] * 1000.0, us[2] * 1000.0


def with_lengths(requests: Requests, parameters: Mapping[str, float]) -> Requests:
    """The requests with prompts and outputs longer or shorter, one token at least."""
    prompts, outputs = (
        np.maximum(np.rint(tokens * parameters.get(name, 1.0)), 1).astype(np.int64)
        for name, tokens in ((PROMPTS, requests.prompt_tokens), (OUTPUTS, requests.output_tokens))
    )
    return requests._replace(prompt_tokens=prompts, output_tokens=outputs)
