"""The cost model: terms that add up, and compiled tables that say the same as the explanation."""

from dataclasses import replace

import numpy as np
import pytest

from simulator.costs.cost import CostModel, total
from simulator.costs.pass_cost import TERMS, PassCost
from simulator.costs.prices import (
    PRICE_COUNT,
    PRICE_DRAFT_LAUNCH_NS,
    PRICE_DRAFT_PREFILL_PAIR_NS,
    PRICE_DRAFT_PREFILL_START_NS,
    PRICE_DRAFT_PREFILL_TOKEN_NS,
    PRICE_LAUNCH_EAGER_NS,
    PRICE_LAUNCH_FULL_NS,
    PRICE_LAUNCH_PIECEWISE_NS,
    PRICE_LAUNCHING_EAGER_NS,
    PRICE_PREFILL_PAIR_NS,
    PRICE_PREFILL_START_NS,
    PRICE_PREFILL_TOKEN_NS,
    PRICE_PREFILL_WINDOW_PAIR_NS,
    PRICE_WINDOW_TOKENS,
    compile_prices,
    knots,
)
from simulator.costs.profiles import load_profile
from simulator.engines.presets import load_preset
from simulator.gpu import gpu
from simulator.models.catalogue import load_drafter, load_model, targets

_ROUNDING_NS = 1e-4
"""What logarithms and exponentials of a table leave of a second, relative 1e-13."""

CASES = {
    "dense": ("llama-3.3-70b-instruct", "fp8", 4, "eagle3-llama-3.3-70b", "eagle3"),
    "small": ("llama-3.1-8b-instruct", None, 1, "llama-3.2-1b-instruct", "draft_model"),
    "moe": ("mixtral-8x7b-instruct", None, 2, None, None),
    "mla": ("deepseek-v3", None, 8, "mtp-deepseek-v3", "mtp"),
    "sparse": ("deepseek-v3.2", None, 8, None, None),
    "compressed": ("deepseek-v4-flash", None, 8, None, None),
    "sliding": ("gpt-oss-120b", None, 2, None, None),
    "linear": ("qwen3-next-80b-a3b-instruct", None, 2, None, None),
}


def cost_model(
    case: str, gpu_name: str = "h100-sxm", preset: str = "vllm-0.33", kv_cache: str = "fp8"
) -> CostModel:
    name, weights, tensor_parallel, drafter, method = CASES[case]
    target = load_model(name)
    target = target.with_weights(weights) if weights else target
    draft = load_drafter(drafter, target, method) if drafter else None
    profile = load_profile(gpu_name)
    return CostModel(
        target, draft, profile, tensor_parallel, 1, tensor_parallel, kv_cache, load_preset(preset)[0]
    )


@pytest.mark.parametrize("case", CASES)
def test_terms_of_a_pass_add_up_operator_by_operator(case):
    cost = cost_model(case)
    args = (300, 64, 64 * 2000, 4, ((44, 512),), 257, "eager")
    ops = cost.explain_pass(*args)
    pass_cost = cost.target_pass(*args)
    assert pass_cost == total(ops)
    assert pass_cost.duration_s == pytest.approx(sum(part.duration_s for _, part in ops))
    assert pass_cost.duration_s == pytest.approx(sum(getattr(pass_cost, term) for term in TERMS))
    assert all(getattr(part, term) >= -1e-15 for _, part in ops for term in TERMS)
    assert pass_cost.moved_bytes > 0
    assert pass_cost.flops > 0


def test_a_pass_without_a_graph_lasts_until_the_host_has_launched_it():
    # SGLang: Llama-3-8B 8.2 and 9.3 ms (sgl-project/sglang#1401), DeepSeek-V3 82.6 ms (#12160).
    for case, low_s, high_s in (("small", 0.008, 0.0095), ("mla", 0.07, 0.095)):
        cost = cost_model(case, preset="sglang-0.5")
        waits = {mode: cost.target_pass(1, 1, 128, mode=mode) for mode in ("full", "eager")}
        exposed_s = cost.preset.host.exposed_s(1)
        assert waits["full"].host_s == pytest.approx(exposed_s)
        assert low_s < waits["eager"].duration_s - exposed_s < high_s
        large = cost.target_pass(8192, prefill_chunks=((8192, 0),), mode="eager")
        assert large.host_s == pytest.approx(cost.preset.host.exposed_s(1)), "the GPU takes longer"
        prices = compile_prices(
            cost, max_tokens=8, max_sequences=1, max_context_tokens=256, max_query_tokens=1
        )
        calls_s = cost.target_pricing.network.calls * cost.preset.host.eager_call_s
        assert prices.scalars[PRICE_LAUNCHING_EAGER_NS] == pytest.approx(calls_s * 1e9)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("query_tokens", [1, 4])
def test_compiled_tables_price_a_pass_as_its_explanation_does(case, query_tokens):
    cost = cost_model(case)
    prices = compile_prices(
        cost, max_tokens=2048, max_sequences=256, max_context_tokens=40_000, max_query_tokens=4
    )
    for batch_at, context_at, mode, launch in (
        (0, 3, "full", PRICE_LAUNCH_FULL_NS),
        (9, 8, "piecewise", PRICE_LAUNCH_PIECEWISE_NS),
        (14, 14, "eager", PRICE_LAUNCH_EAGER_NS),
    ):
        batch, context = int(prices.batch_knots[batch_at]), int(prices.context_knots[context_at])
        tokens = batch * query_tokens
        compiled = (
            prices.target_tokens[tokens]
            + prices.target_experts[tokens]
            + prices.target_head[tokens]
            + prices.attention[query_tokens - 1, batch_at, context_at]
            + prices.scalars[launch]
        )
        explained = cost.target_pass(tokens, batch, batch * context, query_tokens, (), tokens, mode)
        assert compiled == pytest.approx(explained.gpu_s * 1e9, rel=1e-12)
        assert prices.sample[tokens] == pytest.approx(cost.sample(tokens).gpu_s * 1e9, rel=1e-12)
        if cost.drafter is not None:
            drafted = (
                prices.draft_tokens[tokens]
                + prices.draft_experts[tokens]
                + prices.draft_head[batch]
                + prices.draft_attention[query_tokens - 1, batch_at, context_at]
                + prices.scalars[PRICE_DRAFT_LAUNCH_NS]
            )
            pass_cost = cost.draft_pass(tokens, batch, batch * context, query_tokens, (), batch)
            assert drafted == pytest.approx(pass_cost.gpu_s * 1e9, rel=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_compiled_tables_price_prefill_as_its_explanation_does(case):
    cost = cost_model(case)
    prices = compile_prices(
        cost, max_tokens=2048, max_sequences=8, max_context_tokens=40_000, max_query_tokens=1
    )
    chunks = ((512, 0), (300, 4096))
    tokens = 812
    pairs = sum(n * (start + n / 2) for n, start in chunks)
    windowed = sum(n * min(start + n / 2, prices.scalars[PRICE_WINDOW_TOKENS]) for n, start in chunks)
    attention = pairs * prices.scalars[PRICE_PREFILL_PAIR_NS] + prices.scalars[PRICE_PREFILL_START_NS]
    attention += tokens * prices.scalars[PRICE_PREFILL_TOKEN_NS]
    attention += windowed * prices.scalars[PRICE_PREFILL_WINDOW_PAIR_NS]
    compiled = (
        attention + prices.target_tokens[tokens] + prices.target_experts[tokens] + prices.target_head[2]
    )
    explained = cost.target_pass(tokens, prefill_chunks=chunks, logit_rows=2)
    assert compiled == pytest.approx(explained.gpu_s * 1e9, rel=1e-12)
    if cost.drafter is not None:
        drafted = pairs * prices.scalars[PRICE_DRAFT_PREFILL_PAIR_NS]
        drafted += prices.scalars[PRICE_DRAFT_PREFILL_START_NS] + prices.draft_tokens[tokens]
        drafted += tokens * prices.scalars[PRICE_DRAFT_PREFILL_TOKEN_NS]
        drafted += prices.draft_experts[tokens] + prices.scalars[PRICE_DRAFT_LAUNCH_NS]
        pass_cost = cost.draft_pass(tokens, prefill_chunks=chunks)
        assert drafted == pytest.approx(pass_cost.gpu_s * 1e9, rel=1e-12)


def test_prompts_of_one_step_share_the_start_of_attention():
    """FlashAttention takes them in one kernel: a second prompt adds what it computes and moves."""
    cost = cost_model("dense")
    pass_cost = dict(cost.explain_pass(512, prefill_chunks=((512, 0),)))["attention (prefill)"]
    two = dict(cost.explain_pass(512, prefill_chunks=((256, 0), (256, 0))))["attention (prefill)"]
    assert two.launch_s == pass_cost.launch_s > 0
    assert two.memory_s == pass_cost.memory_s > 0
    assert two.compute_s == pytest.approx(pass_cost.compute_s / 2)


def test_between_knots_the_compiled_attention_stays_close():
    cost = cost_model("dense")
    prices = compile_prices(
        cost, max_tokens=64, max_sequences=300, max_context_tokens=131_072, max_query_tokens=1
    )
    rng = np.random.default_rng(1)
    for batch, context in zip(rng.integers(1, 300, 200), rng.integers(64, 131_072, 200), strict=True):
        b = np.searchsorted(prices.batch_knots, batch, side="right") - 1
        c = np.searchsorted(prices.context_knots, context, side="right") - 1
        b, c = min(b, len(prices.batch_knots) - 2), min(c, len(prices.context_knots) - 2)
        x = (batch - prices.batch_knots[b]) / np.diff(prices.batch_knots)[b]
        y = (context - prices.context_knots[c]) / np.diff(prices.context_knots)[c]
        corner = prices.attention[0, b : b + 2, c : c + 2]
        linear = np.array([1 - x, x]) @ corner @ np.array([1 - y, y])
        exact = float(cost.target_pricing.attention_us(batch, context, 1)) * 1e3
        assert linear == pytest.approx(exact, rel=0.06)


@pytest.mark.parametrize("case", CASES)
def test_prices_are_finite_grow_with_tokens_and_cost_nothing_for_nothing(case):
    prices = compile_prices(
        cost_model(case), max_tokens=8192, max_sequences=1024, max_context_tokens=131_072, max_query_tokens=8
    )
    for name in ("target_tokens", "target_experts", "target_head", "sample", "draft_tokens", "draft_head"):
        values = getattr(prices, name)
        assert values.shape == (8193,), name
        assert values[0] == 0.0, name
        assert (np.diff(values) >= 0).all(), name
    for values in (prices.attention, prices.draft_attention):
        assert values.shape == (8, len(prices.batch_knots), len(prices.context_knots))
        assert (np.diff(values, axis=0) >= -_ROUNDING_NS).all()
        assert (np.diff(values, axis=1) >= -_ROUNDING_NS).all()
    assert all(np.isfinite(values).all() and values.flags.c_contiguous for values in prices)
    assert (prices.target_comm <= prices.target_tokens).all()
    assert prices.scalars.shape == (PRICE_COUNT,)


@pytest.mark.parametrize("name", targets())
def test_every_target_of_the_catalogue_has_prices(name):
    """On two GPUs and eight ranks: finite, positive, and a step at batch 1 within the GPU's bandwidth."""
    target, preset = load_model(name), load_preset("vllm-0.33")[0]
    for gpu_name, ranks in (("h100-sxm", 1), ("h100-sxm", 8), ("a100-sxm-80gb", 2)):
        cost = CostModel(target, None, load_profile(gpu_name), ranks, 1, 1, "bf16", preset)
        limits = {"max_tokens": 64, "max_sequences": 8, "max_context_tokens": 4096, "max_query_tokens": 4}
        prices = compile_prices(cost, **limits)
        assert all(np.isfinite(values).all() for values in prices)
        assert (prices.attention > 0).all()
        assert (prices.target_tokens[1:] > 0).all()
        pass_cost = cost.target_pass(1, 1, 1024, 1, (), 1)
        assert pass_cost.moved_bytes / pass_cost.gpu_s < cost.profile.bandwidth()


def test_without_a_drafter_every_draft_price_is_zero():
    prices = compile_prices(
        cost_model("moe"), max_tokens=16, max_sequences=4, max_context_tokens=100, max_query_tokens=2
    )
    assert not prices.draft_tokens.any()
    assert not prices.draft_attention.any()
    assert not prices.draft_head.any()
    assert prices.scalars[PRICE_DRAFT_LAUNCH_NS] == 0.0
    with pytest.raises(ValueError, match="no drafter"):
        cost_model("moe").draft_pass(4)


def test_without_the_union_experts_cost_less_beyond_one_token():
    limits = {"max_tokens": 64, "max_sequences": 4, "max_context_tokens": 100, "max_query_tokens": 2}
    union = compile_prices(cost_model("moe"), **limits)
    alone = compile_prices(cost_model("moe"), **limits, expert_union=False)
    assert alone.target_experts[1] == pytest.approx(union.target_experts[1])
    assert alone.target_experts[16] < 0.6 * union.target_experts[16]
    assert (alone.target_tokens == union.target_tokens).all()


def test_one_expert_for_every_token_costs_as_a_dense_layer_reads():
    """X = 1, k = 1: the experts read are one, whatever the tokens."""
    cost = cost_model("moe")
    layers = tuple(replace(x, experts=replace(x.experts, count=1, per_token=1)) for x in cost.target.layers)
    single = replace(cost, target=replace(cost.target, layers=layers))
    union, alone = (single.target_pricing.experts_us(np.arange(9), flag) for flag in (True, False))
    assert union == pytest.approx(alone)


@pytest.mark.parametrize(
    ("last", "expected"), [(1, [1, 2]), (2, [1, 2]), (3, [1, 2, 3]), (5, [1, 2, 3, 4, 6])]
)
def test_knots_reach_the_last_value(last, expected):
    assert knots(last, 1).tolist() == expected


def test_limits_below_one_are_refused():
    with pytest.raises(ValueError, match="max_sequences"):
        compile_prices(
            cost_model("small"), max_tokens=8, max_sequences=0, max_context_tokens=9, max_query_tokens=1
        )


def test_batch_one_is_bound_by_memory_and_a_long_prefill_by_arithmetic():
    cost = cost_model("small")
    assert cost.target_pass(1, 1, 1000, 1, (), 1).bound == "memory"
    assert cost.target_pass(8192, prefill_chunks=((8192, 0),), logit_rows=1).bound == "compute"
    assert PassCost(host_s=1.0).bound == "host"


def test_more_ranks_trade_memory_for_communication():
    single, four = (replace(cost_model("dense"), tensor_parallel=tp) for tp in (1, 4))
    alone, shared = (x.target_pass(64, 64, 64 * 1024, 1, (), 64) for x in (single, four))
    assert alone.communication_s == 0.0
    assert shared.communication_s > 0.0
    assert shared.memory_s < 0.4 * alone.memory_s


@pytest.mark.parametrize("name", ["h100-pcie", "h100-nvl", "a100-sxm-80gb", "h200-sxm"])
def test_a_pass_on_every_gpu_respects_its_bandwidth(name):
    cost = cost_model("small", name, kv_cache="bf16")
    seconds = cost.target_pass(1, 1, 1000, 1, (), 1).gpu_s
    read = cost.target.weight_bytes() - 2 * cost.target.embedding_parameters
    assert read / seconds < gpu(name).hbm_bandwidth_bytes_per_s
    assert read / seconds > 0.55 * gpu(name).hbm_bandwidth_bytes_per_s


def test_compiling_needs_no_scipy():
    import subprocess
    import sys

    code = """
import sys
from tests.unit.test_cost import cost_model
from simulator.costs.prices import compile_prices
compile_prices(
    cost_model("dense"), max_tokens=8192, max_sequences=1024, max_context_tokens=131072, max_query_tokens=8
)
assert not {"scipy", "numba", "pyarrow"} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
