"""`--set path=value`, flags, and the file that `init` writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulator.errors import InputError
from simulator.scenario import (
    AcceptanceGeometric,
    ArrivalsPoisson,
    LengthsLognormal,
    Scenario,
    parse_scenario,
    scenario_from_flags,
    scenario_yaml,
)
from tests.scenario_texts import MINIMAL, WITH_VARIANT


def with_set(*overrides: str) -> Scenario:
    return parse_scenario(WITH_VARIANT, overrides=overrides)


def test_variants_and_classes_are_addressed_by_name_or_number() -> None:
    for path in ("speculation.eagle3-k3", "speculation.0"):
        acceptance = with_set(f"{path}.acceptance.alpha=0.6").speculation[0].acceptance
        assert acceptance == AcceptanceGeometric(alpha=0.6)
    assert with_set("workload.classes.code.share=0.5").workload.classes[0].share == 0.5


def test_names_may_hold_dots() -> None:
    renamed = "speculation.eagle3-k3.name=llama-3.2-1b"
    variants = "speculation=[{name: a, method: ngram}, {name: a.b, method: ngram}]"
    assert (
        with_set("workload.classes=[]", renamed, "speculation.llama-3.2-1b.draft_length=7")
        .speculation[0]
        .draft_length
        == 7
    )
    both = parse_scenario(
        MINIMAL, overrides=[variants, "speculation.a.b.draft_length=5", "speculation.a.draft_length=1"]
    )
    assert [variant.draft_length for variant in both.speculation] == [1, 5]


def test_a_value_is_yaml() -> None:
    assert with_set(
        "workload.arrivals={kind: poisson, rate_per_s: 1e-1}"
    ).workload.arrivals == ArrivalsPoisson(rate_per_s=0.1)
    assert with_set("target.weights=null").target.weights is None
    assert with_set("name=a = b").name == "a = b"
    assert with_set("run.mechanisms.prefill=false").run.mechanisms.prefill is False


def test_sections_that_the_file_leaves_out_begin_at_their_defaults() -> None:
    assert with_set("slo.ttft_p99_s=1").slo is not None
    assert with_set("workload.prompt_tokens.median=500").workload.prompt_tokens == LengthsLognormal(
        median=500, p95=3500, max=8000
    )
    variant = "speculation=[{method: ngram}]"
    assert with_set("workload.classes=[]", variant, "speculation.0.acceptance.alpha=0.2").speculation[
        0
    ].acceptance == AcceptanceGeometric(alpha=0.2)


def test_the_last_of_two_overrides_holds() -> None:
    assert with_set("run.seed=1", "run.seed=2").run.seed == 2


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("run.seed", "is not path=value"),
        ("=3", "is not path=value"),
        ("run.seed=[", "--set run.seed: is not YAML"),
        ("speculation.eagle-k3.draft_length=2", "did you mean 'eagle3-k3'?"),
        ("speculation.1.draft_length=2", "known: eagle3-k3"),
        ("workload.requests.x=2", "is no section"),
        ("run.sed=2", "did you mean seed?"),
        ("run.seed={a: 1, a: 2}", "stands twice"),
    ],
)
def test_overrides_that_cannot_be(override: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        with_set(override)
    assert message in str(error.value)


def test_flags_make_a_scenario() -> None:
    scenario = scenario_from_flags(
        {"model": "llama-3.3-70b-instruct", "weights": "fp8", "gpu": "h200-sxm", "tensor_parallel": 2,
         "method": "eagle3", "draft": "eagle3-llama-3.3-70b", "draft_length": "[[1, 8, 4], [9, null, 1]]",
         "alpha": 0.6, "concurrency": 8, "preset": "sglang-0.5"},
        ["run.seed=3"],
    )  # fmt: skip
    assert (scenario.target.weights, scenario.hardware.gpu, scenario.hardware.tensor_parallel) == (
        "fp8",
        "h200-sxm",
        2,
    )
    assert scenario.speculation[0].draft_length == ((1, 8, 4), (9, None, 1))
    assert scenario.speculation[0].acceptance == AcceptanceGeometric(alpha=0.6)
    assert (scenario.engine.preset, scenario.run.seed) == ("sglang-0.5", 3)
    assert scenario_from_flags({"model": "llama-3.3-70b-instruct"}).speculation == ()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"gpu": "h100-sxm"}, ["--model: is missing"]),
        ({"model": "x", "alpha": 0.5}, ["--alpha: has no meaning without a method"]),
        ({"alpha": 0.5, "method": "none"}, ["--model: is missing", "--alpha: has no meaning"]),
        (
            {"model": "nope", "gpu": "tpu", "concurrency": 0},
            [
                "--model: target.model: unknown",
                "--gpu: hardware.gpu: unknown",
                "--concurrency: workload.arrivals.concurrency: is out of range",
            ],
        ),
    ],
)
def test_flags_that_say_too_little_or_wrong(flags: dict[str, object], message: list[str]) -> None:
    with pytest.raises(InputError) as error:
        scenario_from_flags(flags)
    for part in message:
        assert part in str(error.value)


ODD_NAMES = [
    *("true", "null", "12", "1e3", "a: b", "# c", "'quoted' \"twice\""),
    *("tab\there", "ümläut 😀", "-", " x "),
]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_the_written_file_loads_to_an_equal_scenario(name: str) -> None:
    scenario = parse_scenario(MINIMAL, overrides=[f"name={json.dumps(name)}"])
    assert scenario.name == name
    assert parse_scenario(scenario_yaml(scenario)) == scenario


@pytest.mark.parametrize(
    "override",
    [
        "speculation.eagle3-k3.draft_length=[[1, 15, 5], [16, null, 0]]",
        "speculation.eagle3-k3.draft_length={policy: goodput, max: 7}",
        "speculation.eagle3-k3.tree={depth: 5, top_k: 4, nodes: 16, dynamic: true}",
        "speculation.eagle3-k3.tree={parents: [-1, 0, 0]}",
        "speculation.eagle3-k3.acceptance={model: positional, survival: [0.7, 0.31, 1e-7]}",
        "speculation.eagle3-k3.acceptance={model: geometric, mean_acceptance_length: 2, at_draft_length: 3}",
        "workload.arrivals={kind: profile, rates_per_s: [[0, 1], [60, 2.5]]}",
        "workload.sessions={turns: 4, gap_s: 2}",
        "slo={ttft_p99_s: 1.0}",
        "engine.host={step_s: 1.0e-3}",
    ],
)
def test_every_form_survives_writing_and_reading(override: str) -> None:
    scenario = with_set(override)
    text = scenario_yaml(scenario)
    assert parse_scenario(text) == scenario
    assert scenario_yaml(parse_scenario(text)) == text


def test_the_written_file_explains_its_keys() -> None:
    lines = scenario_yaml(with_set()).splitlines()
    explained = [line for line in lines if "#" in line]
    assert len(explained) > 0.9 * len([line for line in lines if not line.startswith("#")])


def test_the_example_is_the_example_of_the_contract() -> None:
    from simulator.scenario.flags import EXAMPLE

    example = Path(__file__).parents[2] / "examples" / "llama-3.3-70b-eagle3-h100.yaml"
    from_file = parse_scenario(example.read_text("utf-8"))
    from_flags = scenario_from_flags(EXAMPLE)
    assert from_flags.target == from_file.target
    assert from_flags.hardware == from_file.hardware
    assert from_flags.speculation[0].draft == from_file.speculation[0].draft
    assert from_flags.workload == from_file.workload


@pytest.mark.parametrize("override", ["nowhere.at.all=1", "..=1", "run.x.y=1"])
def test_a_new_key_is_the_override_s_fault_not_the_file_s(override: str) -> None:
    with pytest.raises(InputError) as error:
        parse_scenario(MINIMAL, "s.yaml", overrides=[override])
    (problem,) = error.value.problems
    assert problem.file == f"--set {override.partition('=')[0]}"
