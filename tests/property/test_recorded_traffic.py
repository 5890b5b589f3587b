"""The published traces, whole: every request is served, books balance, and prefix hits stay below what a
cache that forgets nothing would find.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from simulator.results.measure import measure
from simulator.results.record import RunRecord
from simulator.results.saturation import saturation
from simulator.runs.variant import CompiledVariant
from simulator.simulation import simulate
from simulator.step.state import DONE, State
from simulator.traffic.workload import Requests
from tests.balance import check_balance
from tests.runs import drafting_variant, plain_variant, small_scenario, traffic
from tests.shared_data import SHARED, needs_shared
from tests.traffic_figures import ideal_hit_rate

pytestmark = needs_shared

FOLDER = SHARED / "data" / "traces"
CODE, CONVERSATION = "AzureLLMInferenceTrace_code.csv", "AzureLLMInferenceTrace_conv.csv"
MOONCAKE = "mooncake_conversation.jsonl"
ROWS = {CODE: 8819, CONVERSATION: 19366, MOONCAKE: 12031}


@cache
def variant_of(file: str, speculative: bool, **changes: Any) -> CompiledVariant:
    """Llama-3.1-8B on one H200 under a recorded day; `changes` go by dotted path with __ for the dot."""
    scenario = small_scenario(
        {
            "hardware.gpu": "h200-sxm",
            "engine.max_num_seqs": 256,
            "engine.max_num_batched_tokens": 8192,
            "workload.arrivals": {"kind": "trace", "file": str(FOLDER / file)},
            "workload.ends": "eos",
            **{path.replace("__", "."): value for path, value in changes.items()},
        }
    )
    return drafting_variant(scenario) if speculative else plain_variant(scenario)


@cache
def requests_of(file: str) -> Requests:
    return traffic(variant_of(file, False).scenario)


def played(variant: CompiledVariant) -> RunRecord:
    return variant.run(traffic(variant.scenario), 0)


def hit_rate(record: RunRecord) -> float:
    """Prompt tokens that came out of the cache; requests that return from preemption count again."""
    return record.totals["prefix_hit_tokens"] / record.totals["prompt_tokens"]


@pytest.mark.parametrize("speculative", [False, True])
@pytest.mark.parametrize("file", ROWS)
def test_a_whole_trace_is_served_and_balances(file: str, speculative: bool, states: list[State]) -> None:
    variant, requests = variant_of(file, speculative), requests_of(file)
    assert len(requests.arrival_ns) == ROWS[file]
    record = variant.run(requests, 0)
    assert record.driver == "fast_forward"
    assert (record.status == DONE).all()
    check_balance(variant, requests, record, states, file)
    assert record.totals["emitted_tokens"] == requests.output_tokens.sum()
    assert record.totals["prompt_tokens"] == requests.prompt_tokens.sum()
    # Every prompt token is computed or found, once more after each preemption, and no step repeats one.
    computed = record.totals["query_tokens"] + record.totals["prefix_hit_tokens"]
    assert computed >= requests.prompt_tokens.sum() + requests.output_tokens.sum() - ROWS[file]
    ideal = ideal_hit_rate(requests)
    if ideal is None:
        assert record.totals["prefix_hit_tokens"] == 0
    elif record.totals["preemptions"] == 0:
        assert 0 < hit_rate(record) <= ideal


@pytest.mark.parametrize("file", [CODE, CONVERSATION])
def test_an_hour_of_azure_fits_one_gpu_and_speculation_shortens_it(file: str) -> None:
    plain, fast = played(variant_of(file, False)), played(variant_of(file, True))
    assert not saturation([plain]).saturated
    assert not saturation([fast]).saturated
    a, b = measure(plain), measure(fast)
    assert a["request_rate_per_s"] == pytest.approx(b["request_rate_per_s"], rel=0.01)  # what is offered
    assert b["mean_acceptance_length"] == pytest.approx(1 + 0.7 + 0.49 + 0.343, rel=0.02)
    assert b["tpot_s.mean"] < a["tpot_s.mean"]
    for record in (plain, fast):
        assert (record.first_ns > record.admitted_ns).all()
        assert record.totals["busy_ns"] <= record.makespan_ns
        assert record.makespan_ns >= requests_of(file).arrival_ns.max()


def test_a_cache_that_forgets_nothing_finds_all_there_is_to_find() -> None:
    """Mooncake at a hundredth of its rate and without a memory limit: what remains is a block of 16 tokens
    where a whole prompt was found, and one more for a head that loses the last match."""
    requests = requests_of(MOONCAKE)
    ideal = ideal_hit_rate(requests)
    assert ideal is not None
    assert ideal > 0.3
    slow = {"workload__arrivals__rate_scale": 0.01, "run__mechanisms__kv_limit": False}
    plain, head = played(variant_of(MOONCAKE, False, **slow)), played(variant_of(MOONCAKE, True, **slow))
    result, lost = plain.totals["prefix_hit_tokens"], head.totals["prefix_hit_tokens"]
    every_token = round(ideal * int(requests.prompt_tokens.sum()))
    assert every_token - 16 * ROWS[MOONCAKE] <= result <= every_token
    assert lost < result <= lost + 16 * ROWS[MOONCAKE]


def test_more_memory_finds_more() -> None:
    """Over the KV memory, at a rate where nobody is preempted."""
    variant = variant_of(MOONCAKE, False, workload__arrivals__rate_scale=0.05)
    records = [
        played(replace(variant, settings=replace(variant.settings, total_blocks=blocks)))
        for blocks in (40_000, 160_000, 320_000, 1_280_000)
    ]
    assert sum(record.totals["preemptions"] for record in records) == 0
    rates = [hit_rate(record) for record in records]
    ideal = ideal_hit_rate(requests_of(MOONCAKE))
    assert ideal is not None
    assert rates == sorted(set(rates))
    assert 0 < rates[0] < 0.3 * rates[-1]
    assert 0.9 * ideal < rates[-1] < ideal
    waits = [measure(record)["ttft_s.mean"] for record in records]
    assert waits == sorted(waits, reverse=True)
    off = played(
        variant_of(MOONCAKE, False, engine__prefix_caching=False, workload__arrivals__rate_scale=0.05)
    )
    assert off.totals["prefix_hit_tokens"] == 0


def test_a_trace_beyond_capacity_is_called_saturated() -> None:
    """One H200 cannot prefill what Mooncake's cluster received; at a tenth of the rate it can."""
    assert saturation([played(variant_of(MOONCAKE, False))]).saturated
    assert not saturation([played(variant_of(MOONCAKE, False, workload__arrivals__rate_scale=0.1))]).saturated


def test_part_of_a_trace_is_simulated_like_any_scenario() -> None:
    """Ten minutes of the conversation service, the longest requests left out."""
    cut = {"start_s": 600.0, "end_s": 1200.0, "max_prompt_tokens": 4000, "max_output_tokens": 500}
    arrivals = {"kind": "trace", "file": str(FOLDER / CONVERSATION), **cut}
    scenario = small_scenario({"workload.arrivals": arrivals, "run.replications": 1})
    requests = traffic(scenario)
    conversation = requests_of(CONVERSATION)
    inside = (conversation.arrival_ns >= 600e9) & (conversation.arrival_ns < 1200e9)
    inside &= (conversation.prompt_tokens <= 4000) & (conversation.output_tokens <= 500)
    assert np.array_equal(requests.prompt_tokens, conversation.prompt_tokens[inside])
    assert requests.arrival_ns[0] == 0
    result = simulate(scenario)
    assert set(result.variants) == {"plain", "eagle3"}
    assert any("requests selected" in note for note in result.notes)
