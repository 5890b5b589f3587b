"""What fits: the figures of the specification, windows, invalid cuts, and what is said when nothing fits."""

from __future__ import annotations

import re
from dataclasses import replace
from unittest.mock import Mock

import pytest

from simulator.errors import InputError
from simulator.memory.gpu_memory import GpuMemory
from simulator.memory.report import gpu_memory, memory, smallest_tensor_parallel
from simulator.models.catalogue import load_drafter, load_model
from simulator.runs.fit import fitting_variants
from simulator.runs.variant import CompiledVariant
from simulator.scenario import Scenario, Variant, scenario_from_flags
from simulator.simulation import simulate

TWO_DRAFTERS = (
    "speculation=[{name: head, method: eagle3, draft: eagle3-llama-3.3-70b},"
    " {name: small, method: draft_model, draft: llama-3.2-1b-instruct},"
    " {name: lookup, method: ngram}]"
)


def scenario(model: str, tensor_parallel: int, *overrides: str, weights: str | None = "bf16") -> Scenario:
    flags = {"model": model, "weights": weights, "gpu": "h100-sxm", "tensor_parallel": tensor_parallel}
    return scenario_from_flags(flags, overrides)


@pytest.mark.parametrize(
    ("tensor_parallel", "kv_tokens", "head", "small"),
    [(4, 481_000, -0.038, -0.105), (2, 25_000, -0.40, -0.36)],
)
def test_llama_70b_and_what_its_drafters_cost(
    tensor_parallel: int, kv_tokens: int, head: float, small: float
) -> None:
    """bf16 with a reserve of 4 GB (worked out by hand from the shapes; the last digit is the tolerance)."""
    report = memory(scenario("llama-3.3-70b-instruct", tensor_parallel, TWO_DRAFTERS))
    held = {variant.variant: variant.kv_tokens for variant in report.variants}
    assert held["plain"] == pytest.approx(kv_tokens, abs=500)
    assert held["head"] / held["plain"] - 1 == pytest.approx(head, abs=0.005)
    assert held["small"] / held["plain"] - 1 == pytest.approx(small, abs=0.005)
    assert held["lookup"] == held["plain"]


def test_kv_of_target_and_drafter_share_the_blocks() -> None:
    plain, head, small, _ = memory(scenario("llama-3.3-70b-instruct", 4, TWO_DRAFTERS)).variants
    assert plain.kv_bytes_per_token == 327_680 / 4
    assert head.kv_bytes_per_token == (327_680 + 4096) / 4
    assert small.kv_bytes_per_token == (327_680 + 32_768) / 4
    assert plain.kv_tokens == plain.kv_blocks * 16
    assert plain.kv_blocks * 16 * plain.kv_bytes_per_token <= plain.kv_bytes


def test_kv_of_every_module_that_drafts_is_in_the_blocks() -> None:
    """Each of the three modules of MiniMax-M2.5 keeps keys and values of its own."""
    speculation = "speculation=[{name: mtp, method: mtp, draft_length: 3}]"
    plain, mtp = memory(scenario("minimax-m2.5", 8, speculation, weights=None)).variants
    drafter = load_drafter(None, load_model("minimax-m2.5"), "mtp")
    module = drafter.model.kv_bytes_per_token("bf16", 8)
    assert drafter.modules == 3
    assert mtp.kv_bytes_per_token - plain.kv_bytes_per_token == pytest.approx(3 * module, rel=1e-9)


def test_a_request_must_fit_into_the_kv_of_its_own_group() -> None:
    """GPUs whose attention is data-parallel share no KV: two groups of 500 tokens hold no request of 900."""
    memory_of_two = GpuMemory(
        variant="plain",
        device_bytes=1000,
        usable_bytes=1000,
        weights_bytes=500,
        drafter_bytes=0,
        reserve_bytes=0,
        kv_bytes_per_token=1.0,
        block_tokens=1,
        request_tokens=300.0,
        longest_request_tokens=500,
        groups=2,
    )
    longer = replace(memory_of_two, longest_request_tokens=900)
    assert memory_of_two.kv_tokens == 1000
    assert memory_of_two.fits
    assert not longer.fits
    assert longer.shortage is not None
    assert longer.shortage.endswith("leave room for 500 KV tokens, and the longest request has 900")


def test_a_drafter_on_one_gpu_is_not_cut() -> None:
    cut = scenario("llama-3.3-70b-instruct", 4, TWO_DRAFTERS)
    full = scenario("llama-3.3-70b-instruct", 4, TWO_DRAFTERS, "speculation.small.draft_tensor_parallel=1")
    single, four = gpu_memory(full, full.variant("small")), gpu_memory(cut, cut.variant("small"))
    assert single.drafter_bytes == pytest.approx(2.472e9, rel=0.001)
    assert four.drafter_bytes == pytest.approx(single.drafter_bytes / 4, rel=0.001)


def test_windows_hold_fewer_tokens_than_they_see() -> None:
    """Half of gpt-oss's layers keep 128 tokens: a long request costs little more than half per token."""
    report = memory(
        scenario("gpt-oss-120b", 2, "workload.prompt_tokens={kind: fixed, tokens: 20000}", weights=None)
    )
    full = load_model("gpt-oss-120b").kv_bytes_per_token("bf16", 2)
    assert full < report.variants[0].kv_bytes_per_token < 1.02 * full


def test_recurrent_layers_keep_a_state_per_draft_while_they_verify() -> None:
    """A rejected draft cannot be taken out of a state again: 1 + 3 states of a request, as vLLM's slots."""
    speculation = "speculation=[{name: mtp, method: mtp, draft_length: 3}]"
    expected = (
        "workload.prompt_tokens={kind: fixed, tokens: 900}",
        "workload.output_tokens={kind: fixed, tokens: 100}",
    )
    plain, spec = memory(scenario("qwen3.5-27b", 2, speculation, *expected)).variants
    state = load_model("qwen3.5-27b").kv_bytes(0, tensor_parallel=2)
    drafter = 2 * 2 * 256 * 2 * 1000  # one layer's keys and values: 2 of 4 heads on each GPU, bf16
    more = (spec.kv_bytes_per_token - plain.kv_bytes_per_token) * 1000
    assert more == pytest.approx(3 * state + drafter, rel=1e-9)
    assert spec.max_concurrency < plain.max_concurrency / 2
    assert (plain.state_bytes, spec.state_bytes) == (state, 4 * state)
    report = memory(scenario("qwen3.5-27b", 2, speculation, *expected))
    assert [note for note in report.notes if "states of recurrent layers" in note]
    dense = memory(scenario("llama-3.3-70b-instruct", 4, TWO_DRAFTERS))
    assert not [note for note in dense.notes if "recurrent" in note]


POOLS = ("engine.preset=sglang-0.5", "speculation=[{name: mtp, method: mtp, draft_length: 7}]")


def test_a_pool_of_their_own_limits_the_requests_whose_states_it_holds() -> None:
    """0.9 of 1.9 parts of what weights leave; three states of a request, one more for each row verified."""
    report = memory(scenario("qwen3.5-27b", 2, *POOLS))
    state = load_model("qwen3.5-27b").kv_bytes(0, tensor_parallel=2)
    for variant, states in zip(report.variants, (3, 11), strict=True):
        left = variant.usable_bytes - variant.weights_bytes - variant.drafter_bytes - variant.reserve_bytes
        assert variant.state_pool_bytes == pytest.approx(0.9 / 1.9 * left, rel=1e-3)
        assert variant.state_bytes == states * state
        assert (
            variant.state_request_limit
            == variant.state_pool_bytes // variant.state_bytes
            == variant.max_concurrency
        )
        assert variant.kv_bytes == left - variant.state_pool_bytes
    plain = report.variants[0]
    layers = load_model("qwen3.5-27b").kv_bytes_per_token(tensor_parallel=2)
    assert plain.kv_bytes_per_token == layers  # no state among the tokens
    assert [note for note in report.notes if "leave room for: " in note and "(mtp)" in note]


def test_a_pool_seats_no_more_in_a_run_and_the_run_says_so() -> None:
    expected = (
        "workload.arrivals={kind: closed, concurrency: 64}",
        "workload.requests=80",
        "workload.prompt_tokens={kind: fixed, tokens: 50}",
        "workload.output_tokens={kind: fixed, tokens: 60}",
        "speculation.mtp.acceptance={model: geometric, alpha: 0.6}",
        "run.replications=1",
    )
    pooled = scenario("qwen3.5-27b", 1, *POOLS, *expected)
    request_limit = [variant.state_request_limit for variant in memory(pooled).variants]
    assert request_limit == [17, 4]
    variants = [CompiledVariant.compile(pooled, variant) for variant in (None, *pooled.speculation)]
    assert [variant.settings.max_num_seqs for variant in variants] == request_limit
    notes = [note for note in simulate(pooled).notes if "are served at once" in note]
    assert [note.partition(" are")[0] for note in notes] == ["plain: at most 17", "mtp: at most 4"]
    free = scenario("qwen3.5-27b", 1, *POOLS, *expected, "run.mechanisms.kv_limit=false")
    assert CompiledVariant.compile(free, None).settings.max_num_seqs == 2048


def test_a_pool_too_small_for_one_request_does_not_start() -> None:
    few = scenario("qwen3.5-27b", 1, *POOLS, "engine.gpu_memory_utilization=0.66")
    plain, mtp = memory(few).variants
    assert (plain.fits, mtp.fits, mtp.state_request_limit) == (True, False, 0)
    assert mtp.shortage is not None
    assert re.search(
        r"\+ \S+ MiB for states of .*: the recurrent states of one request take 1\.\S+ GiB", mtp.shortage
    )


def test_a_scenario_that_does_not_fit_says_so_with_the_numbers() -> None:
    single_gpu = scenario("llama-3.3-70b-instruct", 1)
    report = memory(single_gpu)
    assert (report.fits, report.smallest_tensor_parallel) == (False, 2)
    assert (report.variants[0].kv_bytes, report.variants[0].kv_tokens) == (0, 0)
    assert "131 GiB weights" in report.notes[0]
    with pytest.raises(InputError, match=r"131 GiB weights .* of 73\.3 GiB usable .* that fits is 2"):
        fitting_variants(single_gpu)
    assert [variant.fits for variant in fitting_variants(scenario("llama-3.3-70b-instruct", 2))] == [True]


def test_a_run_asks_for_the_memory_of_each_variant_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def counted(scenario: Scenario, variant: Variant | None) -> GpuMemory:
        answer = gpu_memory(scenario, variant)
        asked.append(answer.variant)
        return answer

    monkeypatch.setattr("simulator.runs.variant.gpu_memory", counted)
    no_report = Mock(side_effect=AssertionError("a run needs no report of the memory"))
    monkeypatch.setattr("simulator.memory.report.gpu_memory", no_report)
    short = "workload={requests: 20, arrivals: {kind: burst}}"
    simulate(scenario("llama-3.3-70b-instruct", 4, TWO_DRAFTERS, short, "run.replications=1"))
    assert asked == ["plain", "head", "small", "lookup"]


def test_fitting_means_that_the_longest_request_fits() -> None:
    long = scenario("llama-3.3-70b-instruct", 2, "workload.prompt_tokens={kind: fixed, tokens: 30000}")
    report = memory(long)
    assert report.variants[0].kv_tokens == 25_168
    assert (report.fits, report.smallest_tensor_parallel) == (False, 4)
    assert "25,168 KV tokens, and the longest request has" in report.notes[0]


def test_nothing_up_to_eight_gpus_may_fit() -> None:
    report = memory(scenario("deepseek-v3", 8, weights="bf16"))
    assert (report.fits, report.smallest_tensor_parallel) == (False, None)
    assert "no tensor parallelism up to 8 is enough" in report.notes


def test_models_are_cut_only_where_heads_divide() -> None:
    llama = load_model("llama-3.3-70b-instruct")
    assert [ranks for ranks in range(1, 9) if llama.divides_over(ranks)] == [1, 2, 4, 8]
    small = load_model("smollm2-135m-instruct")
    assert [ranks for ranks in range(1, 9) if small.divides_over(ranks)] == [1, 3]
    assert smallest_tensor_parallel(scenario("smollm2-135m-instruct", 1)) == 1


def test_the_document_has_the_keys_of_the_contract() -> None:
    document = memory(scenario("llama-3.3-70b-instruct", 4, TWO_DRAFTERS)).to_json()
    per_gpu = document["per_gpu"]
    assert {"weights_bytes", "drafter_bytes", "graphs_bytes", "kv_bytes", "device_bytes"} <= set(per_gpu)
    assert per_gpu["drafter_bytes"] == document["arms"]["head"]["drafter_bytes"] > 0
    assert (
        document["kv_tokens"].keys()
        == document["max_concurrency"].keys()
        == {"plain", "head", "small", "lookup"}
    )
    assert document["max_concurrency"]["plain"] > document["max_concurrency"]["small"]
    assert (document["fits"], document["smallest_tensor_parallel"]) == (True, 2)
