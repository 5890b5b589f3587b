"""What a page has set becomes a scenario, or a message at the field; a link holds it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from dashboards.app.controls import CONTROLS
from dashboards.app.settings import Base, FieldError, from_query
from simulator.scenario import parse_scenario, scenario_from_flags, scenario_yaml
from simulator.scenario.flags import EXAMPLE


@pytest.fixture(scope="module")
def base() -> Base:
    return Base(scenario_from_flags(EXAMPLE))


@pytest.mark.parametrize(
    ("name", "value", "path", "expected"),
    [
        ("weights", "bf16", "target.weights", "bf16"),
        ("kv_cache", "bf16", "target.kv_cache", "bf16"),
        ("gpu", "h200-sxm", "hardware.gpu", "h200-sxm"),
        ("tensor_parallel", 8, "hardware.tensor_parallel", 8),
        ("preset", "sglang-0.5", "engine.preset", "sglang-0.5"),
        ("draft_length", 5, "speculation.0.draft_length", 5),
        ("alpha", 0.31, "speculation.0.acceptance.alpha", 0.31),
        ("concurrency", 8, "workload.arrivals.concurrency", 8),
        ("rate", 1.5, "workload.arrivals.rate_per_s", 1.5),
        ("prompt_tokens", 100, "workload.prompt_tokens.high", 150),
        ("output_tokens", 40, "workload.output_tokens.low", 20),
        ("slo_ttft", 500, "slo.ttft_p99_s", 0.5),
        ("slo_tpot", 25, "slo.tpot_p99_s", 0.025),
    ],
)
def test_every_control_reaches_the_scenario(
    base: Base, name: str, value: Any, path: str, expected: Any
) -> None:
    data: Any = base.scenario_of({name: value}).model_dump(mode="json")
    for key in path.split("."):
        data = data[int(key)] if key.isdecimal() else data[key]
    assert data == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", "no-such-model"),
        ("gpu", "h1000"),
        ("tensor_parallel", 3),
        ("alpha", 1.5),
        ("concurrency", 0),
        ("rate", -1),
        ("prompt_tokens", -5),
        ("slo_ttft", -1),
        ("draft", "<script>"),
        ("draft_length", 1000),
        ("preset", "no-engine"),
        ("weights", "fp1"),
    ],
)
def test_what_is_wrong_is_told_at_its_field(base: Base, name: str, value: Any) -> None:
    with pytest.raises(FieldError) as refused:
        base.scenario_of({name: value})
    assert list(refused.value.messages) == [name]
    assert refused.value.messages[name]


def test_another_model_and_method_come_with_another_drafter(base: Base) -> None:
    settings = {"model": "llama-3.1-8b-instruct", "method": "ngram", "draft": None}
    scenario = base.scenario_of(settings)
    assert scenario.target.model == "llama-3.1-8b-instruct"
    assert [variant.method for variant in scenario.speculation] == ["ngram"]


def test_the_name_of_the_variant_follows_its_draft_length(base: Base) -> None:
    assert base.scenario_of({"draft_length": 5}).speculation[0].name == "eagle3-k5"


def test_no_drafts_are_plain_decoding(base: Base) -> None:
    assert base.scenario_of({"draft_length": 0, "alpha": 0.4}).speculation == ()
    assert base.scenario_of({"method": "none"}).speculation == ()


def test_the_exported_file_is_the_scenario_that_was_simulated(base: Base) -> None:
    draw = random.Random(20)
    for _ in range(50):
        settings = {
            "alpha": round(draw.random(), 2),
            "draft_length": draw.randint(1, 12),
            "concurrency": draw.choice([1, 7, 64, 300]),
            "tensor_parallel": draw.choice([2, 4, 8]),
            "prompt_tokens": draw.randint(2, 3000),
        }
        scenario = base.scenario_of(settings)
        assert parse_scenario(scenario_yaml(scenario)).scenario_sha256 == scenario.scenario_sha256


def test_a_link_holds_settings_and_nothing_else() -> None:
    query = "?alpha=0.65&concurrency=16&model=llama-3.1-8b-instruct&weights=&__proto__=1&unknown=2"
    assert from_query(query) == {
        "alpha": 0.65,
        "concurrency": 16,
        "model": "llama-3.1-8b-instruct",
        "weights": None,
    }


def test_controls_show_the_base(base: Base) -> None:
    assert base.values.keys() == CONTROLS.keys()
    assert (base.values["alpha"], base.values["concurrency"], base.values["method"]) == (0.7, 64, "eagle3")
    assert base.changed(base.values) == {}
