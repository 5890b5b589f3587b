"""Finding models and drafters by name, path and other people's spelling."""

import json

import pytest

from simulator.errors import InputError
from simulator.memory.report import memory
from simulator.models.catalogue import (
    drafters,
    entry,
    find_drafter,
    find_model,
    load_model,
    taken_as,
    targets,
)
from simulator.scenario import scenario_from_flags


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("Meta-Llama-3.3-70B-Instruct", "llama-3.3-70b-instruct"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama-3.3-70b-instruct"),
        ("nvidia/Llama-3.3-70B-Instruct-FP8", "llama-3.3-70b-instruct"),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "llama-3.3-70b-instruct"),
        ("neuralmagic/Meta-Llama-3.1-8B-Instruct-quantized.w8a8", "llama-3.1-8b-instruct"),
        ("llama3.1:8b", "llama-3.1-8b-instruct"),
        ("LLaMA2-Chat-7B", "llama-2-7b-chat"),
        ("Vicuna-13B", "vicuna-13b-v1.3"),
        ("Qwen3 32B", "qwen3-32b"),
        ("Qwen3-8B (thinking)", "qwen3-8b"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", "qwen3-235b-a22b-instruct-2507"),
        ("Qwen-2.5-7B", "qwen2.5-7b-instruct"),
        ("DeepSeek-R1-0528", "deepseek-r1"),
        ("deepseek-ai/DeepSeek-V3-0324", "deepseek-v3"),
        ("Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b-instruct"),
        ("GPT-OSS 120B", "gpt-oss-120b"),
        ("GLM-4.7-FP8", "glm-4.7"),
        ("Kimi-K2-Instruct-0905", "kimi-k2-instruct-0905"),
        ("Mistral-7B-Instruct", "mistral-7b-instruct-v0.3"),
        ("Qwen2.5-72B", "qwen2.5-72b-instruct"),
        ("Llama 4 Maverick", "llama-4-maverick-17b-128e-instruct"),
        ("gemma-4-26b", "gemma-4-26b-a4b-it"),
        ("nvidia/Llama-3_3-Nemotron-Super-49B-v1", "llama-3.3-nemotron-super-49b-v1"),
        ("phi-3-5-mini", "phi-3.5-mini-instruct"),
        ("qwen3.5-35b", "qwen3.5-35b-a3b"),
        ("apertus-70b", "apertus-70b-instruct-2509"),
        ("Mistral-Small-Instruct-2409", "mistral-small-instruct"),
        ("SmolLM2-135M", "smollm2-135m-instruct"),
    ],
)
def test_spellings_of_models(written, name):
    assert find_model(written) == name
    assert load_model(written).name == name


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("yuhuili/EAGLE3-LLaMA3.3-Instruct-70B", "eagle3-llama-3.3-70b-yuhuili"),
        ("lmsys/SGLang-EAGLE3-Llama-3.3-70B-Instruct-Specforge", "eagle3-llama-3.3-70b"),
        ("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "eagle3-llama-3.1-8b"),
        ("RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3", "eagle3-llama-3.1-8b-redhat"),
        ("yuhuili/EAGLE-LLaMA3-Instruct-8B", "eagle-llama-3-8b-instruct"),
        ("meta-llama/Llama-3.2-1B-Instruct", "llama-3.2-1b-instruct"),
    ],
)
def test_spellings_of_drafters(written, name):
    assert find_drafter(written) == name


def test_every_name_and_every_hugging_face_id_finds_itself():
    for name in targets():
        assert find_model(name) == name
        assert find_model(entry(name).hugging_face) == name
    for name in drafters():
        assert find_drafter(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "llama",
        "deepseek",
        "Llama-3-1-Instruct",
        "medgemma",
        "ernie-4.5",
        "meituan",
        "stable",
        "Mistral-Small-2501",
        "gemma-4-33B-it-FP8",
        "T5-XXL",
        "",
        "-",
        "\0",
        "x" * 500,
    ],
)
def test_unknown_models_are_refused_with_how_many_are_known(name):
    with pytest.raises(
        InputError, match=rf"unknown model.*{len(targets())} are known.*; or path of a config"
    ):
        load_model(name)


@pytest.mark.parametrize(("name", "near"), [("llama-4", "llama-4-scout"), ("Qwen3-33B", "qwen3-32b")])
def test_the_names_that_are_closest_to_an_unknown_one_are_listed(name, near):
    with pytest.raises(InputError, match=rf"are known, among them [^;]*{near}") as error:
        load_model(name)
    assert len(str(error.value)) < 500


def test_a_near_miss_is_suggested():
    with pytest.raises(InputError, match=r"did you mean 'llama-3\.3-70b-instruct'"):
        load_model("lama-3.3-70b-instrct")


def test_paths_are_relative_to_the_given_folder(tmp_path):
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(entry("smollm2-135m-instruct").config))
    model = load_model("my-model/config.json", tmp_path)
    assert model.parameters == load_model("smollm2-135m-instruct").parameters
    assert model.name == "my-model"
    assert str(folder) in model.source
    assert load_model("./my-model", tmp_path).parameters == model.parameters


@pytest.mark.parametrize("path", ["missing.json", "./missing", "/nowhere/at/all"])
def test_missing_files_are_said_to_be_missing(path, tmp_path):
    with pytest.raises(InputError, match="is not there"):
        load_model(path, tmp_path)


def test_entries_say_where_they_come_from():
    for name in drafters():
        known = entry(name)
        assert known.hugging_face.count("/") == 1
        assert known.source
        for target in known.targets:
            assert target in targets()
    assert "confirmed" in entry("eagle3-llama-3.3-70b").source
    assert "not confirmed" in entry("eagle3-llama-4-maverick").source


def test_the_catalogue_covers_what_people_ask_for():
    names = """llama-2-7b-chat llama-2-70b-chat llama-3.1-8b-instruct llama-3.1-405b-instruct
    llama-3.2-1b-instruct
        llama-3.3-70b-instruct vicuna-33b-v1.3 qwen3-0.6b qwen3-32b qwen3-30b-a3b qwen3-235b-a22b qwen3.5-27b
        qwen3-coder-480b-a35b-instruct qwen3.5-397b-a17b mixtral-8x7b-instruct mixtral-8x22b-instruct
        deepseek-v3 deepseek-r1 deepseek-v3.1 deepseek-v3.2 gpt-oss-20b gpt-oss-120b glm-4.5 glm-4.6 glm-5
        kimi-k2-instruct smollm2-135m-instruct smollm2-1.7b-instruct""".split()
    assert set(names) <= set(targets())
    heads = """eagle3-llama-3.3-70b eagle3-llama-3.1-8b eagle3-qwen3-8b eagle3-qwen3-14b eagle3-qwen3-32b
        eagle3-qwen3-30b-a3b eagle3-qwen3-235b-a22b eagle3-gpt-oss-120b eagle-vicuna-7b-v1.3 mtp-deepseek-v3
        mtp-glm-4.5 mtp-qwen3.5-27b""".split()
    assert set(heads) <= set(drafters())


@pytest.mark.parametrize(
    ("written", "weights"),
    [
        ("Qwen/Qwen3-8B", "bf16"), ("Qwen/Qwen3-8B-AWQ", "int4"), ("Qwen/Qwen3-8B-FP8", "fp8_block"),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "fp8"), ("llama-3.1-8b-quantized.w8a8", "fp8"),
        ("nvidia/DeepSeek-R1-FP4", "int4"), ("deepseek-r1", "fp8_block"), ("deepseek-r1-fp8", "fp8_block"),
        ("gpt-oss-20b", "mxfp4"), ("gpt-oss-20b-bf16", "bf16"), ("Qwen2.5-72B-Instruct-GPTQ-Int8", "fp8"),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "bf16"),
    ],
)  # fmt: skip
def test_a_name_that_says_how_weights_are_stored_is_that_version(written, weights):
    assert load_model(written).weights == weights


def test_what_a_name_is_taken_for_is_said():
    assert taken_as("qwen3-8b") is None
    assert taken_as("Qwen/Qwen3-8B") is None
    assert (
        taken_as("Qwen3-8B-AWQ") == "Qwen3-8B-AWQ is taken as qwen3-8b (Qwen/Qwen3-8B) with weights in int4"
    )
    notes = memory(scenario_from_flags({"model": "mistral small", "gpu": "h100-sxm"})).notes
    assert notes[0].startswith("mistral small is taken as mistral-small-instruct (")
