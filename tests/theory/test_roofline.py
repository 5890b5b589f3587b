"""No price beats the datasheet, and the step behaves as the roofline of each operator says."""

import itertools

import numpy as np
import pytest

from simulator.costs.cost import CostModel
from simulator.costs.profiles import ARITHMETIC, load_profile
from simulator.engines.presets import load_preset
from simulator.models.catalogue import load_model
from simulator.models.matrices import weight_bytes_each

TOKENS = np.array([1, 8, 64, 128, 256, 512, 1024, 2048, 4096, 8192])


def cost_of(
    model: str, weights: str | None = None, tensor_parallel: int = 1, kv_cache: str = "bf16"
) -> CostModel:
    target = load_model(model)
    target = target.with_weights(weights) if weights else target
    profile = load_profile("h100-sxm")
    return CostModel(target, None, profile, tensor_parallel, 1, 1, kv_cache, load_preset("vllm-0.33")[0])


@pytest.mark.parametrize("gpu_name", ["h100-sxm", "h200-sxm"])
@pytest.mark.parametrize("weights", ["bf16", "fp8", "fp8_block"])
def test_no_matrix_streams_faster_than_memory_or_multiplies_faster_than_the_peak(gpu_name, weights):
    """Every shape of the table whose weights exceed the L2 cache, at every number of tokens."""
    profile = load_profile(gpu_name)
    operator, peak = profile.gemm(weights), profile.flops_per_s(ARITHMETIC[weights])
    for n, k in operator.shapes:
        seconds = operator.time_us(n, k, TOKENS) * 1e-6
        size = n * k * weight_bytes_each(weights)
        assert (2 * TOKENS * n * k / seconds <= peak).all(), (n, k)
        if size > profile.gpu.l2_bytes:
            assert (size / seconds <= profile.bandwidth()).all(), (n, k)


@pytest.mark.parametrize("gpu_name", ["h100-sxm", "h200-sxm"])
@pytest.mark.parametrize(("kv_cache", "each"), [("bf16", 2), ("fp8", 1)])
def test_no_cache_is_read_faster_than_memory(gpu_name, kv_cache, each):
    profile = load_profile(gpu_name)
    attention = profile.attention(kv_cache)
    batch, context = np.meshgrid([1, 7, 64, 256, 1000], [64, 1000, 20_000, 131_072, 400_000])
    for dim in (64, 128, 256):
        read = batch * context * 8 * 2 * dim * each
        seconds = attention.time_us(batch, context, 8, dim) * 1e-6
        large = read > profile.gpu.l2_bytes
        assert (read[large] / seconds[large] <= profile.bandwidth()).all()


@pytest.mark.parametrize(
    ("model", "weights", "tensor_parallel"),
    [("llama-3.1-8b-instruct", None, 1), ("llama-3.3-70b-instruct", "fp8", 2), ("qwen3-32b", None, 4)],
)
def test_a_decode_step_takes_at_least_its_bytes_and_at_most_twice_that_at_batch_one(
    model, weights, tensor_parallel
):
    cost = cost_of(model, weights, tensor_parallel)
    read = cost.target.weight_bytes(tensor_parallel)
    read -= 2 * cost.target.embedding_parameters / tensor_parallel
    step = cost.target_pass(1, 1, 1024, 1, (), 1)
    least = read / cost.profile.bandwidth()
    assert least < step.gpu_s < 2.2 * least
    assert step.moved_bytes > 0.99 * read


def test_a_prefill_takes_at_least_its_arithmetic():
    cost = cost_of("llama-3.1-8b-instruct")
    pass_cost = cost.target_pass(8192, prefill_chunks=((8192, 0),), logit_rows=1, mode="eager")
    layers = cost.target.active_parameters - 2 * cost.target.embedding_parameters
    least = 2 * 8192 * layers / cost.profile.flops_per_s("bf16")
    assert least < pass_cost.gpu_s < 2.0 * least


@pytest.mark.parametrize("query_tokens", [2, 4, 8])
def test_long_contexts_make_verification_relatively_cheaper(query_tokens):
    """The cache is read once whatever K: arXiv 2408.11049."""
    cost = cost_of("llama-3.1-8b-instruct")
    batch = 64

    def ratio(context: int) -> float:
        verify = cost.target_pass(
            batch * query_tokens, batch, batch * context, query_tokens, (), batch * query_tokens
        )
        plain = cost.target_pass(batch, batch, batch * context, 1, (), batch)
        return verify.gpu_s / plain.gpu_s

    ratios = [ratio(context) for context in (256, 1024, 4096, 16384)]
    assert all(later < earlier for earlier, later in itertools.pairwise(ratios))
    assert ratios[-1] > 1.0


def test_verification_is_not_free_below_the_ridge():
    """A roofline over the whole step would say 1.0 at 256 tokens (ridge 295): it must not."""
    cost = cost_of("llama-3.1-8b-instruct")
    verify = cost.target_pass(256, 64, 64 * 1024, 4, (), 256)
    plain = cost.target_pass(64, 64, 64 * 1024, 1, (), 64)
    assert verify.gpu_s / plain.gpu_s > 1.1


def test_sparse_models_pay_for_verification_even_at_batch_one():
    sparse, dense = cost_of("mixtral-8x7b-instruct", None, 2), cost_of("llama-3.1-8b-instruct")

    def ratio(cost: CostModel) -> float:
        verify, plain = cost.target_pass(4, 1, 1024, 4, (), 4), cost.target_pass(1, 1, 1024, 1, (), 1)
        return verify.gpu_s / plain.gpu_s

    assert ratio(sparse) > 1.3
    assert ratio(dense) < 1.1


@pytest.mark.parametrize(
    ("model", "weights"), [("llama-3.1-8b-instruct", None), ("llama-3.3-70b-instruct", "fp8")]
)
def test_cost_without_padding_is_continuous_in_the_batch_but_for_tile_edges(model, weights):
    """A further request costs little, except where a kernel starts another tile of 128 or 256 tokens."""
    cost = cost_of(model, weights, 4)
    batches = np.arange(1, 700)
    steps = np.array([cost.target_pass(b, b, b * 1024, 1, (), b).gpu_s for b in batches.tolist()])
    growth = np.diff(steps) / steps[:-1]
    edges = np.isin(batches[1:], (65, 129, 257, 513))
    assert (growth >= -1e-12).all()
    assert (growth[~edges] < 0.025).all()
    assert (growth[edges] < 0.5).all()


def test_tensor_parallel_never_scales_better_than_the_number_of_ranks():
    total_s = cost_of("llama-3.3-70b-instruct", "fp8", 1).target_pass(32, 32, 32 * 2048, 1, (), 32).gpu_s
    for ranks in (2, 4, 8):
        part = cost_of("llama-3.3-70b-instruct", "fp8", ranks).target_pass(32, 32, 32 * 2048, 1, (), 32).gpu_s
        assert total_s / ranks < part < total_s
