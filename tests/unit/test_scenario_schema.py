"""The scenario: its defaults, what it refuses, what it says about itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from simulator.scenario import (
    GoodputPolicy,
    LengthsFixed,
    LengthsUniform,
    Scenario,
    TrafficClass,
    Tree,
    Variant,
    Workload,
    defaults_used,
    engine_preset,
    parse_scenario,
)
from tests.scenario_texts import MINIMAL, WITH_VARIANT

EXAMPLE = Path(__file__).parents[2] / "examples" / "llama-3.3-70b-eagle3-h100.yaml"


def test_defaults_are_those_of_the_contract() -> None:
    scenario = parse_scenario(MINIMAL + "speculation: [{method: ngram}]\n")
    assert (scenario.target.kv_cache, scenario.target.weights) == ("bf16", None)
    assert (scenario.hardware.replicas, scenario.hardware.expert_parallel) == (1, 1)
    assert scenario.hardware.attention_dp == 1
    assert scenario.hardware.router == "least-loaded"
    assert scenario.engine.preset == "vllm-0.33"
    variant = scenario.speculation[0]
    assert (variant.name, variant.draft_length, variant.draft_sampling, variant.tree) == (
        "ngram-k3",
        3,
        "greedy",
        None,
    )
    assert variant.acceptance.model_dump(exclude_none=True) == {"model": "geometric", "alpha": 0.7}
    workload = scenario.workload
    assert (workload.requests, workload.ends, workload.cancel_fraction) == (4000, "eos", 0)
    assert workload.prompt_tokens.model_dump() == {
        "kind": "lognormal",
        "median": 900,
        "p95": 3500,
        "min": 1,
        "max": 8000,
    }
    assert workload.output_tokens.model_dump() == {
        "kind": "lognormal",
        "median": 220,
        "p95": 700,
        "min": 1,
        "max": 2000,
    }
    assert (scenario.slo, scenario.run.seed, scenario.run.replications) == (None, 0, 5)
    assert all(scenario.run.mechanisms.model_dump().values())


def test_null_engine_fields_become_the_presets() -> None:
    preset, note = engine_preset(parse_scenario(MINIMAL))
    assert (preset.max_num_seqs, preset.max_num_batched_tokens, note) == (1024, 8192, None)
    assert preset.scheduler == "mixed"
    apart = parse_scenario(MINIMAL, overrides=["engine.preset=sglang-0.5"])
    assert engine_preset(apart)[0].scheduler == "prefill-apart"
    scenario = parse_scenario(MINIMAL, overrides=["engine.max_num_seqs=256", "engine.host.step_s=0.002"])
    preset, _ = engine_preset(scenario)
    assert (preset.max_num_seqs, preset.host.step_s) == (256, 0.002)
    assert preset.host.per_sequence_s == engine_preset(parse_scenario(MINIMAL))[0].host.per_sequence_s


def test_the_defaults_used_are_listed_by_path() -> None:
    used = defaults_used(parse_scenario(WITH_VARIANT))
    assert used["engine.max_num_batched_tokens"] == 8192
    assert used["speculation.eagle3-k3.draft_sampling"] == "greedy"
    assert used["speculation.eagle3-k3.draft_tensor_parallel"] == 4
    assert used["workload.classes.code.drafts"] is True
    assert used["workload.output_tokens"]["median"] == 220
    assert not {"target.model", "hardware.tensor_parallel", "speculation.eagle3-k3.draft_length"} & set(used)
    written_out = parse_scenario(EXAMPLE.read_text("utf-8"))
    assert "workload.requests" not in defaults_used(written_out)


def test_equal_scenarios_have_equal_hashes_wherever_they_were_read(tmp_path: Path) -> None:
    here = parse_scenario(MINIMAL)
    parsed = parse_scenario(MINIMAL, base_dir=Path("/tmp"), overrides=["run.seed=0"])
    assert here == parsed
    assert hash(here) == hash(parsed)
    assert here.scenario_sha256 == parsed.scenario_sha256
    assert parsed.base_dir == Path("/tmp")
    lengths = "workload.output_tokens={kind: empirical, file: lengths.csv}"
    (tmp_path / "lengths.csv").write_text("1\n", "utf-8")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "lengths.csv").write_text("9\n", "utf-8")
    read = [parse_scenario(MINIMAL, base_dir=tmp_path / name, overrides=[lengths]) for name in (".", "other")]
    assert read[0] != read[1]
    assert read[0] == read[0].at(tmp_path)
    other = parse_scenario(MINIMAL, overrides=["run.seed=1"])
    assert other != here
    assert other.scenario_sha256 != here.scenario_sha256


def test_a_scenario_is_frozen_and_survives_json() -> None:
    scenario = parse_scenario(WITH_VARIANT)
    with pytest.raises(ValidationError, match="frozen"):
        scenario.name = "other"
    assert Scenario.model_validate_json(scenario.canonical_json()) == scenario


def test_the_longest_draft_of_each_form() -> None:
    table = Variant(name="a", method="ngram", draft_length=((1, 15, 5), (16, None, 2)))
    assert [
        variant.max_draft_length
        for variant in (
            Variant(name="a", method="ngram", draft_length=0),
            table,
            Variant(name="a", method="ngram", draft_length=GoodputPolicy(policy="goodput", max=7)),
        )
    ] == [0, 5, 7]


def test_what_classes_leave_over_is_a_class_of_its_own() -> None:
    left = parse_scenario(WITH_VARIANT).workload.traffic_classes
    assert [(entry.name, round(entry.share, 9)) for entry in left] == [("code", 0.3), ("other", 0.7)]
    shares = "workload.classes=[{name: a, share: 0.3}, {name: b, share: 0.7}]"
    assert [c.name for c in parse_scenario(MINIMAL, overrides=[shares]).workload.traffic_classes] == [
        "a",
        "b",
    ]
    assert [c.share for c in parse_scenario(MINIMAL).workload.traffic_classes] == [1]


def test_sections_refuse_on_construction_too() -> None:
    with pytest.raises(ValidationError, match="high: is below low"):
        LengthsUniform(low=5, high=4)
    with pytest.raises(ValidationError, match="shares sum"):
        Workload(
            arrivals=parse_scenario(MINIMAL).workload.arrivals,
            classes=(TrafficClass(name="a", share=0.8), TrafficClass(name="b", share=0.4)),
        )
    with pytest.raises(ValidationError):
        LengthsFixed(tokens=0)
    with pytest.raises(ValidationError, match="reserved"):
        Variant(name="plain", method="ngram")


def test_a_tree_is_grown_or_given() -> None:
    assert Tree(depth=5, top_k=4, nodes=16, dynamic=True).parents is None
    assert Tree(parents=(-1, 0, 0, 1)).depth is None
    with pytest.raises(ValidationError, match="either grown"):
        Tree(parents=(-1, 0), depth=2)
    with pytest.raises(ValidationError, match="no earlier node"):
        Tree(parents=(-1, 1))
