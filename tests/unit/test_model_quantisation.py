"""Number formats of weights, as the quantisation methods state them."""

import json

import pytest

from simulator.models.catalogue import load_model
from simulator.models.config import model_from_config
from tests.model_fields import LLAMA, MOE


def read(config):
    return model_from_config(config, "test", "test")


def write(tmp_path, config):
    file = tmp_path / "config.json"
    file.write_text(config if isinstance(config, str) else json.dumps(config, indent=1))
    return file


def weights_of(config):
    model = read(config)
    layer = model.layers[-1]
    result = {linear.name: linear.weights for linear in layer.all_linears}
    if layer.experts:
        result["experts"] = layer.experts.weights
    return model.weights, result


@pytest.mark.parametrize(
    ("quantisation", "weights"),
    [
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8_block"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "int4"),
        ({"quant_method": "gptq", "bits": 8}, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "mxfp4"),
        (None, "bf16"),
    ],
)
def test_number_formats(quantisation, weights):
    dominant, result = weights_of({**LLAMA, "quantization_config": quantisation})
    assert dominant == weights
    assert set(result.values()) == {weights}


def compressed(num_bits, kind, **more):
    weights = {"num_bits": num_bits, "type": kind, **more}
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }


@pytest.mark.parametrize(
    ("scheme", "weights", "group"),
    [
        (compressed(8, "float", strategy="channel"), "fp8", 0),
        (compressed(8, "float", strategy="block"), "fp8_block", 0),
        (compressed(8, "int"), "fp8", 0),
        (compressed(4, "int", group_size=128), "int4", 128),
        (compressed(4, "float", group_size=32), "mxfp4", 32),
        ({**compressed(4, "float"), "format": "nvfp4-pack-quantized"}, "mxfp4", 16),
    ],
)
def test_compressed_tensors(scheme, weights, group):
    linear = read({**LLAMA, "quantization_config": scheme}).layers[0].linears[0]
    assert (linear.weights, linear.group) == (weights, group)


def test_modules_kept_back_by_name_part_wildcard_and_expression():
    _, by_part = weights_of(
        {**LLAMA, "quantization_config": {"quant_method": "fp8", "modules_to_not_convert": ["self_attn"]}}
    )
    assert by_part == {"qkv": "bf16", "o": "bf16", "gate_up": "fp8", "down": "fp8"}
    _, by_wildcard = weights_of(
        {
            **LLAMA,
            "quantization_config": {"quant_method": "fp8", "modules_to_not_convert": ["model.layers.*.mlp"]},
        }
    )
    assert by_wildcard == {"qkv": "fp8", "o": "fp8", "gate_up": "bf16", "down": "bf16"}
    _, by_expression = weights_of(
        {
            **MOE,
            "quantization_config": {
                **compressed(4, "int", group_size=32),
                "ignore": ["lm_head", "re:.*self_attn.*"],
            },
        }
    )
    assert by_expression == {"qkv": "bf16", "o": "bf16", "router": "bf16", "experts": "int4"}
    group = {
        **LLAMA,
        "quantization_config": {"quant_method": "fp8", "ignore": ["model.layers.0.mlp.down_proj"]},
    }
    assert [layer.count for layer in read(group).layers] == [1, 3]


def test_mxfp4_is_for_routed_experts():
    _, result = weights_of({**MOE, "quantization_config": {"quant_method": "mxfp4"}})
    assert result == {"qkv": "bf16", "o": "bf16", "router": "bf16", "experts": "mxfp4"}


def test_a_modelopt_file_beside_the_config_counts(tmp_path):
    file = write(tmp_path, LLAMA)
    assert load_model(str(file)).weights == "bf16"
    mixed_config = {
        "producer": {"name": "modelopt"},
        "quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]},
    }
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(mixed_config))
    assert load_model(str(file)).weights == "fp8"
    assert load_model(str(tmp_path)).weights == "fp8"  # the folder means its config.json
