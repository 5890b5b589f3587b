"""Frameworks as published and what they did: which preset stands for them, and what it does by default."""

import pytest

from calibration.validation.reconstruction.engines import engine_of
from calibration.validation.reconstruction.point import NO_GRAPHS
from calibration.validation.reconstruction.sections import PublishedDraft, PublishedFramework
from calibration.validation.reconstruction.settings import CAPPED
from tests.published_cases import PLAIN, SPEC, changed, the_run
from tests.published_runs import case


@pytest.mark.parametrize(
    ("framework", "preset", "overlaps"),
    [
        ({"name": "vLLM", "version": "0.11.0"}, "vllm-0.10", True),
        ({"name": "vLLM", "version": "V1, 2025-07"}, "vllm-0.10", True),
        ({"name": "vLLM", "version": "0.31, async scheduling off"}, "vllm-0.33", False),
        ({"name": "vLLM", "version": "0.17.x"}, "vllm-0.15", True),
        ({"name": "vLLM", "version": "0.1.dev13107+ge1a34c3a5 (V1, main of 2026-01)"}, "vllm-0.14", True),
        ({"name": "vLLM", "version": "0.10.2.dev2+g1234 of 2025-08"}, "vllm-0.10", True),
        ({"name": "NVIDIA NIM", "version": "1.8.0"}, "trtllm-1", True),
        ({"name": "HF transformers (PyTorch 2.5.1)", "version": None}, "vllm-0.10", True),
        ({"name": "Shiny Engine", "version": "3"}, "vllm-0.33", True),
    ],
)
def test_frameworks_have_the_nearest_preset(tmp_path, framework, preset, overlaps):
    run = the_run(tmp_path, {**PLAIN, "framework": framework})
    assert run.plain is not None
    assert run.plain.engine.preset == preset
    assert run.plain.run.mechanisms.host_overlap is overlaps


@pytest.mark.parametrize(
    ("note", "plain_overlaps"),
    [
        ("server log: async scheduling disabled", False),
        ("one node. the draft variant ran with async scheduling disabled", True),
        ("drafts are sampled; async scheduling off", False),
        ("speculative variant adds --no-async-scheduling", True),
        (
            "for the draft_model variant this build disables async scheduling, so it waits; plain does not",
            True,
        ),
        (
            "plain: V2 runner. drafts: V1 runner (V2 refuses draft_model), async scheduling disabled, 7168",
            True,
        ),
        ("drafts: V1 runner (V2 refuses draft_model); async scheduling disabled in both", False),
        ("drafts: eagle-3, no prefix caching, async scheduling disabled", True),
        ("drafts: eagle-3, without warm-up, async scheduling disabled", True),
        ("drafts: eagle-3; the run without speculation, async scheduling disabled", False),
        ("both variants with async scheduling off, K=3 drafts", False),
        ("the baseline without speculation ran with --disable-overlap-schedule", False),
    ],
)
def test_what_is_said_of_the_variant_that_drafts_is_not_said_of_the_other(tmp_path, note, plain_overlaps):
    framework = {"name": "vLLM", "version": "0.31"}
    run = the_run(tmp_path, {**SPEC, "framework": framework, "notes": [note]})
    assert run.plain is not None
    assert run.spec is not None
    assert run.plain.run.mechanisms.host_overlap is plain_overlaps
    assert not run.spec.run.mechanisms.host_overlap


def test_early_sglang_speculates_without_overlap(tmp_path):
    run = the_run(tmp_path, {**SPEC, "framework": {"name": "SGLang", "version": "0.5.3"}})
    assert run.plain is not None
    assert run.spec is not None
    assert run.plain.run.mechanisms.host_overlap
    assert not run.spec.run.mechanisms.host_overlap


@pytest.mark.parametrize(
    ("method", "version", "preset"),
    [
        ("ngram", "0.28.0", "vllm-0.15-sync"),
        ("suffix", "0.28.0", "vllm-0.15-sync"),
        ("ngram_gpu", "0.28.0", "vllm-0.33"),
        ("eagle3", "0.28.0", "vllm-0.33"),
        ("ngram", "0.10.1", "vllm-0.10"),
    ],
)
def test_vllm_waits_for_drafts_that_are_looked_up_on_the_host(method, version, preset):
    about = case(
        draft=PublishedDraft(method=method, k=3), framework=PublishedFramework(name="vLLM", version=version)
    )
    assert engine_of(about, "spec", method).preset == preset
    assert engine_of(about, "plain").preset == ("vllm-0.10" if version == "0.10.1" else "vllm-0.33")


@pytest.mark.parametrize(
    ("axis", "clients", "notes", "request_limit"),
    [
        ("concurrency", 64, [], 48),
        ("concurrency", 48, [], None),
        ("batch_size", 64, [], None),
        ("concurrency", 64, ["--max-running-requests 200"], 200),
    ],
)
def test_sglang_seats_fewer_while_it_speculates_unless_the_source_says_otherwise(
    tmp_path, axis, clients, notes, request_limit
):
    about = changed(SPEC, framework={"name": "SGLang", "version": "0.5.9"}, load_axis=axis, notes=notes)
    point = {
        key: value for key, value in SPEC["points"][0].items() if key not in ("batch_size", "concurrency")
    }
    run = the_run(tmp_path, {**about, "points": [{**point, axis: clients}]})
    assert run.plain is not None
    assert run.spec is not None
    assert run.spec.engine.max_num_seqs == request_limit
    assert run.plain.engine.max_num_seqs == (200 if notes else None)
    assert (CAPPED in run.choices) is (request_limit == 48)


@pytest.mark.parametrize(
    ("rate", "note", "ramp_s"),
    [
        (None, "", 0.0),
        (4.0, "", 8.0),
        (None, "closed loop: --max-concurrency = c and --request-rate = c requests/s (Poisson)", 1.0),
        (None, "request rate inf with max concurrency", 0.0),
    ],
)
def test_clients_that_are_let_in_at_a_rate_do_not_begin_together(tmp_path, rate, note, ramp_s):
    point = {"concurrency": 32, "baseline": {"output_tok_per_s": 900.0}}
    point |= {} if rate is None else {"request_rate_rps": rate}
    run = the_run(tmp_path, {**PLAIN, "points": [point], "notes": [note]})
    assert run.plain is not None
    arrivals = run.plain.workload.arrivals
    assert (arrivals.kind, arrivals.concurrency, arrivals.ramp_s) == ("closed", 32, ramp_s)
    assert any("begin at" in choice for choice in run.choices) is (ramp_s > 0)


@pytest.mark.parametrize(
    ("version", "note", "simulated"),
    [
        ("0.27.1", "both variants: vllm serve m --attention-backend FLASHINFER", False),
        ("0.28.0", "both variants: vllm serve m --attention-backend FLASHINFER", True),
        ("0.27.1", "VLLM_ATTENTION_BACKEND=FLASHINFER", False),
        ("0.27.1", "attention backend FLASH_ATTN, sampling by FlashInfer", True),
    ],
)
def test_flashinfer_verified_without_graphs_which_is_not_simulated(tmp_path, version, note, simulated):
    framework = {"name": "vLLM", "version": version}
    run = the_run(tmp_path, {**SPEC, "framework": framework, "notes": [note]})
    assert run.plain is not None
    assert (run.spec is not None) is simulated
    assert (run.skipped.get("spec") == NO_GRAPHS) is not simulated
