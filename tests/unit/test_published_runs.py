"""Published points as runs: what is simulated of them, and what is said where something is missing."""

from __future__ import annotations

import dataclasses
import pickle
import random
from collections import Counter

import pytest

from calibration.validation.coverage import counts
from calibration.validation.reconstruction.cases import committed_cases
from calibration.validation.reconstruction.evidence import AcceptanceEvidence
from calibration.validation.reconstruction.published_run import PublishedFigure
from calibration.validation.reconstruction.reconstruct import published_runs_of, published_runs_of_cases
from simulator.acceptance import acceptance_model
from simulator.breakeven.theory import harmonic_mean
from simulator.models.catalogue import load_model
from tests.published_cases import PLAIN, SPEC, changed, runs_in, the_run


@pytest.mark.parametrize(("size", "active"), [(9, None), (230, 10), (57, 14), (0.5, None), (600, 40)])
def test_an_unknown_model_is_built_of_its_size(tmp_path, size, active):
    target = {"model": "Mystery", "params_b": size, "active_params_b": active, "arch": None}
    run = the_run(
        tmp_path, changed(PLAIN, target=target, hardware={"count": None, "tp": None, "gpu": "H200"})
    )
    assert "GPUs not stated: ratios only" in run.skipped.values()  # its throughput says nothing of one engine
    both = changed(SPEC, target=target, hardware={"count": 16, "tp": 16, "gpu": "H200"})
    run = the_run(tmp_path, both)
    assert run.plain is not None, run.skipped
    model = load_model(run.plain.target.model)
    assert model.parameters == pytest.approx(size * 1e9, rel=0.06)
    assert model.active_parameters == pytest.approx((active or size) * 1e9, rel=0.06)
    assert any("Mystery is not known" in choice for choice in run.choices)


def test_two_sides_are_two_scenarios(tmp_path):
    case = changed(
        SPEC,
        framework={"name": "baseline vLLM 0.11; spec SGLang 0.5.3", "version": None},
        target={"weight_precision": "baseline bf16; spec fp8"},
    )
    run = the_run(tmp_path, case)
    assert run.plain is not None
    assert run.spec is not None
    assert run.plain.engine.preset.startswith("vllm")
    assert run.spec.engine.preset.startswith("sglang")
    assert (run.plain.target.weights, run.spec.target.weights) == (None, "fp8")
    assert run.plain.workload == run.spec.workload
    assert run.engine == f"{run.plain.engine.preset} | {run.spec.engine.preset}"


def test_one_scenario_serves_both_sides_that_ran_on_the_same(tmp_path):
    run = the_run(tmp_path, SPEC)
    assert run.plain is run.spec
    assert run.spec is not None
    (variant,) = run.spec.speculation
    assert (variant.name, variant.method, variant.draft, variant.draft_length) == (
        "spec",
        "eagle3",
        "eagle3-llama-3.1-8b",
        3,
    )
    assert run.acceptance_from == "given"
    model = acceptance_model(variant.acceptance, 3)
    assert harmonic_mean(*model.mean_acceptance_lengths_by_request(3)) == pytest.approx(2.6)


@pytest.mark.parametrize(
    ("point", "arrivals", "batch"),
    [
        ({"batch_size": 4}, "closed", 4), ({"concurrency": "16"}, "closed", 16),
        ({"max_num_seqs": 8}, "closed", 8),
        ({"request_rate_rps": 2.5}, "poisson", None), ({"request_rate_rps": "inf"}, "burst", None),
        ({"concurrency_cap": 32, "profile": "chat"}, "closed", 32), ({"moon": 1}, None, None),
    ],
)  # fmt: skip
def test_loads(tmp_path, point, arrivals, batch):
    case = {**PLAIN, "load_axis": "moon", "points": [{**point, "baseline": {"tpot_mean_ms": 8}}]}
    run = the_run(tmp_path, case)
    assert run.batch == batch
    if arrivals is None:
        assert run.skipped == {"plain": "load not stated"}
    else:
        assert run.plain is not None
        assert run.plain.workload.arrivals.kind == arrivals


def test_figures_are_in_si_and_of_all_gpus(tmp_path):
    variant = {
        "output_tok_per_s_per_gpu": 50, "ms_per_token": 20, "itl_mean_ms": 21, "ttft_p99_ms": 900,
        "ttft_p90_ms": 1,
        "e2e_latency_p99_ms": 4000, "e2e_latency_mean_s": 3, "tpot_p99_ms": "30", "output_tok_per_s": None,
    }  # fmt: skip
    case = changed(PLAIN, hardware={"count": 4, "tp": 2}, points=[{"concurrency": 4, "baseline": variant}])
    run = the_run(tmp_path, case)
    assert set(run.published) == {
        PublishedFigure("throughput", "plain", 200), PublishedFigure("tpot_mean", "plain", 0.02),
        PublishedFigure("tpot_p99", "plain", 0.03),
        PublishedFigure("itl_mean", "plain", 0.021), PublishedFigure("ttft_p99", "plain", 0.9),
        PublishedFigure("e2e_mean", "plain", 3), PublishedFigure("e2e_p99", "plain", 4),
    }  # fmt: skip
    assert run.plain is not None
    assert (run.plain.hardware.tensor_parallel, run.plain.hardware.replicas) == (2, 2)


def test_a_total_with_prompts_counts_by_its_outputs(tmp_path):
    run = the_run(tmp_path, {**PLAIN, "points": [{"concurrency": 4, "baseline": {"total_tok_per_s": 1000}}]})
    assert run.published == (PublishedFigure("throughput", "plain", pytest.approx(1000 * 128 / 640)),)


def test_speedups_follow_from_both_variants_in_the_terms_of_the_case(tmp_path):
    points = [{"concurrency": 4, "k": 3, "baseline": {"tpot_mean_ms": 8}, "spec": {"tpot_mean_ms": 5}}]
    case = {**SPEC, "speedup_of": "tpot_mean", "points": points}
    (speedup,) = [figure for figure in the_run(tmp_path, case).published if figure.quantity == "speedup"]
    assert speedup.value == pytest.approx(1.6)


def test_shares_and_step_times_are_trials_of_single_steps(tmp_path):
    shares = {"drafting": 20.0, "verification": 70.0, "rejection_sampling": 0.0, "system_overhead": 10.0}
    steps = {"batch_size": 8, "k": 3, "verify_ms": 11.0, "plain_step_ms": 10.0, "speedup": 1.5}
    case = {**SPEC, "points": [{"batch_size": 8, "share_pct": shares}, steps]}
    share, ratio, run = runs_in(tmp_path, case)
    assert [(figure.part, figure.value) for figure in share.published] == [
        ("draft", 0.2),
        ("verify", 0.7),
        ("host", 0.1),
    ]
    assert ratio.published == (PublishedFigure("step_ratio", "both", 1.1),)
    assert share.uniform
    assert ratio.uniform
    assert not run.uniform
    assert share.spec is not None
    assert ratio.spec is not None


@pytest.mark.parametrize(
    ("draft", "point", "reason"),
    [
        ({"topk": 4, "num_draft_tokens": 16}, {}, "tree"),
        ({"method": "eagle2", "topk": None}, {}, "tree"),
        ({"method": "hydra"}, {}, "method hydra"),
        ({"method": "eagle/ngram"}, {}, "several methods in one point"),
        (
            {"method": "rest", "topk": None},
            {"acceptance_length": None},
            "no acceptance published for this method",
        ),
        ({}, {"acceptance_length": 9.0}, "acceptance length above K + 1"),
        (
            {"method": "draft_model", "model": "llama3.2_1b_streaming"},
            {},
            "drafter that keeps part of its KV",
        ),
    ],
)
def test_drafts_that_cannot_be_simulated_leave_the_plain_variant(tmp_path, draft, point, reason):
    variants = {"baseline": {"tpot_mean_ms": 8}, "spec": {"tpot_mean_ms": 5}}
    case = changed(SPEC, draft=draft, points=[{**SPEC["points"][0], **variants, **point}])
    run = the_run(tmp_path, case)
    assert run.skipped == {"spec": reason}
    assert run.spec is None
    assert run.plain is not None
    assert run.plain.speculation == ()


@pytest.mark.parametrize(
    ("published", "method"),
    [
        ("EAGLE-3", "eagle3"),
        ("eagle3.1", "eagle3"),
        ("EAGLE", "eagle"),
        ("N-gram", "ngram"),
        ("sps", "draft_model"),
    ],
)
def test_methods_are_known_however_they_are_spelt(tmp_path, published, method):
    run = the_run(tmp_path, changed(SPEC, draft={"method": published}))
    assert run.method == method
    assert run.spec is not None
    assert run.spec.speculation[0].method == method


def test_a_launch_line_names_the_seats(tmp_path):
    launched = changed(PLAIN, notes=["command: vllm serve m --max-num-seqs 64"])
    run = the_run(tmp_path, launched)
    assert run.plain is not None
    assert run.plain.engine.max_num_seqs == 64


def test_replicas_that_cannot_hold_the_model_are_one_engine(tmp_path):
    target = {"model": "DeepSeek-V3", "params_b": 671, "active_params_b": 37, "weight_precision": "fp8"}
    hardware = {"gpu": "H200", "count": 8, "tp": 1, "ep": 8}
    run = the_run(tmp_path, changed(PLAIN, target=target, hardware=hardware))
    assert run.plain is not None
    assert (run.plain.hardware.tensor_parallel, run.plain.hardware.replicas) == (8, 1)
    assert run.plain.hardware.attention_dp == 8


def test_flagged_and_recalled_cases_are_counted_not_simulated(tmp_path):
    for fields, reason in (
        ({"confidence": "recalled"}, "recalled, not read in the source"),
        ({"quality_flags": ["handicapped_baseline"]}, "plain run handicapped: acceptance only"),
        ({"kind": "power"}, "kind of case not known"),
    ):
        run = the_run(tmp_path, {**SPEC, **fields})
        assert set(run.skipped.values()) == {reason}
        assert run.plain is None
        assert run.spec is None


def test_where_the_gpus_are_not_stated_only_ratios_are_compared(tmp_path):
    variants = {"baseline": {"output_tok_per_s": 100}, "spec": {"output_tok_per_s": 150}}
    target = {"model": "Llama-3.3-70B-Instruct", "params_b": 70.6}
    case = changed(SPEC, hardware={"count": None, "tp": None}, target=target)
    absolute, ratio = runs_in(
        tmp_path, {**case, "points": [{**SPEC["points"][0], **variants, "speedup": None}]}
    )
    assert absolute.plain is None
    assert [figure.quantity for figure in ratio.published] == ["speedup"]
    assert ratio.plain is not None
    assert (
        ratio.plain.hardware.tensor_parallel == 4
    )  # two cards of 80 GB hold 141 GB of weights, not the load
    assert "GPUs not stated: 4, the fewest that fit, taken" in ratio.choices


def test_the_committed_cases_are_covered():
    cases = [case for case in committed_cases() if counts(case)]
    runs = published_runs_of_cases(cases)
    done = {
        (run.case.source_id, run.case.case_id)
        for run in runs
        for figure in run.published
        if (run.plain is not None or figure.variant == "spec")
        and (run.spec is not None or figure.variant == "plain")
    }
    assert len(done) >= 0.78 * len(cases)
    reasons = Counter(reason for run in runs for reason in run.skipped.values())
    assert len(reasons) < 20
    assert all(len(reason) < 60 for reason in reasons)
    assert pickle.loads(pickle.dumps(runs[:20])) == runs[:20]


def test_nothing_that_a_stranger_writes_raises(tmp_path):
    """Committed cases with leaves replaced by what does not belong there."""
    odd = [
        None,
        0,
        -1,
        1e9,
        "inf",
        "",
        [],
        {},
        True,
        "H100",
        {"mean": -3},
        [0.9, 0.5],
        float("inf"),
        "x / y",
        "12",
    ]
    rng = random.Random(1)
    cases = committed_cases()
    evidence = AcceptanceEvidence.of(cases[:30])
    for _ in range(150):
        case = rng.choice(cases)
        sections = {
            name: dataclasses.replace(section, **{rng.choice(dataclasses.fields(section)).name: None})
            for name in ("hardware", "target", "draft", "framework", "workload")
            if (section := getattr(case, name)) is not None and rng.random() < 0.4
        }
        points = tuple(
            {key: rng.choice(odd) if rng.random() < 0.3 else value for key, value in point.items()}
            for point in case.points[:2]
        )
        strange = dataclasses.replace(case, **sections, points=points)
        for run in published_runs_of(strange, evidence):
            assert run.published or run.skipped or not run.plain
            for figure in run.published:
                needed = ("plain", "spec") if figure.variant == "both" else (figure.variant,)
                assert all(getattr(run, variant) is not None or variant in run.skipped for variant in needed)
