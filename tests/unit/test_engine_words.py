"""Words of serving engines in scenarios: taken for ours, noted, or answered with the nearest of ours."""

from __future__ import annotations

import pytest

from simulator.document import Document
from simulator.errors import InputError
from simulator.scenario import Scenario, defaults_used, parse_scenario, scenario_from_flags
from simulator.scenario.engine_words import take_engine_words
from tests.scenario_texts import MINIMAL

FLAGS = {"model": "llama-3.1-8b-instruct", "concurrency": 4}


def of_flags(**flags: object) -> Scenario:
    return scenario_from_flags({**FLAGS, **flags})


@pytest.mark.parametrize(
    ("word", "method"),
    [
        ("nextn", "mtp"), ("NEXTN", "mtp"), ("deepseek_mtp", "mtp"), ("qwen3_next_mtp", "mtp"),
        ("ngram_gpu", "ngram"), ("draft-model", "draft_model"), ("STANDALONE", "draft_model"),
        ("eagle-3", "eagle3"), ("EAGLE 3", "eagle3"), ("p-eagle", "peagle"), ("eagle", "eagle"),
    ],
)  # fmt: skip
def test_methods_by_the_names_that_engines_give_them(word: str, method: str) -> None:
    document = Document({"speculation": [{"method": word}]})
    take_engine_words(document)
    assert document.data == {"speculation": [{"method": method}]}
    assert bool(document.taken) is (word != method)


@pytest.mark.parametrize(
    ("field", "word", "value"),
    [
        ("weights", "awq", "int4"), ("weights", "gptq", "int4"), ("kv_cache", "auto", "bf16"),
        ("kv_cache", "fp8_e4m3", "fp8"), ("gpu", "h100", "h100-sxm"), ("gpu", "H200", "h200-sxm"),
        ("gpu", "a100", "a100-sxm-80gb"),
    ],
)  # fmt: skip
def test_formats_and_gpus_by_the_words_that_engines_take(field: str, word: str, value: str) -> None:
    scenario = of_flags(**{field: word})
    section, key = ("hardware", "gpu") if field == "gpu" else ("target", field)
    assert getattr(getattr(scenario, section), key) == value
    assert defaults_used(scenario)[f"{section}.{key}"] == value


@pytest.mark.parametrize(("word", "nearest"), [("nvfp4", "mxfp4"), ("mxfp8", "fp8_block")])
def test_a_format_without_prices_is_answered_with_the_nearest(word: str, nearest: str) -> None:
    with pytest.raises(InputError, match=f"--weights: .* the nearest is {nearest} .got '{word}'."):
        of_flags(weights=word)


def test_words_are_taken_from_files_and_from_set_and_name_the_variant() -> None:
    text = MINIMAL.replace("h100-sxm", "h100")
    variants = 'speculation=[{"method": "eagle-3", "draft_length": 2}]'
    scenario = parse_scenario(text, overrides=[variants, "target.kv_cache=fp8_e4m3"])
    assert scenario.hardware.gpu == "h100-sxm"
    assert scenario.target.kv_cache == "fp8"
    assert [(variant.name, variant.method) for variant in scenario.speculation] == [("eagle3-k2", "eagle3")]


def test_what_is_no_word_of_an_engine_is_still_refused() -> None:
    with pytest.raises(InputError, match="unknown method"):
        of_flags(method="eagle-9")
    with pytest.raises(InputError, match="unknown GPU"):
        of_flags(gpu="h1000")
