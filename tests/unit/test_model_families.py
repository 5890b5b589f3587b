"""Exact sizes of families that state their shape in fields of their own.

Totals are those of the checkpoints' safetensors files. A bias per expert that corrects the router's choice
is in most of them and is no parameter here; it is added where a file has it.
"""

import pytest

from simulator.errors import InputError
from simulator.models.catalogue import entry, load_drafter, load_model
from simulator.models.config import model_from_config
from tests.model_fields import LLAMA, MOE


def read(config):
    return model_from_config(config, "test", "test")


def changed(name, **fields):
    return read({**entry(name).config, **fields})


@pytest.mark.parametrize(
    ("name", "expected", "with_modules"),
    [
        ("step-3.5-flash", 199_384_301_376 - 42 * 288, True),
        ("ernie-4.5-21b-a3b-thinking", 21_825_437_888 - 27 * 64, False),
        ("hunyuan-a13b-instruct", 80_393_183_232, False),
        ("longcat-flash-chat", 560_664_980_480 - 28 * 768, False),
        ("seed-oss-36b-instruct", 36_151_104_512, False),
    ],
)
def test_parameters_are_those_of_the_files(name, expected, with_modules):
    model = load_model(name)
    modules = load_drafter(None, model, "mtp").parameters if with_modules else 0
    assert model.parameters + modules == expected


@pytest.mark.parametrize(
    ("name", "active"),
    [
        ("step-3.5-flash", 11_987_311_872),
        ("ernie-4.5-21b-a3b-pt", 3_352_148_480),
        ("ernie-4.5-300b-a47b-pt", 47_926_583_296),
        ("hunyuan-a13b-instruct", 12_747_448_320),
    ],
)
def test_active_parameters(name, active):
    assert load_model(name).active_parameters == active


@pytest.mark.parametrize(
    ("name", "total", "biases"), [("hy3", 298.786156e9, 80 * 192), ("dots.llm1.inst", 142.774382e9, 61 * 128)]
)
def test_queries_and_keys_are_normed_where_a_family_always_does(name, total, biases):
    """Totals to six decimals; without the norms 15,872 and 20,480 parameters are missing."""
    model = load_model(name)
    modules = load_drafter(None, model, "mtp").parameters if model.mtp else 0
    assert model.parameters + modules + biases == pytest.approx(total, abs=501)


def test_step_routes_in_the_layers_it_lists_and_its_modules_have_heads_of_their_own():
    model = load_model("step-3.5-flash")
    assert sum(layer.count for layer in model.layers if layer.experts) == 42
    assert (
        sum(
            layer.count for layer in changed("step-3.5-flash", moe_layers_enum="5, 7").layers if layer.experts
        )
        == 2
    )
    assert (
        sum(layer.count for layer in changed("step-3.5-flash", moe_layers_enum=[4]).layers if layer.experts)
        == 1
    )
    drafter = load_drafter(None, model, "mtp")
    assert drafter.modules == 3
    assert not drafter.shares_head
    without = 281_432_320
    assert drafter.parameters == 3 * (without + 128_896 * 4096)
    assert drafter.model.layers[0].experts is None
    assert drafter.model.layers[0].attention.kind == "sliding"


def test_step_widens_the_heads_of_its_sliding_layers_where_it_says_so():
    other = {**entry("step-3.5-flash").config["attention_other_setting"], "head_dim": 256}
    model = changed("step-3.5-flash", attention_other_setting=other)
    heads = {
        layer.attention.kind: (layer.attention.heads, layer.attention.head_dim) for layer in model.layers
    }
    assert heads == {"full": (64, 128), "sliding": (96, 256)}


def test_ernie_counts_layers_from_one_in_its_interval_and_predicts_ahead_with_a_dense_layer():
    def sparse(**fields):
        layers = changed("ernie-4.5-21b-a3b-pt", **fields).layers
        return sum(layer.count for layer in layers if layer.experts)

    assert sparse() == 27
    assert sparse(moe_layer_interval=2) == 14
    assert sparse(moe_layer_end_index=9) == 9
    assert sparse(moe_layer_end_index=-1) == 27
    model = load_model("ernie-4.5-21b-a3b-pt")
    drafter = load_drafter(None, model, "mtp")
    assert drafter.parameters == 123_217_920 + 2560  # the last norm is counted, the file has none
    assert drafter.model.layers[0].attention.kind == "full"


def test_a_number_may_be_a_list_that_says_it_for_every_layer(tmp_path):
    fields = {"moe_topk": [2] * 4, "moe_intermediate_size": [512] * 4, "num_shared_expert": [1] * 5}
    evened = {"moe_topk": 2, "moe_intermediate_size": 512, "num_shared_expert": 1}
    plain = {
        key: value
        for key, value in MOE.items()
        if key not in ("num_experts_per_tok", "moe_intermediate_size")
    }
    assert read({**plain, **fields}).layers == read({**plain, **evened}).layers
    with pytest.raises(InputError, match="moe_topk: differs from layer to layer"):
        read({**plain, **fields, "moe_topk": [2, 2, 4, 2]})


def test_longcat_has_two_attentions_a_layer_and_experts_that_do_nothing():
    model = load_model("longcat-flash-chat")
    assert model.layer_count == 2 * 28
    assert model.kv_bytes_per_token() == 2 * 28 * (512 + 64) * 2
    sparse = next(layer for layer in model.layers if layer.experts)
    assert (sparse.count, sparse.experts.count, sparse.experts.per_token) == (28, 512, 8)
    assert next(linear for linear in sparse.linears if linear.name == "router").out_features == 768
    assert {linear.name for linear in sparse.linears} >= {"gate_up", "down"}
    assert model.active_parameters == pytest.approx(27e9, rel=0.04)
    doubled = {**entry("longcat-flash-chat").config, "num_layers": None, "num_hidden_layers": 56}
    assert read(doubled).layers == model.layers
    module = load_drafter(None, model, "mtp")
    assert (
        module.parameters + model.embedding_parameters == 1_197_899_776
    )  # its file holds the embedding again


def test_the_bias_of_the_output_projection_may_be_stated():
    both = read({**LLAMA, "attention_bias": True}).parameters
    first = read({**LLAMA, "attention_bias": True, "attention_out_bias": False}).parameters
    assert both - first == 4 * 1024


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mpt-7b-chat", 6_649_286_656),
        ("dbrx-instruct", 131_596_523_520),
        ("chatglm3-6b", 6_243_584_000),
        ("exaone-3.5-2.4b-instruct", 2_405_327_360),
        ("granite-4.0-h-tiny", 6_939_037_248),
        ("trinity-mini", 26_123_974_400 - 30 * 128),
        ("apertus-8b-instruct-2509", 8_053_338_176 - 2 * 32),  # two numbers of an activation a layer
        ("grok-2", 269_515_497_472 - 64 * 2 * 8192),  # two norms a layer more
    ],
)
def test_parameters_of_spellings_and_layers_of_their_own(name, expected):
    assert load_model(name).parameters == expected


@pytest.mark.parametrize("name", ["opt-125m", "gpt2", "bloom-560m", "starcoder"])
def test_older_models_but_for_biases(name):
    """Biases are the rest; positions that are learned are counted (0.6 % of GPT-2)."""
    published = {
        "opt-125m": 125_239_296,
        "gpt2": 124_439_808,
        "bloom-560m": 559_214_592,
        "starcoder": 15_517_456_384,
    }
    assert load_model(name).parameters == pytest.approx(published[name], rel=1e-3)


@pytest.mark.parametrize(
    ("name", "kv_heads"),
    [
        ("falcon-7b-instruct", 1),
        ("falcon-40b-instruct", 8),
        ("starcoder", 1),
        ("dbrx-instruct", 8),
        ("chatglm3-6b", 2),
        ("gpt2", 12),
    ],
)
def test_heads_of_keys_and_values_in_older_spellings(name, kv_heads):
    assert {layer.attention.kv_heads for layer in load_model(name).layers} == {kv_heads}


def test_the_usual_spelling_goes_first():
    assert read({**LLAMA, "n_embd": 7, "n_layer": 9}).layers == read(LLAMA).layers
    plain = {key: value for key, value in LLAMA.items() if key not in ("hidden_size", "num_hidden_layers")}
    assert read({**plain, "n_embd": 1024, "num_layers": 4}).layers == read(LLAMA).layers


def test_granite_has_an_mlp_after_every_mamba_layer():
    model = load_model("granite-4.0-h-tiny")
    kinds = {layer.attention.kind: layer.count for layer in model.layers}
    assert kinds == {"mamba2": 36, "full": 4}
    assert all(layer.experts for layer in model.layers)
    state = 48 * 64 * 128 * 2 + 2 * 3 * (48 * 64 + 2 * 128)
    assert model.kv_bytes(0) == 36 * state


def test_trinity_gates_its_attention_and_begins_with_dense_layers():
    model = load_model("trinity-mini")
    assert sum(layer.count for layer in model.layers if layer.experts is None) == 2
    assert {layer.attention.kind: layer.attention.linears[0].out_features for layer in model.layers} == {
        "full": (32 + 32 + 2 * 4) * 128,
        "sliding": (32 + 32 + 2 * 4) * 128,
    }


def test_activations_without_a_gate_and_a_dense_mlp_beside_the_experts():
    plain = read({**LLAMA, "hidden_act": "xielu"})
    assert read(LLAMA).parameters - plain.parameters == 4 * 1024 * 4096
    residual = read({**MOE, "residual_moe": True})
    assert residual.parameters - read(MOE).parameters == 4 * 3 * 1024 * 4096


def test_cohere_leaves_the_tie_out_and_is_served_as_long_as_its_tokenizer_says():
    config = {**LLAMA, "model_type": "cohere2", "model_max_length": 131_072}
    model = read(config)
    assert model.tied_embeddings
    assert model.max_context_tokens == 131_072
    assert not read({**config, "tie_word_embeddings": False}).tied_embeddings
    assert read({**config, "model_type": "llama"}).max_context_tokens == 8192


def test_glm_4_has_four_norms_a_layer_and_no_bias_after_attention():
    assert read({**LLAMA, "model_type": "glm4"}).parameters - read(LLAMA).parameters == 4 * 2 * 1024
    biased = read({**LLAMA, "model_type": "glm", "attention_bias": True})
    assert biased.parameters - read(LLAMA).parameters == 4 * (1024 + 2 * 256)
