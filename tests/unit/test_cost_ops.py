"""Operators: tables are read where they know a shape, and behave like kernels everywhere else."""

import numpy as np
import pytest

from simulator.costs.ops.attention import TILE_ROWS
from simulator.costs.ops.collectives import AllReduce
from simulator.costs.ops.experts import experts_read
from simulator.costs.ops.gemm import Gemm, GemmForm
from simulator.costs.ops.numeric import grid_lookup, loglog, neighbour_weights, smooth_max
from simulator.costs.profiles import Profile, load_profile

TOKENS = np.arange(0, 9000)


@pytest.fixture(scope="module")
def h100() -> Profile:
    return load_profile("h100-sxm")


def test_smooth_max_lies_between_the_maximum_and_the_sum():
    x, y = np.array([0.0, 1.0, 3.0]), np.array([2.0, 1.0, 1e-9])
    assert smooth_max(x, y, 1.0) == pytest.approx(x + y)
    assert smooth_max(x, y, 60.0) == pytest.approx(np.maximum(x, y), rel=0.02)
    assert smooth_max(0.0, 0.0, 2.0) == 0.0


def test_loglog_is_exact_at_knots_and_proportional_beyond():
    knots, values = np.array([1.0, 8.0, 64.0]), np.array([2.0, 4.0, 16.0])
    assert loglog(knots, knots, values) == pytest.approx(values)
    assert loglog(128, knots, values) == pytest.approx(32.0)
    assert loglog(0, knots, values) == 0.0
    assert loglog(np.sqrt(8.0), knots, values) == pytest.approx(np.sqrt(8.0))


def test_neighbours_of_a_known_shape_are_the_shape_itself():
    points = np.array([[1.0, 1.0], [2.0, 1.0], [5.0, 5.0]])
    assert neighbour_weights(points, np.array([2.0, 1.0])).tolist() == [0.0, 1.0, 0.0]
    between = neighbour_weights(points, np.array([1.5, 1.0]))
    assert between.sum() == pytest.approx(1.0)
    assert between[0] == pytest.approx(between[1])
    assert between[2] < 0.01


def test_grid_lookup_is_exact_for_a_multilinear_function():
    a, b = np.array([0.0, 1.0, 4.0]), np.array([0.0, 2.0])
    values = 3.0 + 2.0 * a[:, None] - b[None, :] + 0.5 * a[:, None] * b[None, :]
    at = np.array([0.3, 2.5, 9.0]), np.array([1.0, 0.2, 2.0])
    inside = np.minimum(at[0], 4.0)
    expected = 3.0 + 2.0 * inside - at[1] + 0.5 * inside * at[1]
    assert grid_lookup(values, (a, b), at) == pytest.approx(expected)


@pytest.mark.parametrize("weights", ["bf16", "fp8", "fp8_block", "int4", "mxfp4"])
@pytest.mark.parametrize("shape", [(10240, 8192), (57344, 8192), (8192, 28672), (256, 7168), (128256, 4096)])
def test_a_matrix_costs_nothing_for_no_token_and_never_less_for_more(h100, weights, shape):
    time = h100.gemm(weights).time_us(*shape, TOKENS)
    assert time[0] == 0.0
    assert (np.diff(time) >= 0).all()
    assert np.isfinite(time).all()
    assert time[1] > 1.0


def test_a_measured_shape_is_read_from_the_table(h100):
    part = h100.parts["gemm/bf16"]
    row = part.table["shapes"].index([10240, 8192])
    time = h100.gemm("bf16").time_us(10240, 8192, part.table["knots"])
    assert time == pytest.approx(part.table["us"][row])


def test_four_bit_weights_read_fewer_bytes_but_multiply_in_bf16(h100):
    few, many = 1, 4096
    bf16, int4 = h100.gemm("bf16"), h100.gemm("int4")
    assert int4.time_us(28672, 8192, few) < 0.4 * bf16.time_us(28672, 8192, few)
    assert int4.time_us(28672, 8192, many) == pytest.approx(bf16.form.time_us(28672, 8192, many), rel=0.02)
    assert len(int4.shapes) == 0


def test_form_without_tables_stands_alone():
    form = GemmForm(3e12, 1e15, 2.0, 2.0, 3.0, 0.9, 0.8, 3.0, 0.0)
    operator = Gemm(form, np.array([1.0, 4096.0]), np.zeros((0, 2)), np.zeros((0, 2)))
    assert operator.time_us(8192, 8192, 1) == pytest.approx(form.time_us(8192, 8192, 1))


@pytest.mark.parametrize("kv_cache", ["bf16", "fp8"])
def test_the_cache_is_read_once_whatever_the_query_rows_of_a_tile(h100, kv_cache):
    attention = h100.attention(kv_cache)
    plain = attention.time_us(64, 4096, 8, 128, 4)
    assert attention.time_us(64, 4096, 8, 128, TILE_ROWS) == plain
    assert attention.time_us(64, 4096, 8, 128, TILE_ROWS + 1) > 1.05 * plain
    assert attention.time_us(64, 4096, 8, 128, 8 * TILE_ROWS) > 1.5 * plain


def test_attention_grows_with_batch_context_and_heads(h100):
    attention = h100.attention("bf16")
    batch, context = np.meshgrid([1, 3, 7, 64, 700, 1024], [1, 100, 5000, 100_000, 300_000], indexing="ij")
    time = attention.time_us(batch, context, 4, 128)
    assert (np.diff(time, axis=0) >= 0).all()
    assert (np.diff(time, axis=1) >= 0).all()
    assert (attention.time_us(batch, context, 8, 128) >= time).all()
    assert (attention.time_us(batch, context, 16, 128) >= attention.time_us(batch, context, 8, 128)).all()
    assert attention.time_us(0, 100, 4, 128) == 0.0


def test_a_wider_head_counts_as_more_heads(h100):
    attention = h100.attention("bf16")
    assert attention.time_us(32, 8192, 2, 256) == pytest.approx(attention.time_us(32, 8192, 4, 128))


def test_latent_attention_of_a_verify_pass_is_a_decode_with_more_heads(h100):
    latent = h100.latent("fp8")
    assert latent.time_us(32, 4096, 16 * 4) == latent.time_us(32, 4096, 64)
    assert latent.time_us(32, 4096, 512) == pytest.approx(4 * latent.time_us(32, 4096, 128))


def test_experts_read_has_the_right_ends():
    assert experts_read(128, 8, 1, 0.94) == pytest.approx(8)
    assert experts_read(128, 8, 10_000, 1.0) == pytest.approx(128)
    assert experts_read(1, 1, np.array([1, 7]), 1.0) == pytest.approx([1.0, 1.0])
    assert experts_read(128, 8, 0, 1.0) == 0.0


@pytest.mark.parametrize(
    ("experts", "per_token", "batch", "ratio"),
    [
        (128, 8, 1, 3.64),
        (128, 8, 8, 2.17),
        (128, 8, 32, 1.15),
        (256, 8, 1, 3.82),
        (256, 8, 8, 2.84),
        (256, 8, 32, 1.54),
    ],
)
def test_verification_of_a_sparse_model_reads_more_experts(experts, per_token, batch, ratio):
    """read(4n) / read(n) of independent uniform routing: arXiv 2505.19645."""
    read = experts_read(experts, per_token, np.array([batch, 4 * batch]), 1.0)
    assert read[1] / read[0] == pytest.approx(ratio, abs=0.01)


@pytest.mark.parametrize("weights", ["bf16", "fp8", "fp8_block", "int4", "mxfp4"])
def test_routed_experts_cost_more_for_more_tokens(h100, weights):
    time = h100.experts(weights).time_us(TOKENS, 4096, 1536, 8, 128)
    assert time[0] == 0.0
    assert (np.diff(time) >= 0).all()


def test_without_the_union_a_further_token_reads_no_expert(h100):
    operator = h100.experts("bf16")
    alone = operator.time_us([1, 16], 4096, 1536, 8, 128, union=False)
    union = operator.time_us([1, 16], 4096, 1536, 8, 128)
    assert alone[0] == pytest.approx(union[0])
    assert alone[1] < 0.7 * union[1]


def test_all_reduce_reads_the_next_larger_group():
    table = {2: (np.array([256.0, 1024.0]), np.array([4.0, 5.0])), 4: (np.array([256.0]), np.array([8.0]))}
    reduce = AllReduce(table, 17.0)
    assert reduce.time_us(256, 2) == pytest.approx(4.0)
    assert reduce.time_us(256, 3) == pytest.approx(8.0)
    assert reduce.time_us(256, 8) == pytest.approx(8.0)
    assert reduce.time_us([0, 256], 1).tolist() == [0.0, 0.0]
    assert reduce.time_us(2048, 2) == pytest.approx(10.0)


@pytest.mark.parametrize("name", ["h100-sxm", "h200-sxm"])
def test_an_engine_takes_its_own_kernels_where_they_were_measured(name):
    profile = load_profile(name)
    own, usual = profile.gemm("fp8", "trtllm"), profile.gemm("fp8", "vllm")
    assert usual is profile.gemm("fp8")
    tokens = np.array([1, 8, 256, 4096])
    ratio = own.time_us(6144, 4096, tokens) / usual.time_us(6144, 4096, tokens)
    assert ratio[:2] == pytest.approx([1, 1], abs=0.08)
    assert (ratio[2:] < 0.95).all()
    assert (np.diff(own.time_us(8192, 8192, np.arange(0, 2000, 64))) > 0).all()

    small, middle = 16_384, 2 << 20
    assert profile.allreduce("trtllm").time_us(small, 8) < 0.8 * profile.allreduce().time_us(small, 8)
    assert profile.allreduce("trtllm").time_us(middle, 8) > 1.3 * profile.allreduce().time_us(middle, 8)
    assert profile.allreduce("sglang").tables.keys() == {2, 4, 8}
