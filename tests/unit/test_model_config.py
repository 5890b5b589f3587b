"""Reading config.json: architectures by their fields."""

import json

import pytest

from simulator.models.catalogue import entry, load_model
from simulator.models.config import model_from_config
from tests.model_fields import LLAMA, MOE


def read(config):
    return model_from_config(config, "test", "test")


def kinds(model):
    counts = {}
    for layer in model.layers:
        kind = layer.attention.kind if layer.attention else None
        counts[kind] = counts.get(kind, 0) + layer.count
    return counts


def dense_layers(model):
    return sum(layer.count for layer in model.layers if layer.experts is None)


def test_a_llama_by_hand():
    model = read(LLAMA)
    layer = 1024 * 1024 * 2 + 2 * 1024 * 256 + 3 * 1024 * 4096 + 2 * 1024
    assert model.parameters == 4 * layer + 2 * 32_000 * 1024 + 1024
    assert read({**LLAMA, "tie_word_embeddings": True}).parameters == model.parameters - 32_000 * 1024
    assert model.layer_count == 4
    assert model.max_context_tokens == 8192


def test_missing_kv_heads_mean_one_per_head_and_head_dim_wins_over_the_width():
    config = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
    assert read(config).kv_bytes_per_token() == 4 * 2 * 16 * 64 * 2
    assert read({**LLAMA, "head_dim": 128}).kv_bytes_per_token() == 4 * 2 * 4 * 128 * 2


@pytest.mark.parametrize(
    ("fields", "sliding"),
    [
        ({"sliding_window": 1024}, 4),  # Mistral 7B v0.1
        ({"sliding_window": 1024, "use_sliding_window": False}, 0),
        ({"sliding_window": 1024, "use_sliding_window": True, "max_window_layers": 3}, 1),
        ({"sliding_window": 8192}, 0),  # as long as the context
        ({"sliding_window": 1024, "sliding_window_pattern": 2}, 2),
        ({"sliding_window": 64, "layer_types": ["full_attention"] + 3 * ["sliding_attention"]}, 3),
        ({"sliding_window": 64, "hybrid_layer_pattern": [0, 1, 1, 0]}, 2),
        ({"attention_chunk_size": 512}, 3),  # Llama 4: every fourth layer sees everything
        ({"attention_chunk_size": 512, "no_rope_layers": [1, 1, 0, 0]}, 2),
    ],
)
def test_sliding_layers(fields, sliding):
    assert kinds(read({**LLAMA, **fields})).get("sliding", 0) == sliding


@pytest.mark.parametrize(
    ("fields", "dense"),
    [
        ({}, 0),
        ({"first_k_dense_replace": 3}, 3),
        ({"decoder_sparse_step": 2}, 2),
        ({"decoder_sparse_step": 1, "mlp_only_layers": [0, 2]}, 2),
        ({"moe_layer_freq": [0, 1, 1, 1]}, 1),
        ({"interleave_moe_layer_step": 2}, 2),
        ({"mlp_layer_types": ["dense", "dense", "dense", "sparse"]}, 3),
    ],
)
def test_dense_layers_among_experts(fields, dense):
    model = read({**MOE, **fields})
    assert dense_layers(model) == dense
    assert model.layer_count == 4


def test_active_parameters_use_the_chosen_experts_only():
    model = read(MOE)
    assert model.parameters - model.active_parameters == 4 * 6 * 3 * 1024 * 512


def test_shared_experts_by_number_and_by_width():
    plain = read(MOE).parameters
    by_number = read({**MOE, "n_shared_experts": 2}).parameters
    by_width = read({**MOE, "shared_expert_intermediate_size": 1024}).parameters
    assert by_number - plain == by_width - plain == 4 * 3 * 1024 * 1024


def test_wrappers_hold_the_language_model():
    wrapped = {
        "architectures": ["SomeForConditionalGeneration"],
        "text_config": LLAMA,
        "vision_config": {"depth": 2},
    }
    assert read(wrapped).parameters == read(LLAMA).parameters
    deeper = {"thinker_config": {"text_config": LLAMA}}
    assert read(deeper).parameters == read(LLAMA).parameters


def test_kimi_linear_counts_as_its_card():
    """moonshotai/Kimi-Linear-48B-A3B: 49B on the hub, 3B active (arXiv 2510.26692); its published fields."""
    full = [4, 8, 12, 16, 20, 24, 27]
    model = read(
        {
            "architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear", "hidden_size": 2304,
            "intermediate_size": 9216, "moe_intermediate_size": 1024, "num_hidden_layers": 27,
            "vocab_size": 163840, "num_attention_heads": 32, "num_key_value_heads": 32, "kv_lora_rank": 512,
            "q_lora_rank": None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
            "first_k_dense_replace": 1, "num_experts": 256, "num_experts_per_token": 8,
            "num_shared_experts": 1, "model_max_length": 1048576,
            "linear_attn_config": {
                "full_attn_layers": full, "kda_layers": [i for i in range(1, 28) if i not in full],
                "head_dim": 128, "num_heads": 32, "short_conv_kernel_size": 4,
            },
        }
    )  # fmt: skip
    assert kinds(model) == {"linear": 20, "mla": 7}
    assert model.parameters / 1e9 == pytest.approx(49, abs=0.5)
    ends = 2 * model.embedding_parameters
    assert model.active_parameters - ends < 3e9 < model.active_parameters


def test_the_catalogue_holds_config_fields_only():
    """One reader serves both: an entry written out as config.json loads as the same model."""
    for name in ("gpt-oss-20b", "deepseek-v4-flash", "qwen3.5-35b-a3b"):
        known = entry(name)
        assert (
            model_from_config(json.loads(json.dumps(known.config)), name, "x").parameters
            == load_model(name).parameters
        )
