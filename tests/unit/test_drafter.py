"""Drafters: sizes against published figures, what they share, what is refused."""

import json

import pytest

from simulator.errors import InputError
from simulator.models.catalogue import drafters, entry, load_drafter, load_model
from simulator.models.drafter import drafter_from_config
from tests.shared_data import SHARED, needs_shared

EAGLE3_70B = entry("eagle3-llama-3.3-70b").config


def head(name, target=None):
    known = entry(name)
    return load_drafter(name, load_model(target or known.targets[0]), known.method)


@pytest.mark.parametrize(
    ("name", "parameters", "kv_bytes"),
    [  # 3 Ht H + 2H q + 4H kv + q H + 3 H I + Vd H; one layer's KV
        ("eagle3-llama-3.3-70b", 1.4030e9, 4096),
        ("eagle3-llama-3.3-70b-yuhuili", 0.7880e9 + 0.788e9, 4096),  # with the embedding it cannot share
        ("eagle3-llama-3.1-8b", 0.4247e9, 4096),
        ("eagle-llama-2-7b-chat", 0.24e9, 16_384),
        ("eagle-llama-2-13b-chat", 0.37e9, 20_480),
        ("eagle-llama-2-70b-chat", 0.99e9, 4096),
        ("eagle-llama-3-8b-instruct", 0.25e9, 4096),
        ("eagle-mixtral-8x7b-instruct", 0.28e9, 16_384),
    ],
)
def test_heads_have_the_published_size(name, parameters, kv_bytes):
    """EAGLE-3: the formula of vLLM's model; EAGLE: the table in the README of SafeAILab/EAGLE, two digits."""
    drafter = head(name)
    tolerance = 2e-4 if name.startswith("eagle3") else 0.02
    assert drafter.parameters == pytest.approx(parameters, rel=tolerance)
    assert drafter.kv_bytes_per_token() == kv_bytes


def test_nvidias_head_is_the_70b_shape_with_its_own_ends():
    """nvidia/Llama-3.3-70B-Instruct-Eagle3 states 3.2e9 parameters: full vocabulary, embedding included."""
    target = load_model("llama-3.3-70b-instruct")
    config = {**EAGLE3_70B, "draft_vocab_size": 128_256}
    drafter = drafter_from_config(config, target, "eagle3", "nvidia", "test")
    assert drafter.parameters + target.embedding_parameters == pytest.approx(3.2e9, rel=0.015)


def test_a_narrow_head_has_its_own_embedding_and_the_projection_is_on_every_rank():
    wide, narrow = head("eagle3-llama-3.3-70b"), head("eagle3-llama-3.3-70b-yuhuili")
    assert wide.shares_embedding
    assert not narrow.shares_embedding
    assert narrow.fc.in_features == 3 * 8192
    assert narrow.fc.out_features == 6144
    rest = wide.weight_bytes() - wide.fc.weight_bytes
    assert wide.weight_bytes(4) == pytest.approx(wide.fc.weight_bytes + rest / 4, rel=1e-3)


def test_the_first_layer_of_eagle3_reads_twice_the_width_and_the_head_is_small():
    drafter = head("eagle3-llama-3.3-70b")
    qkv = drafter.model.layers[0].attention.linears[0]
    assert (qkv.out_features, qkv.in_features) == (10_240, 16_384)
    assert drafter.model.head.out_features == 32_000
    assert drafter.max_context_tokens == 4096


def test_eagle_shares_both_ends_but_multiplies_the_head():
    drafter = head("eagle-llama-2-7b-chat")
    assert drafter.shares_head
    assert drafter.model.head.out_features == 32_000
    assert drafter.parameters < 0.24e9


def test_prediction_module_of_deepseek():
    """README_WEIGHTS of the checkpoint: 11.5B unique parameters. Its safetensors index counts 684,531,386,000
    with copies of both ends and the fp8 scales."""
    target = load_model("deepseek-v3")
    drafter = load_drafter(None, target, "mtp")
    ends = target.embedding_parameters + target.head.parameters
    assert drafter.parameters == pytest.approx(11.5e9, rel=0.01)
    assert target.parameters + drafter.parameters + ends == pytest.approx(684.53e9, rel=2e-4)
    assert drafter.kv_bytes_per_token() == 1152
    assert drafter.model.layers[0].experts.count == 256
    assert load_drafter("mtp-deepseek-v3", target, "mtp").parameters == drafter.parameters


def test_modules_that_take_turns_are_all_in_memory():
    drafter = load_drafter(None, load_model("minimax-m2.5"), "mtp")
    assert drafter.modules == 3
    expected = drafter.model.parameters + drafter.fc.parameters
    assert drafter.parameters == 3 * expected
    assert drafter.kv_bytes_per_token() == 3 * drafter.model.kv_bytes_per_token()


def test_every_drafter_of_the_catalogue_loads_for_its_targets():
    heads = [entry(name) for name in drafters() if entry(name).method]
    assert len(heads) > 30
    for known in heads:
        for target in known.targets:
            drafter = load_drafter(known.name, load_model(target), known.method)
            assert 0 < drafter.parameters < 30e9
            assert drafter.kind == known.method


def test_a_small_model_drafts_for_a_large_one_of_its_vocabulary():
    drafter = load_drafter("llama-3.2-1b-instruct", load_model("llama-3.3-70b-instruct"), "draft_model")
    assert drafter.fc is None
    assert drafter.parameters == pytest.approx(1.236e9, rel=1e-3)
    with pytest.raises(InputError, match="another vocabulary"):
        load_drafter("smollm2-135m-instruct", load_model("llama-3.3-70b-instruct"), "draft_model")


@needs_shared
def test_speculators_format_and_plain_config_are_the_same_head(tmp_path):
    target = load_model("llama-3.1-8b-instruct")
    examples = SHARED / "formats" / "examples"
    plain = load_drafter(str(examples / "hf_config.eagle3_draft.json"), target, "eagle3")
    wrapped = load_drafter(str(examples / "hf_config.speculators_eagle3.json"), target, "eagle3")
    assert plain.parameters == wrapped.parameters == pytest.approx(0.4247e9, rel=2e-4)
    assert (plain.default_draft_length, wrapped.default_draft_length) == (None, 3)
    assert plain.max_context_tokens == wrapped.max_context_tokens == 4096


@needs_shared
def test_modules_from_the_checkpoint_config():
    target = load_model(str(SHARED / "formats" / "examples" / "hf_config.moe_mla_mtp.json"))
    assert target.kv_bytes_per_token() == 70_272
    assert load_drafter(None, target, "mtp").model.layers[0].experts.count == 256


def test_aux_states_set_the_projection():
    target = load_model("llama-3.3-70b-instruct")
    for extra, width in (
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 40, 60, 77]}}, 4),
        ({"eagle_aux_hidden_state_layer_ids": [2, 40]}, 2),
        ({"num_aux_hidden_states": 5}, 5),
        ({}, 3),
    ):
        drafter = drafter_from_config({**EAGLE3_70B, **extra}, target, "eagle3", "x", "test")
        assert drafter.fc.in_features == width * 8192
    without = {**EAGLE3_70B, "eagle_config": {"use_aux_hidden_state": False}}
    assert drafter_from_config(without, target, "eagle3", "x", "test").fc is None


def test_latent_heads_keep_a_latent():
    """vLLM's `deepseek_eagle3.py`: the first layer's down projections read 2 x hidden, its MLP is dense."""
    config = {
        "model_type": "kimi_k2", "hidden_size": 7168, "intermediate_size": 18432, "num_attention_heads": 64,
        "num_hidden_layers": 1, "vocab_size": 163840, "draft_vocab_size": 163840, "q_lora_rank": 1536,
        "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "n_routed_experts": 384, "num_experts_per_tok": 8,
    }  # fmt: skip
    drafter = drafter_from_config(config, load_model("kimi-k2-instruct"), "eagle3", "x", "test")
    assert drafter.kv_bytes_per_token() == 2 * (512 + 64)
    latent = 2 * 7168 * (1536 + 512 + 64) + 1536 * 64 * 192 + 512 * 64 * 256 + 64 * 128 * 7168 + 1536 + 512
    rest = 3 * 7168 * 18432 + 3 * 7168 * 7168 + 163840 * 7168 + 4 * 7168
    assert drafter.parameters == latent + rest


def test_a_head_may_say_that_it_multiplies_by_the_targets():
    target = load_model("gpt-oss-120b")
    config = {
        "model_type": "llama", "hidden_size": 2880, "intermediate_size": 17280, "num_attention_heads": 64,
        "num_key_value_heads": 8, "head_dim": 64, "num_hidden_layers": 1, "vocab_size": 201088,
    }  # fmt: skip

    def head_of(**fields):
        return drafter_from_config({**config, **fields}, target, "eagle3", "x", "test")

    own, shared = head_of(), head_of(has_lm_head=False)
    assert shared.shares_head
    assert own.parameters - shared.parameters == 201088 * 2880
    assert head_of(eagle_config={"has_lm_head": False}).parameters == shared.parameters
    assert not head_of(has_lm_head=False, draft_vocab_size=32000).shares_head


def test_experts_in_a_head_are_refused_in_words():
    target = load_model("llama-3.3-70b-instruct")
    with pytest.raises(
        InputError, match=r"num_local_experts: experts of a head are not read \(got 16\), a head"
    ):
        drafter_from_config({**EAGLE3_70B, "num_local_experts": 16}, target, "eagle3", "x", "test")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"target_hidden_size": 4096}, "target_hidden_size"),
        ({"vocab_size": 1000}, "vocab_size"),
        ({"hidden_size": "8192"}, "hidden_size"),
        ({"num_attention_heads": 0}, "num_attention_heads"),
        ({"intermediate_size": None}, "intermediate_size"),
        ({"speculators_model_type": "dflash"}, "speculators_model_type"),
        ({"medusa_num_heads": 4}, "medusa_num_heads"),
        ({"num_experts": 16, "num_experts_per_tok": 4}, "num_experts"),
        ({"hc_count": 4}, "hc_count"),
        ({"draft_vocab_size": 999_999}, "draft_vocab_size"),
    ],
)
def test_a_head_that_does_not_fit_is_refused_with_its_field(tmp_path, change, field):
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**EAGLE3_70B, **change}, indent=1))
    with pytest.raises(InputError) as error:
        load_drafter(str(file), load_model("llama-3.3-70b-instruct"), "eagle3")
    assert field in {problem.field for problem in error.value.problems}
    assert all(problem.file == str(file) for problem in error.value.problems)


@pytest.mark.parametrize(
    ("name", "target", "method", "match"),
    [
        ("eagle3-llama-3.1-8b", "llama-3.3-70b-instruct", "eagle3", "hidden states are 8192 wide"),
        ("eagle3-llama-3.1-8b", "llama-3.1-8b-instruct", "eagle", "is a drafter of the method eagle3"),
        ("eagle-llama-2-7b-chat", "llama-2-7b-chat", "eagle3", "is a drafter of the method eagle"),
        ("llama-3.2-1b-instruct", "llama-3.3-70b-instruct", "eagle3", "method draft_model"),
        ("eagle3-lama-3.3-70b", "llama-3.3-70b-instruct", "eagle3", "did you mean 'eagle3-llama-3.3-70b'"),
        (None, "llama-3.3-70b-instruct", "mtp", "carries no multi-token-prediction module"),
        (None, "llama-3.3-70b-instruct", "eagle3", "a drafter is needed"),
        ("mtp-glm-5", "llama-3.3-70b-instruct", "mtp", "carries no multi-token-prediction module"),
        ("eagle3-qwen3-8b", "qwen3-8b", "medusae", "unknown drafting method"),
    ],
)
def test_wrong_pairs_are_refused(name, target, method, match):
    with pytest.raises(InputError, match=match):
        load_drafter(name, load_model(target), method)
