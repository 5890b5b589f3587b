"""Sizes of models: bytes per token and per rank against figures worked out elsewhere."""

import pytest

from simulator.models.catalogue import load_model
from simulator.models.model import Attention, Experts, LinearLayer, weight_bytes_each


def model(name, **changes):
    return load_model(name) if not changes else load_model(name).with_weights(**changes)


@pytest.mark.parametrize(
    ("name", "bytes_per_token"),
    [
        ("llama-3.1-8b-instruct", 131_072),  # 2 x 32 layers x 8 heads x 128 x 2 bytes
        ("llama-3.3-70b-instruct", 327_680),
        ("llama-3.2-1b-instruct", 32_768),
        ("qwen3-30b-a3b", 98_304),
        ("deepseek-v3", 70_272),  # 61 layers x (512 + 64) x 2 bytes
    ],
)
def test_kv_bytes_per_token(name, bytes_per_token):
    assert model(name).kv_bytes_per_token() == bytes_per_token
    assert model(name).kv_bytes_per_token("fp8") == bytes_per_token // 2


def test_kv_heads_are_shared_out_and_then_repeated():
    llama = model("llama-3.3-70b-instruct")  # 8 KV heads
    assert [llama.kv_bytes_per_token(tensor_parallel=n) for n in (1, 2, 4, 8, 16)] == [
        327_680,
        163_840,
        81_920,
        40_960,
        40_960,
    ]


def test_a_latent_cache_is_whole_on_every_rank():
    assert model("deepseek-v3").kv_bytes_per_token(tensor_parallel=8) == 70_272


def test_windows_stop_growing_and_full_layers_do_not():
    gpt = model("gpt-oss-120b")  # 18 layers with a window of 128, 18 full; 8 heads of 64
    entry = 2 * 8 * 64 * 2
    assert gpt.kv_bytes_per_token() == 18 * entry
    assert gpt.kv_bytes(100) == 36 * entry * 100
    assert gpt.kv_bytes(1000) == 18 * entry * (1000 + 128)


def test_linear_layers_keep_a_state_whatever_the_context():
    qwen = model("qwen3.5-27b")  # 16 full layers of 4 heads of 256; 48 with a state
    state = qwen.kv_bytes(0)
    # 48 value heads x 128 x 128 fp32 and 3 inputs of 2 x 16 x 128 + 48 x 128 channels in bf16, 48 layers
    assert state == 48 * (48 * 128 * 128 * 4 + 3 * (2 * 16 * 128 + 48 * 128) * 2)
    assert qwen.kv_bytes(1000) - state == 1000 * 16 * 2 * 4 * 256 * 2
    assert qwen.kv_bytes(0, tensor_parallel=4) == state // 4


def test_sparse_attention_reads_a_choice_and_the_index():
    latent = model("deepseek-v3.2").layers[0].attention
    assert latent.stored_bytes(10_000) == 10_000 * (1152 + 132)
    assert latent.read_bytes(10_000) == 2048 * 1152 + 10_000 * 132
    assert latent.read_bytes(1000) == 1000 * (1152 + 132)  # shorter than the choice: all of it


def test_compressed_attention_keeps_a_window_and_an_entry_per_group():
    kinds = {layer.attention.compression: layer.attention for layer in model("deepseek-v4-flash").layers}
    assert sorted(kinds) == [1, 4, 128]
    entry = 512 * 2
    assert kinds[1].stored_bytes(4096) == 128 * entry
    assert kinds[128].stored_bytes(4096) == (128 + 32) * entry
    assert kinds[4].stored_bytes(4096) == 128 * entry + 1024 * (entry + 132)
    assert kinds[4].read_bytes(40_960) == 128 * entry + 512 * entry + 10_240 * 132
    assert kinds[128].replicated


@pytest.mark.parametrize(
    ("weights", "group", "each"),
    [
        ("bf16", 0, 2.0),
        ("fp8", 0, 1.0),
        ("fp8_block", 0, 1 + 4 / 16384),
        ("int4", 0, 0.5 + 2 / 128),
        ("int4", 32, 0.5625),
        ("mxfp4", 0, 0.53125),
    ],
)
def test_bytes_of_a_weight(weights, group, each):
    assert weight_bytes_each(weights, group) == each
    assert LinearLayer("x", 128, 256, weights, group=group).weight_bytes == 128 * 256 * each


def test_llama_bytes_and_a_conversion_that_leaves_the_ends():
    llama = model("llama-3.3-70b-instruct")
    assert llama.weight_bytes() == pytest.approx(141.1e9, rel=1e-3)
    fp8 = llama.with_weights("fp8")
    ends = 2 * (llama.embedding_parameters + llama.head.parameters)
    assert fp8.weight_bytes() == pytest.approx((llama.weight_bytes() - ends) / 2 + ends, rel=1e-4)
    assert fp8.weights == "fp8"
    assert fp8.parameters == llama.parameters


def test_a_model_in_that_format_stays_as_it_is():
    gpt = model("gpt-oss-120b")  # experts mxfp4, attention bf16
    assert gpt.with_weights("mxfp4") is gpt
    assert gpt.layers[0].attention.linears[0].weights == "bf16"


def test_routers_stay_bf16_and_prediction_modules_are_converted():
    glm = model("glm-4.5").with_weights("fp8")
    moe = next(layer for layer in glm.layers if layer.experts)
    assert {linear.name: linear.weights for linear in moe.linears}["router"] == "bf16"
    assert moe.experts.weights == "fp8"
    assert glm.mtp.layers[0].experts.weights == "fp8"


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("name", ["llama-3.3-70b-instruct", "mixtral-8x7b-instruct"])
def test_ranks_together_hold_the_model(name, ranks):
    full = model(name)
    together = ranks * full.weight_bytes(ranks)
    repeated = sum(
        layer.count
        * (
            2 * layer.other_parameters
            + sum(x.weight_bytes for x in layer.all_linears if x.shard == "replicated")
        )
        for layer in full.layers
    )
    assert together == pytest.approx(
        full.weight_bytes() + (ranks - 1) * (repeated + 2 * full.other_parameters)
    )


def test_a_fused_projection_repeats_keys_and_values_beyond_their_heads():
    qkv = model("llama-3.3-70b-instruct").layers[0].attention.linears[0]
    assert (qkv.out_features, qkv.in_features) == (10_240, 8192)
    assert qkv.per_rank(4).out_features == 2048 + 2 * 256
    assert qkv.per_rank(16).out_features == 512 + 2 * 128  # one head of each, on two ranks the same
    o = model("llama-3.3-70b-instruct").layers[0].attention.linears[1]
    assert (o.per_rank(4).out_features, o.per_rank(4).in_features) == (8192, 2048)


def test_experts_are_cut_or_kept_whole():
    experts = Experts(count=8, per_token=2, hidden=4096, intermediate=14_336)
    assert experts.parameters == 8 * 3 * 4096 * 14_336
    cut, full = experts.per_rank(4), experts.per_rank(4, 4)
    assert (cut.count, cut.intermediate) == (8, 3584)
    assert (full.count, full.intermediate) == (2, 14_336)
    assert cut.weight_bytes == full.weight_bytes == experts.weight_bytes / 4
    mixed = experts.per_rank(4, 2)
    assert (mixed.count, mixed.intermediate) == (4, 7168)


def test_flops_of_a_pair():
    assert Attention("full", 64, 8, 128, 128, ()).pair_flops == 2 * 64 * 256
    latent = Attention("mla", 128, 1, 192, 128, (), kv_lora_rank=512, rope_head_dim=64)
    assert latent.pair_flops == 2 * 128 * (512 + 64 + 512)
