"""What the price of a step must be like: continuous without padding, dense with one expert."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.costs.cost import CostModel
from simulator.costs.prices import compile_prices
from simulator.costs.profiles import load_profile
from simulator.engines.presets import load_preset
from simulator.models.catalogue import load_model
from simulator.models.matrices import Experts
from simulator.models.model import Model
from simulator.runs.variant import CompiledVariant
from tests.runs import drafting_variant, plain_variant, small_scenario, with_prices

SEQUENCES = np.arange(1, 513)
CONTEXT = 1000
TILE_TOKENS = (64, 128, 256, 512)
"""Where matrix kernels go over to another tile: a real step in their measured times."""


def variant_of(speculative: bool, padding: bool, draft_length: int = 3) -> CompiledVariant:
    scenario = small_scenario(
        {
            "engine.max_num_seqs": len(SEQUENCES),
            "speculation.eagle3.draft_length": draft_length,
            "run.mechanisms.graph_padding": padding,
        }
    )
    return drafting_variant(scenario) if speculative else plain_variant(scenario)


def smooth(variant: CompiledVariant) -> CompiledVariant:
    """The variant on prices that are straight lines in tokens, rows, sequences and context."""
    p = variant.prices
    lines = {}
    for index, name in enumerate(p._fields):
        table = getattr(p, name)
        if name == "scalars" or name.endswith("_knots"):
            continue
        if table.ndim == 1:
            lines[name] = np.where(np.arange(len(table)) > 0, 1e6 / (index + 1), 0.0)
            lines[name] = lines[name] + 700.0 * (index + 1) * np.arange(len(table))
        else:
            lines[name] = np.ascontiguousarray(
                np.broadcast_to(p.batch_knots[:, None] * p.context_knots[None, :] * 0.3, table.shape)
            )
    return with_prices(variant, p._replace(**lines))


def step_ns(variant: CompiledVariant, draft_length: int | None = None) -> np.ndarray:
    steps = [variant.step_times(int(n), CONTEXT, draft_length) for n in SEQUENCES]
    return np.array(
        [sum(step[name] for name in ("host", "verify", "accept", "draft")) * 1e9 for step in steps]
    )


@pytest.mark.parametrize("speculative", [False, True])
def test_without_padding_and_cap_a_step_is_as_continuous_as_its_operators(speculative: bool) -> None:
    """On straight operators the step is straight in the batch, far beyond the last graph; each of its stages
    is rounded to 1 ns, so second differences may be a few."""
    bends = np.abs(np.diff(step_ns(smooth(variant_of(speculative, padding=False))), 2))
    assert bends.max() < 8
    padded = np.abs(np.diff(step_ns(smooth(variant_of(speculative, padding=True))), 2))
    assert padded.max() > 1000
    assert (padded > 1000).sum() > 20


@pytest.mark.parametrize("draft_length", [1, 3])
def test_real_steps_jump_only_where_kernels_do(draft_length: int) -> None:
    """Without padding, a further request costs less than 1.2 % more but where the tokens of a pass go over to
    another tile of the matrix kernels; with padding there are jumps at graph sizes too."""
    batch = SEQUENCES[15:]
    query = draft_length + 1

    def jumps(padding: bool) -> list[int]:
        times = step_ns(variant_of(True, padding, draft_length))[15:]
        return batch[:-1][np.diff(times) > 0.012 * times[:-1]].tolist()

    at_tiles = {tokens // rows for tokens in TILE_TOKENS for rows in (1, query)}
    assert set(jumps(padding=False)) <= at_tiles
    assert len(set(jumps(padding=True)) - at_tiles) > 3


def with_one_expert(dense: Model) -> Model:
    """The model with every MLP as a routed layer of a single expert that each token takes."""
    (layer,) = dense.layers
    mlp = {linear.name: linear for linear in layer.linears}
    experts = Experts(1, 1, dense.hidden_size, mlp["down"].in_features, 3, mlp["down"].weights)
    return replace(dense, layers=(replace(layer, linears=(), experts=experts),))


@pytest.mark.parametrize("weights", ["bf16", "fp8", "fp8_block"])
@pytest.mark.parametrize("tensor_parallel", [1, 2])
def test_one_expert_for_every_token_is_a_dense_model(weights: str, tensor_parallel: int) -> None:
    dense = load_model("llama-3.1-8b-instruct").with_weights(weights)
    routed = with_one_expert(dense)
    assert routed.parameters == routed.active_parameters == dense.parameters
    assert routed.weight_bytes(tensor_parallel) == dense.weight_bytes(tensor_parallel)
    prices = [
        compile_prices(
            CostModel(
                target=model,
                drafter=None,
                profile=load_profile("h100-sxm"),
                tensor_parallel=tensor_parallel,
                expert_parallel=1,
                draft_tensor_parallel=1,
                kv_cache="bf16",
                preset=load_preset("vllm-0.33")[0],
            ),
            max_tokens=1024,
            max_sequences=64,
            max_context_tokens=4096,
            max_query_tokens=4,
        )
        for model in (dense, routed)
    ]
    for name, table in prices[0]._asdict().items():
        assert np.array_equal(table, getattr(prices[1], name)), name
    assert not prices[1].target_experts.any()


def test_two_experts_of_which_each_token_takes_one_are_not_dense() -> None:
    """The control: with something to route, more tokens read more weights."""
    dense = load_model("llama-3.1-8b-instruct")
    (layer,) = with_one_expert(dense).layers
    assert layer.experts is not None
    two = replace(layer.experts, count=2, intermediate=layer.experts.intermediate // 2)
    routed = replace(dense, layers=(replace(layer, experts=two),))
    cost = CostModel(
        target=routed,
        drafter=None,
        profile=load_profile("h100-sxm"),
        tensor_parallel=1,
        expert_parallel=1,
        draft_tensor_parallel=1,
        kv_cache="bf16",
        preset=load_preset("vllm-0.33")[0],
    )
    limits = {"max_tokens": 64, "max_sequences": 8, "max_context_tokens": 4096, "max_query_tokens": 4}
    assert compile_prices(cost, **limits).target_experts[1:].min() > 0
