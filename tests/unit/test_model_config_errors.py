"""What is refused in a config.json, with which words, and where it is said to stand."""

import json

import pytest

from simulator.errors import InputError
from simulator.models.catalogue import load_model
from tests.model_fields import LLAMA


def write(tmp_path, config):
    file = tmp_path / "config.json"
    file.write_text(config if isinstance(config, str) else json.dumps(config, indent=1))
    return file


def problems(config, tmp_path):
    file = write(tmp_path, config)
    with pytest.raises(InputError) as error:
        load_model(str(file))
    assert all(problem.file == str(file) for problem in error.value.problems)
    return error.value.problems


def test_all_problems_are_said_at_once_with_line_and_what_is_allowed(tmp_path):
    changes = {"hidden_size": "1024", "num_attention_heads": 0, "vocab_size": None, "intermediate_size": 2.5}
    result = problems({**LLAMA, **changes}, tmp_path)
    assert {(p.field, p.line, p.value) for p in result} == {
        ("hidden_size", 6, "1024"),
        ("intermediate_size", 7, 2.5),
        ("num_attention_heads", 9, 0),
        ("vocab_size", 11, None),
    }
    text = "\n".join(str(problem) for problem in result)
    assert "config.json:6:" in text
    assert "(got '1024')" in text
    assert "a whole number from 1 to" in text


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"hidden_size": -4}, "hidden_size", "not usable"),
        ({"hidden_size": 1e300}, "hidden_size", "not usable"),
        ({"num_hidden_layers": 0}, "num_hidden_layers", "not usable"),
        ({"num_hidden_layers": True}, "num_hidden_layers", "not usable"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers", "not usable"),
        ({"num_attention_heads": 0}, "num_attention_heads", "not usable"),
        ({"num_attention_heads": 15}, "num_attention_heads", "does not divide"),
        ({"num_key_value_heads": 5}, "num_key_value_heads", "does not fit"),
        ({"num_key_value_heads": 32}, "num_key_value_heads", "does not fit"),
        ({"intermediate_size": None}, "intermediate_size", "missing"),
        ({"vocab_size": None}, "vocab_size", "missing"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings", "not usable"),
        ({"architectures": ["BertForMaskedLM"]}, "architectures", "no decoder"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder", "not supported"),
        ({"layer_types": ["full_attention"]}, "layer_types", "too short"),
        ({"layer_types": 4 * ["sparkling"]}, "layer_types[0]", "unknown"),
        (
            {"num_experts": 4, "num_experts_per_tok": 9, "moe_intermediate_size": 8},
            "num_experts_per_tok",
            "more than",
        ),
        ({"quantization_config": {"quant_method": "magic"}}, "quantization_config.quant_method", "unknown"),
        (
            {"quantization_config": {"quant_method": "awq", "bits": 3}},
            "quantization_config.bits",
            "not supported",
        ),
        ({"quantization_config": "fp8"}, "quantization_config", "not usable"),
        ({"draft_vocab_size": 32_000}, "draft_vocab_size", "belongs to a drafter"),
        ({"kv_lora_rank": 512}, "qk_nope_head_dim", "missing"),
        ({"num_experts": 4, "moe_layers_enum": "1,x"}, "moe_layers_enum", "is no layer"),
        ({"num_experts": 4, "moe_topk": [2, 1, 2, 2]}, "moe_topk", "differs from layer to layer"),
    ],
)
def test_bad_fields_are_named(change, field, words, tmp_path):
    result = problems({**LLAMA, **change}, tmp_path)
    assert any(problem.field == field and words in problem.message for problem in result), [
        str(p) for p in result
    ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"layer_group_size": 6}, "linear or lightning attention"),  # Ling-2.5, Ling-3.0
        ({"attn_type_list": [0, 0, 0, 1]}, "linear or lightning attention"),  # MiniMax-M1
        ({"hc_count": 4, "hc_lowrank": 16}, "low-rank hyper-connections"),  # Qwen3.8-Flash-Next
        ({"ple_layer_ids": [0, 2]}, "embeddings of their own for single layers"),
        ({"ngram_vocab_size_base": 90_000}, "embeddings of n-grams"),
        ({"indexer_n_heads": 4, "indexer_budget": 2048}, "attention to blocks"),
        ({"hidden_size_per_layer_input": 256}, "embeddings of their own"),  # Gemma 3n
        ({"num_kv_shared_layers": 2}, "reuse the keys and values"),
        ({"cross_attention_layers": [1, 3]}, "attend to images"),  # Llama 3.2 Vision
        ({"attn_layer_period": 4}, "recurrent"),  # Jamba
        ({"share_q_dim": 2048}, "queries factored"),  # Step3
        ({"total_ut_steps": 4}, "several times"),  # Ouro
        ({"word_embed_proj_dim": 512}, "another width"),  # OPT-350M
        ({"dense_attention_every_n_layers": 2}, "some blocks"),  # Phi-3-small
        ({"index_kpool": 16}, "one entry for several tokens"),  # GLM-5.3-Flash
        ({"kv_source_layers": [0, 0, 2, 2]}, "reuse the keys and values"),
        ({"expert_layer_period": 2}, "experts in some layers"),
        ({"parallel_attn_mlp_res": True}, "next to the experts"),  # Arctic
        ({"cross_attention_layers": [0]}, "attend to images"),
        ({"ple_layer_ids": [0]}, "embeddings of their own for single layers"),
        ({"kv_source_layers": [0, 0, 0, 0]}, "reuse the keys and values"),
    ],
)
def test_fields_that_change_sizes_and_are_not_read_are_refused(change, words, tmp_path):
    result = problems({**LLAMA, **change}, tmp_path)
    assert {problem.field for problem in result} == set(change)
    for problem in result:
        assert words in problem.message
        assert problem.message.endswith("which is not read")
        assert problem.line is not None
        assert problem.allowed


@pytest.mark.parametrize(
    "change",
    [
        {"layer_group_size": 1},
        {"attn_type_list": [1, 1, 1, 1]},  # MiniMax-M2.5
        {"num_kv_shared_layers": 0, "hidden_size_per_layer_input": 0, "use_double_wide_mlp": False},
        {"hc_count": None, "cross_attention_layers": [], "total_ut_steps": 1},
        {"word_embed_proj_dim": 1024},
        {"attn_layer_period": 1, "expert_layer_period": 1, "ffn_multipliers": [None, None]},
    ],
)
def test_such_a_field_is_no_obstacle_where_it_changes_nothing(change, tmp_path):
    assert load_model(str(write(tmp_path, {**LLAMA, **change}))).layer_count == 4


def test_the_refusal_reads_like_this(tmp_path):
    (problem,) = problems({**LLAMA, "layer_group_size": 6}, tmp_path)
    assert str(problem) == (
        f"{tmp_path}/config.json:13:22: layer_group_size: means softmax attention in some layers, "
        "linear or lightning attention in the others, which is not read (got 6), "
        "known: layer_types, linear_attn_config, full_attention_interval"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("", "is not JSON"),
        ("[1, 2]", "holds a list"),
        ("null", "holds a NoneType"),
        ('{"learning_rate": 0.1}', "is missing, as is all else that describes a transformer"),
        ('{"model_type": "resnet", "depths": [3, 4, 6, 3], "hidden_sizes": [256, 512]}', "is missing"),
        ("[" * 100_000, "nested too deeply"),
        ('{"hidden_size": ' + "9" * 5000 + "}", "is not usable"),
    ],
)
def test_no_config_at_all(text, words, tmp_path):
    assert words in str(problems(text, tmp_path)[0])


def test_bytes_that_are_no_text(tmp_path):
    file = tmp_path / "config.json"
    file.write_bytes(b"\xff\xfe\x00{")
    with pytest.raises(InputError, match="not text in UTF-8"):
        load_model(str(file))


def test_a_field_of_a_wrapper_is_located_inside_it(tmp_path):
    wrapped = {"vision_config": {"hidden_size": 7}, "text_config": {**LLAMA, "hidden_size": 0}}
    (problem,) = problems(wrapped, tmp_path)
    lines = (tmp_path / "config.json").read_text().splitlines()
    assert problem.field == "text_config.hidden_size"
    assert '"hidden_size": 0' in lines[problem.line - 1]
