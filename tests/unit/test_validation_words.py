"""The words of published cases: sides, GPUs, precisions, data sets, models."""

from __future__ import annotations

import pytest

from calibration.validation.reconstruction.names import datasets_of, gpu_of, side_of, weights_of
from tests.published_cases import PLAIN, changed, the_run


@pytest.mark.parametrize(
    ("text", "plain", "spec"),
    [
        ("baseline vLLM 0.11; spec SGLang 0.5", "vLLM 0.11", "SGLang 0.5"),
        ("baseline bf16; spec run FP8", "bf16", "FP8"),
        ("bf16 (baseline), fp8 (spec)", "bf16", "fp8"),
        ("plain run uses bf16 | speculative run uses fp8", "bf16", "fp8"),
        ("0.10.1 (0.11.1 for draft-model runs)", "0.10.1 (0.11.1 for draft-model runs)", None),
        ("SpecForge bench, spec v2", "SpecForge bench, spec v2", None),
    ],
)
def test_a_text_may_speak_of_two_sides(text, plain, spec):
    assert side_of(text, "plain") == plain
    assert side_of(text, "spec") == (spec or plain)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("H100 SXM 80GB", "h100-sxm"), ("NVIDIA H100 PCIe", "h100-pcie"), ("H100 NVL (94 GB)", "h100-nvl"),
        ("H100 96GB (HGX board)", "h100-sxm-94gb"), ("H100 SXM5 94GB HBM2e", "h100-sxm-94gb"),
        ("H100 94GB", "h100-nvl"), ("H100 NVL 94GB in an HGX server", "h100-nvl"),
        ("8xH200", "h200-sxm"), ("A100-SXM4-40GB", "a100-sxm-40gb"), ("A100", "a100-sxm-80gb"),
    ],
)  # fmt: skip
def test_gpus_are_known_however_they_are_spelt(text, name):
    result = gpu_of(text)
    assert not isinstance(result, str)
    assert result.name == name


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "GPU not stated"), ("RTX 3090 / A100 by size", "GPU not stated"),
        ("not stated (H100 class in the blog)", "GPU not stated"), ("GH200 96GB", "GPU not modelled"),
        ("MI300X", "GPU not modelled"), ("8x B200", "GPU not modelled"),
    ],
)  # fmt: skip
def test_other_gpus_have_a_reason(text, reason):
    assert gpu_of(text) == reason


@pytest.mark.parametrize(
    ("text", "model", "weights"),
    [
        ("bf16 (default)", "x", "bf16"), ("fp16/bf16", "x", "bf16"), ("awq int4", "x", "int4"),
        ("fp8 native", "x", "fp8"), (None, "Llama-3-8B-FP8-dynamic", "fp8"), (None, "Llama-3-8B", None),
        ("bf16 (assumed, checkpoint native)", "Kimi-K2", None), ("nvfp4", "x", "int4"),
    ],
)  # fmt: skip
def test_precisions(text, model, weights):
    assert weights_of(text, model).format == weights


def test_data_sets_keep_the_order_of_the_text():
    assert datasets_of("HumanEval, MT-bench and gsm8k") == ("humaneval", "mt_bench", "gsm8k")
    assert datasets_of("generated-shared-prefix") == ()


@pytest.mark.parametrize(
    ("model", "served"),
    [
        (
            {"model": "meta-llama/Meta-Llama-3.1-8B-Instruct-FP8-dynamic", "params_b": 8},
            "llama-3.1-8b-instruct",
        ),
        (
            {"model": "Llama-4-Scout-FP8", "params_b": 109, "active_params_b": 17},
            "llama-4-scout-17b-16e-instruct",
        ),
        (
            {"model": "acme/Tuned-Llama-3.3-70B", "params_b": 70.6, "arch": "dense"},
            "llama-3.3-70b-instruct",
        ),
        (
            {"model": "zai-org/GLM-4.7-FP8", "params_b": 218, "weight_precision": "fp8"},
            "glm-4.7",
        ),
    ],
)
def test_models_are_found_in_the_catalogue(tmp_path, model, served):
    count = {"count": 8, "tp": 8}
    run = the_run(tmp_path, changed(PLAIN, target=model, hardware=count))
    assert run.plain is not None
    assert run.plain.target.model == served
