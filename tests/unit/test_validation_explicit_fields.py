"""Explicit fields of published cases: each changes what is simulated, and overrules words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from calibration.conversion.convert import converted, converted_document
from calibration.validation.reconstruction.published_run import PublishedRun
from simulator.engines.presets import load_preset
from simulator.models.catalogue import load_drafter, load_model
from simulator.scenario import Scenario
from tests.published_cases import PLAIN, SPEC, changed, runs_in, the_run

MOE = {
    "model": "DeepSeek-V3",
    "params_b": 671,
    "active_params_b": 37,
    "arch": "moe",
    "weight_precision": "fp8",
}
EIGHT = changed(PLAIN, hardware={"gpu": "H200", "count": 8, "tp": 8}, target=MOE)


def setting(run: PublishedRun) -> dict[str, Any]:
    """The sections of the scenario that a run uses, without defaults."""
    scenario = run.spec or run.plain
    assert scenario is not None, run.skipped
    return scenario.model_dump(mode="json")


def overlaps(scenario: Scenario) -> bool:
    """Whether host work hides behind the GPU."""
    preset, _ = load_preset(scenario.engine.preset)
    return preset.asynchronous and scenario.run.mechanisms.host_overlap


@pytest.mark.parametrize(
    ("section", "field", "value", "path", "expected"),
    [
        ("hardware", "attention_dp", 8, ("hardware", "attention_dp"), 8),
        ("hardware", "attention_dp", 2, ("hardware", "attention_dp"), 2),
        ("hardware", "ep", 8, ("hardware", "expert_parallel"), 8),
        ("engine_args", "max_num_seqs", 17, ("engine", "max_num_seqs"), 17),
        ("engine_args", "max_num_batched_tokens", 1024, ("engine", "max_num_batched_tokens"), 1024),
        ("engine_args", "gpu_memory_utilization", 0.8, ("engine", "gpu_memory_utilization"), 0.8),
        ("engine_args", "chunked_prefill", False, ("engine", "chunked_prefill"), False),
        ("engine_args", "prefix_caching", False, ("engine", "prefix_caching"), False),
        ("engine_args", "kv_cache_dtype", "fp8", ("target", "kv_cache"), "fp8"),
        ("workload", "ends", "eos", ("workload", "ends"), "eos"),
        ("workload", "shared_prefix_tokens", 100, ("workload", "sessions", "shared_prefix_tokens"), 100),
    ],
)  # fmt: skip
@pytest.mark.parametrize("at_point", [False, True])
def test_a_field_reaches_the_scenario(tmp_path, section, field, value, path, expected, at_point):
    def value_at(run: PublishedRun) -> Any:
        section: Any = setting(run)
        for name in path:
            section = (section or {}).get(name)
        return section

    facts = {field: value}
    case = changed(EIGHT, **{section: facts})
    if at_point:
        case = {**EIGHT, "points": [{**EIGHT["points"][0], section: facts}]}
    assert value_at(the_run(tmp_path, case)) == expected
    assert value_at(the_run(tmp_path, EIGHT)) != expected


@pytest.mark.parametrize(
    ("load", "arrivals"),
    [
        ({"kind": "closed", "concurrency": 5}, {"kind": "closed", "concurrency": 5}),
        ({"kind": "static_batch", "concurrency": 5}, {"kind": "closed", "concurrency": 5}),
        ({"kind": "rate", "request_rate_rps": 2.5}, {"kind": "poisson", "rate_per_s": 2.5}),
        ({"kind": "burst"}, {"kind": "burst"}),
        ({"kind": "closed", "concurrency": 6, "ramp_s": 3}, {"concurrency": 6, "ramp_s": 3.0}),
    ],
)
def test_an_explicit_load_overrules_the_points(tmp_path, load, arrivals):
    section = setting(the_run(tmp_path, {**PLAIN, "load": load}))["workload"]["arrivals"]
    assert {name: section.get(name) for name in arrivals} == arrivals


def test_a_load_per_rank_is_a_load_of_data_parallel_attention(tmp_path):
    case = changed(EIGHT, hardware={"count": 32, "tp": None}, load={"concurrency_per_rank": 64})
    case["points"] = [{"baseline": {"output_tok_per_s_per_gpu": 100.0}}]
    run = the_run(tmp_path, case)
    hardware = setting(run)["hardware"]
    assert (hardware["attention_dp"], hardware["replicas"]) == (8, 4)
    assert setting(run)["workload"]["arrivals"]["concurrency"] == 64 * 32


def test_experts_over_more_gpus_than_tensor_parallelism_leave_attention_per_rank(tmp_path):
    hardware = {"count": 8, "tp": 1, "ep": 8}
    section = setting(the_run(tmp_path, changed(EIGHT, hardware=hardware)))["hardware"]
    assert [section[name] for name in ("tensor_parallel", "expert_parallel", "attention_dp", "replicas")] == [
        8,
        8,
        8,
        1,
    ]
    in_words = changed(EIGHT, hardware={"count": 8, "tp": 1, "note": "-dp 8 --enable-expert-parallel"})
    assert setting(the_run(tmp_path, in_words))["hardware"] == section


@pytest.mark.parametrize(
    ("hardware", "reason"),
    [
        ({"pp": 2, "count": 16}, "pipeline parallelism over 2 stages"),
        ({"note": "TP8 PP2 over two nodes", "count": 16}, "pipeline parallelism over 2 stages"),
        ({"dcp": 4}, "context parallelism over 4 GPUs"),
        ({"tp": 16, "count": 16, "nodes": 2, "interconnect": "InfiniBand"}, "one engine over 2 nodes"),
    ],
)
def test_layouts_without_prices_are_refused_by_name(tmp_path, hardware, reason):
    assert the_run(tmp_path, changed(EIGHT, hardware=hardware)).skipped["plain"] == reason


def test_one_engine_over_nodes_that_share_a_switch_is_priced(tmp_path):
    hardware = {"tp": 16, "count": 16, "nodes": 2, "interconnect": "NVLink"}
    assert the_run(tmp_path, changed(EIGHT, hardware=hardware)).plain is not None


def test_an_engine_without_graphs_is_refused_by_name(tmp_path):
    run = the_run(tmp_path, {**PLAIN, "engine_args": {"cuda_graphs": False}})
    assert run.skipped == {"plain": "engine without CUDA graphs"}


@pytest.mark.parametrize(
    ("explicit", "words"),
    [
        ({"hardware": {"attention_dp": 1}}, "DP attention on"),
        ({"engine_args": {"max_num_seqs": 9}}, "--max-num-seqs 64"),
        ({"engine_args": {"kv_cache_dtype": "bf16"}}, "--kv-cache-dtype fp8"),
        ({"workload": {"ends": "eos"}}, "--ignore-eos"),
    ],
)
def test_fields_overrule_words(tmp_path, explicit, words):
    with_both = changed({**EIGHT, "notes": [words]}, **explicit)
    assert setting(the_run(tmp_path, with_both)) == setting(the_run(tmp_path, changed(EIGHT, **explicit)))


@pytest.mark.parametrize("stated", [False, {"spec": False}])
def test_asynchronous_scheduling_may_differ_by_variant(tmp_path, stated):
    case = changed(
        SPEC, framework={"name": "vLLM", "version": "0.17"}, engine_args={"async_scheduling": stated}
    )
    run = the_run(tmp_path, case)
    assert run.plain is not None
    assert run.spec is not None
    assert [overlaps(scenario) for scenario in (run.plain, run.spec)] == [stated is not False, False]


def test_metrics_keep_the_definition_of_the_source(tmp_path):
    arm = {"output_tok_per_s": 900.0, "tpot_mean_ms": 9.0, "itl_mean_ms": 8.0}
    case = {**PLAIN, "points": [{"concurrency": 8, "baseline": arm}]}
    definitions = {"tpot": "with_ttft", "itl": "per_token", "throughput": "total"}
    figures = {
        f.quantity: f for f in the_run(tmp_path, {**case, "metric_definitions": definitions}).published
    }
    assert figures["tpot_mean"].not_comparable == "TPOT includes TTFT"
    assert figures["itl_mean"].per_token
    assert figures["throughput"].value == pytest.approx(900 * 128 / (512 + 128))
    plain = {f.quantity: f for f in the_run(tmp_path, case).published}
    assert plain["tpot_mean"].not_comparable is None
    assert not plain["itl_mean"].per_token


def test_a_parallel_drafter_drafts_in_one_pass(tmp_path):
    run = the_run(tmp_path, changed(SPEC, draft={"parallel": True}))
    assert run.spec is not None
    assert run.spec.speculation[0].method == "peagle"


@pytest.mark.parametrize("method", ["eagle", "eagle3"])
def test_a_cut_vocabulary_makes_a_smaller_head(tmp_path, method):
    def vocabulary(**draft: object) -> int:
        run = the_run(tmp_path, changed(SPEC, draft={"method": method, **draft}))
        assert run.spec is not None
        [variant] = run.spec.speculation
        target = load_model(run.spec.target.model)
        return load_drafter(variant.draft, target, variant.method).model.vocab_size

    assert vocabulary(vocab_fraction=0.125) == 128_256 // 8
    assert vocabulary() > 128_256 // 8


def test_words_become_fields_and_are_named(tmp_path):
    case = {
        **EIGHT,
        "notes": ["DP attention on, --max-num-seqs 64 --ignore-eos"],
        "points": [{"baseline": {"output_tok_per_s": 9.0}}],
    }
    result = converted(case)
    assert result.case["hardware"]["attention_dp"] is True
    assert result.case["engine_args"] == {"max_num_seqs": 64}
    assert {"hardware.attention_dp", "engine_args.max_num_seqs", "workload.ends"} <= set(result.from_words)
    assert converted(result.case).from_words == ()
    written = converted_document({"cases": [case]})
    assert json.loads(json.dumps(written))["cases"][0] == result.case
    (run,) = runs_in(tmp_path, {**case, "points": EIGHT["points"]})
    assert any("read from words: hardware.attention_dp" in choice for choice in run.choices)


@pytest.mark.parametrize(
    "note",
    [
        "whether data parallel attention was on is not stated",
        "no DP attention",
        "data-parallel attention off",
    ],
)
def test_a_negation_is_no_statement(note):
    assert "attention_dp" not in converted({**EIGHT, "notes": [note]}).case["hardware"]
