"""Identities on runs of real scenarios: exact, whatever the engine and the method."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from simulator.results.measure import measure, window_of
from simulator.results.metrics import tpot_s
from simulator.results.record import RunRecord
from simulator.runs.variant import CompiledVariant
from simulator.step.state import DONE
from simulator.units import NS_PER_S
from tests.runs import drafting_variant, final_state, plain_variant, run, small_scenario, traffic

LENGTHS: dict[str, Any] = {
    "workload.requests": 300,
    "workload.arrivals.concurrency": 24,
    "workload.prompt_tokens": {"kind": "lognormal", "median": 200, "p95": 900},
    "workload.output_tokens": {"kind": "lognormal", "median": 40, "p95": 150},
    "workload.ends": "eos",
}
METHODS: dict[str, dict[str, Any]] = {
    "eagle3": {},
    "draft_model": {
        "speculation.eagle3": {
            "name": "draft",
            "method": "draft_model",
            "draft": "llama-3.2-1b-instruct",
            "draft_length": 4,
            "acceptance": {"model": "decay", "alpha": 0.8, "delta": 0.1},
        }
    },
    "ngram": {
        "speculation.eagle3": {
            "name": "ngram",
            "method": "ngram",
            "draft_length": 5,
            "acceptance": {"model": "gated", "match": 0.4, "stickiness": 0.5, "first": 0.5, "run": 0.85},
        }
    },
    "hierarchical": {
        "speculation.eagle3.acceptance": {
            "model": "hierarchical",
            "alpha": 0.7,
            "delta": 0.05,
            "request_sd": 0.8,
            "drift_sd": 0.6,
            "drift_correlation": 0.9,
        }
    },
}
PRESETS = ("vllm-0.10", "vllm-0.33", "sglang-0.5", "trtllm-1")


@cache
def compiled(method: str, preset: str) -> CompiledVariant:
    return drafting_variant(small_scenario({**LENGTHS, **METHODS[method], "engine.preset": preset}))


@cache
def record_of(method: str, preset: str) -> RunRecord:
    if method == "plain":
        return run(plain_variant(small_scenario({**LENGTHS, "engine.preset": preset})))
    return run(compiled(method, preset))


everywhere = pytest.mark.parametrize(
    ("method", "preset"), [(m, p) for m in ("plain", *METHODS) for p in PRESETS]
)


@everywhere
def test_tokens_that_left_are_steps_plus_accepted_less_trimmed(method: str, preset: str) -> None:
    record = record_of(method, preset)
    assert (record.status == DONE).all()
    assert record.preemptions.sum() == 0
    # One request-step samples with the prompt's last chunk, all others are decodes.
    trimmed = 1 + record.decode_rounds + record.accepted_tokens - record.emitted_tokens
    assert (trimmed >= 0).all()
    assert trimmed.sum() == record.totals["trimmed_tokens"]
    assert record.emitted_tokens.sum() == record.totals["emitted_tokens"]
    assert record.drafted_tokens.sum() == record.accepted_tokens.sum() + record.totals["rejected_rows"]
    assert (trimmed[record.accepted_tokens == 0] == 0).all()
    if method in ("eagle3", "draft_model"):
        assert trimmed.sum() > 0


def test_tokens_that_left_count_every_return_from_preemption() -> None:
    """A preempted request computes its prompt again, and the last chunk of that samples once more."""
    variant = compiled("eagle3", "vllm-0.10")
    record = run(replace(variant, settings=replace(variant.settings, total_blocks=280)))
    assert (record.status == DONE).all()
    assert record.preemptions.sum() > 20
    again = record.emitted_tokens - 1 - record.decode_rounds - record.accepted_tokens
    assert (again <= record.preemptions).all()
    assert again[record.preemptions == 0].max() <= 0
    assert again.sum() + record.totals["trimmed_tokens"] <= record.preemptions.sum()
    assert again.sum() + record.totals["trimmed_tokens"] > 0


@everywhere
def test_gaps_count_emissions_and_their_tokens(method: str, preset: str) -> None:
    """Mean ITL = TPOT × tokens per emission; pooled over requests both sides are sums of the same gaps."""
    record = record_of(method, preset)
    measured = slice(record.first_measured, record.end_measured)
    emitted, rounds = record.emitted_tokens[measured], record.decode_rounds[measured]
    assert record.itl_histogram.sum() == rounds.sum()  # every decode emits at least one token
    assert record.itl_token_histogram.sum() == (emitted - 1).sum()
    several = emitted > 1
    tpot = tpot_s(record.first_ns[measured], record.last_ns[measured], emitted)[several]
    weights = (emitted - 1)[several]
    pooled_tpot = (tpot @ weights) / weights.sum()
    figures = measure(record)
    per_emission = (emitted - 1).sum() / rounds.sum()
    assert figures["tokens_per_round"] == pytest.approx(per_emission, rel=1e-12)
    assert figures["itl_s.mean"] == pytest.approx(pooled_tpot * per_emission, rel=1e-12)
    assert figures["itl_token_s.mean"] == pytest.approx(pooled_tpot, rel=1e-12)
    # The histogram agrees with the sums to within its bins of 0.1 %.
    middles = (record.itl_edges_ns[1:] + record.itl_edges_ns[:-1]) / 2e9
    counts = record.itl_histogram.sum(axis=0)
    assert counts @ middles / counts.sum() == pytest.approx(figures["itl_s.mean"], rel=5e-4)
    if method != "plain":
        assert per_emission > 1.05
        assert figures["itl_s.mean"] > 1.05 * pooled_tpot


@everywhere
def test_rates_at_positions_sum_to_tokens_per_verify_less_one(method: str, preset: str) -> None:
    record = record_of(method, preset)
    if method == "plain":
        assert record.drafted_at[:, 1:].sum() == 0
        return
    figures = measure(record)
    rates = [value for path, value in figures.items() if path.startswith("acceptance_rate_at.")]
    assert len(rates) == record.accepted_at.shape[1] - 1
    assert sum(rates) == pytest.approx(figures["mean_acceptance_length"] - 1, rel=1e-12)
    assert rates == sorted(rates, reverse=True)
    drafts = record.drafted_at.sum(axis=0) @ np.arange(len(rates) + 1)
    accepted = record.accepted_at.sum(axis=0) @ np.arange(len(rates) + 1)
    assert figures["draft_acceptance_rate"] == pytest.approx(accepted / drafts, rel=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_all_but_the_last_token_are_computed_at_the_end(method: str) -> None:
    """Computed = prompt + output − 1 and what a stop trimmed, on an engine that runs nothing ahead."""
    variant = compiled(method, "vllm-0.10")
    state = final_state(variant, traffic(variant.scenario), 0)
    q = state.requests
    trimmed = 1 + q["decode_rounds"] + q["accepted"] - q["emitted"]
    assert (q["computed"] == q["prompt"] + q["emitted"] - 1 + trimmed).all()
    assert trimmed.sum() > 0


@everywhere
def test_memory_and_seats_are_given_back(method: str, preset: str) -> None:
    variant = (
        plain_variant(small_scenario({**LENGTHS, "engine.preset": preset})) if method == "plain" else None
    )
    variant = variant or compiled(method, preset)
    state = final_state(variant, traffic(variant.scenario), 0)
    engine = state.engine[0]
    assert engine["free_blocks"] + engine["cached_blocks"] == engine["total_blocks"]
    assert engine["running_count"] == engine["waiting_count"] == engine["in_system"] == 0
    assert (state.requests["capacity"] == 0).all()


@pytest.mark.parametrize("method", ["plain", *METHODS])
def test_decode_time_is_the_time_requests_spent_decoding(method: str) -> None:
    """Little's law along the path: sum over steps of batch × step = sum over requests of last − first token,
    on an engine whose tokens leave at the end of the step and whose steps follow each other from when the
    first request has passed the front end."""
    record = record_of(method, "vllm-0.10")
    assert record.totals["decoding_ns"] == (record.last_ns - record.first_ns).sum()
    assert record.totals["busy_ns"] == record.makespan_ns - record.admitted_ns.min()
    parts = sum(record.totals[f"{stage}_ns"] for stage in ("host", "verify", "accept", "draft"))
    assert parts == record.totals["busy_ns"]
    assert record.totals["hidden_ns"] == record.totals["ghost_rows"] == 0


@everywhere
def test_steps_are_counted_once_by_kind_and_by_graph(method: str, preset: str) -> None:
    totals = record_of(method, preset).totals
    assert totals["decode_steps"] + totals["mixed_steps"] + totals["prefill_steps"] == totals["steps"]
    assert totals["full_steps"] + totals["piecewise_steps"] + totals["eager_steps"] == totals["steps"]
    assert totals["attention_ns"] + totals["communication_ns"] <= totals["verify_ns"]
    assert totals["padded_tokens"] >= totals["query_tokens"]
    assert totals["peak_blocks"] <= totals["total_blocks"]
    assert (totals["mixed_steps"] == 0) == (preset == "sglang-0.5")


@everywhere
def test_an_average_step_is_one_of_the_window_not_of_the_drain(method: str, preset: str) -> None:
    """A closed loop is busy all the time: the steps of the window fill it, but for one step at either end."""
    record = record_of(method, preset)
    result, window = measure(record), window_of(record)
    longest_ns = int(record.max_itl_ns.max())
    assert window.first == record.first_measured > 0
    assert abs(record.window_totals["busy_ns"] - (window.end_ns - window.start_ns)) <= 2 * longest_ns
    assert result["step_s.mean"] == pytest.approx(
        record.window_totals["busy_ns"] / record.window_totals["steps"] / NS_PER_S
    )
    parts = sum(result[f"step_s.{part}"] for part in ("draft", "verify", "sampling", "host"))
    assert result["step_s.mean"] == pytest.approx(parts)
    step_s = record.totals["busy_ns"] / record.totals["steps"] / NS_PER_S
    assert result["step_s.mean"] > 1.01 * step_s
    assert result["steps"] == record.totals["steps"]


@everywhere
def test_throughput_is_batch_times_tokens_of_a_round_over_the_step(method: str, preset: str) -> None:
    """Steps that only prefill decode nothing, and one token of each request comes from its prompt.

    Within 5 %: long steps hold fewer decodes.
    """
    record = record_of(method, preset)
    result, counters = measure(record), record.window_totals
    rounds_per_s = (
        result["mean_batch"] / result["step_s.mean"] * (1 - counters["prefill_steps"] / counters["steps"])
    )
    expected = rounds_per_s * result["tokens_per_round"] + result["request_rate_per_s"]
    assert result["throughput_tokens_per_s"] == pytest.approx(expected, rel=0.05)
