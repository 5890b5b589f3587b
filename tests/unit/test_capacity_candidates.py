"""Ways to serve a demand, on real runs of a tiny model: what must hold whatever the figures are."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from experiments.capacity.candidates import Candidate, setting_label
from experiments.capacity.crossover import ALL_LOADS, BELOW, NO_LOAD, find_crossover
from experiments.capacity.demand import RATE, USERS
from experiments.capacity.load_search import LoadSearch
from experiments.capacity.replica import FULL, Replica, ReplicaSetting, scenario_of_replica
from experiments.capacity.slo import slo_of
from experiments.token_cost import gpu_hours
from simulator.scenario import Scenario
from tests.plans import REPLICATIONS, candidates, rate, tiny
from tests.runs import small_scenario

PLAIN = ReplicaSetting(None, 1, "h100-sxm")


def lookup(draft_length: int, alpha: float | None = None, scenario: Scenario | None = None) -> ReplicaSetting:
    variant = (scenario or tiny()).variant("lookup").model_copy(update={"draft_length": draft_length})
    return ReplicaSetting(variant, 1, "h100-sxm", alpha)


def test_replicas_grow_with_the_rate_and_carry_it() -> None:
    counts = []
    for peak in (1.0, 60.0, 120.0, 250.0, 600.0, 2000.0):
        candidate = candidates(tiny(), demand=rate(peak)).candidate(PLAIN)
        assert candidate.capacity is not None
        assert candidate.capacity.amount is not None
        assert candidate.replicas is not None
        assert candidate.capacity.amount.value * candidate.replicas >= peak
        assert candidate.load == peak / candidate.replicas
        counts.append(candidate.replicas)
    assert counts == sorted(counts)
    assert counts[0] == 1 < counts[-1]


def test_a_looser_slo_is_kept_at_a_higher_rate() -> None:
    limits = ("tpot_p99=1.5ms", "tpot_p99=1.6ms", "tpot_p99=1.75ms", "tpot_p99=30s")
    result = [candidates(tiny(), slo).candidate(PLAIN).capacity for slo in limits]
    amounts = [
        capacity.amount.value for capacity in result if capacity is not None and capacity.amount is not None
    ]
    assert len(amounts) == len(limits)
    assert all(less < more for less, more in pairwise(amounts))
    assert [capacity and capacity.limited_by for capacity in result] == [*["TPOT P99"] * 3, "saturation"]


def test_another_limit_never_raises_the_capacity() -> None:
    single, both = (
        candidates(tiny(), slo).candidate(PLAIN).capacity
        for slo in ("tpot_p99=1.7ms", "tpot_p99=1.7ms,ttft_p99=6ms")
    )
    assert single is not None
    assert both is not None
    assert single.amount is not None
    assert both.amount is not None
    assert both.amount.value < single.amount.value
    assert both.limited_by == "TTFT P99"


@pytest.mark.parametrize(("kind", "load"), [(RATE, 100.0), (RATE, 400.0), (USERS, 7), (FULL, 16)])
def test_drafting_nothing_without_a_drafter_is_plain_decoding(kind: str, load: float) -> None:
    scenario = tiny()
    slo = slo_of(scenario)
    # An asynchronous engine looks n-grams up on the GPU and goes on as without them.
    plain, nothing = (Replica(scenario, setting, slo).run_at(kind, load) for setting in (PLAIN, lookup(0)))
    same = {path for path in plain.figures if path.split(".")[0] in ("ttft_s", "tpot_s", "itl_s", "e2e_s")}
    assert {path: plain.figures[path] for path in same if not math.isnan(plain.figures[path])} == {
        path: nothing.figures[path] for path in same if not math.isnan(nothing.figures[path])
    }
    assert plain.saturated == nothing.saturated == (load == 400.0)


def test_without_acceptance_nothing_is_gained() -> None:
    """Without prompts in the way: with few seats vLLM has graphs for mixed steps only where it drafts."""
    scenario = tiny({"speculation.lookup.acceptance.alpha": 0.0, "run.mechanisms.prefill": False})
    tried = candidates(scenario, "tpot_mean=1.42ms")
    settings = (PLAIN, *(lookup(k, scenario=scenario) for k in (3, 0)))
    plain, drafting, nothing = (tried.candidate(setting) for setting in settings)
    assert nothing.capacity == plain.capacity
    assert replace(nothing, setting=PLAIN) == plain
    assert plain.capacity is not None
    assert drafting.capacity is not None
    assert plain.capacity.amount is not None
    assert drafting.capacity.amount is not None
    assert drafting.capacity.amount.value < plain.capacity.amount.value


def test_a_better_drafter_carries_no_less() -> None:
    tried = candidates(tiny(), "tpot_mean=1.5ms")
    amounts = []
    for alpha in (0.2, 0.5, 0.8):
        capacity = tried.candidate(lookup(3, alpha)).capacity
        assert capacity is not None
        assert capacity.amount is not None
        amounts.append(capacity.amount.value)
    assert amounts == sorted(amounts)
    own = tried.candidate(lookup(3)).capacity
    assert own is not None
    assert own.amount is not None
    assert own.amount.value == pytest.approx(amounts[1]), "0.5 is the variant's own"


def test_users_are_planned_for_in_whole_numbers() -> None:
    scenario = tiny({"workload.arrivals": {"kind": "closed", "concurrency": 50}})
    candidate = candidates(scenario).candidate(PLAIN)
    assert candidate.capacity is not None
    assert candidate.capacity.amount is not None
    assert candidate.replicas is not None
    assert candidate.load == math.ceil(50 / candidate.replicas)
    assert candidate.load <= candidate.capacity.amount.value
    assert candidate.capacity.saturation_load.value == 16, "the seats"


def test_cost_is_gpus_by_time_by_tokens() -> None:
    assert gpu_hours(8, 1000) == pytest.approx(8 / 3.6)
    scenario = tiny({"workload.output_tokens": {"kind": "fixed", "tokens": 40}})
    candidate = candidates(scenario, demand=rate(600.0)).candidate(PLAIN)
    assert candidate.replicas is not None
    assert candidate.gpu_hours_per_million_tokens == pytest.approx(
        candidate.replicas * 1e6 / (600 * 40 * 3600)
    )


def test_the_search_over_draft_lengths_finds_the_best_of_all() -> None:
    tried = candidates(tiny(), demand=rate(50.0))
    result = list(tried.draft_lengths(tiny().variant("lookup"), 1))
    lengths = [candidate.setting.draft_length for candidate in result]
    assert lengths == list(range(1, len(lengths) + 1))
    everything = [tried.candidate(lookup(k)) for k in range(1, 13)]
    assert (
        min(result, key=lambda candidate: candidate.rank).setting
        == min(everything, key=lambda candidate: candidate.rank).setting
    )


def test_a_rate_at_one_draft_length_says_nothing_of_others() -> None:
    scenario = tiny({"speculation.lookup.acceptance": {"model": "fixed", "rate": 0.4}})
    result = list(candidates(scenario).draft_lengths(scenario.variant("lookup"), 1))
    assert [candidate.setting.draft_length for candidate in result] == [2]


def test_a_table_is_tried_as_it_is_beside_single_lengths() -> None:
    table = [[1, 4, 5], [5, None, 2]]
    scenario = tiny({"speculation.lookup.draft_length": table})
    first, second, *_ = candidates(scenario).draft_lengths(scenario.variant("lookup"), 1)
    assert first.setting.draft_length == table
    assert setting_label(first.setting) == "lookup, its own draft lengths, TP 1"
    assert second.setting.draft_length == 1


def test_what_does_not_fit_or_keep_the_slo_says_why_and_comes_last() -> None:
    tight = candidates(tiny({"engine.gpu_memory_utilization": 0.01})).candidate(PLAIN)
    assert tight.capacity is None
    assert "leave nothing for KV" in (tight.why_not or "")
    slow = candidates(tiny(), "tpot_p99=1ms").candidate(PLAIN)
    assert slow.replicas is None
    assert slow.capacity is not None
    assert slow.capacity.idle.ratio > 1
    assert f"({slow.capacity.idle.ratio - 1:+.0%})" in (slow.why_not or "")
    able = candidates(tiny()).candidate(PLAIN)
    assert sorted([tight, slow, able], key=lambda candidate: candidate.rank) == [able, slow, tight]


def test_ranks_are_those_that_divide_the_model_and_fit() -> None:
    assert candidates(tiny()).ranks() == (1,), "nine heads"
    eight = small_scenario({"slo": {"tpot_p99_s": 1.0}, "hardware.tensor_parallel": 4})
    assert candidates(eight, demand=rate(1.0)).ranks() == (1, 2, 4, 8)


def test_experts_and_drafter_follow_the_gpus() -> None:
    scenario = small_scenario(
        {
            "slo": {"tpot_p99_s": 1.0},
            "hardware.tensor_parallel": 4,
            "hardware.expert_parallel": 4,
            "hardware.replicas": 3,
            "speculation.eagle3.draft_tensor_parallel": 4,
        }
    )
    tried = candidates(scenario, demand=rate(1.0))
    setting = tried.setting(scenario.speculation[0], 8)
    assert setting.variant is not None
    assert setting.variant.draft_tensor_parallel == 8
    placed = scenario_of_replica(scenario, setting).hardware
    assert (placed.tensor_parallel, placed.expert_parallel, placed.replicas) == (8, 8, 1)
    halved = scenario.model_copy(
        update={"hardware": scenario.hardware.model_copy(update={"expert_parallel": 2})}
    )
    assert scenario_of_replica(halved, setting).hardware.expert_parallel == 2
    assert scenario_of_replica(halved, tried.setting(None, 1)).hardware.expert_parallel == 1
    own = scenario.model_copy(update={"hardware": scenario.hardware.model_copy(update={"attention_dp": 4})})
    assert scenario_of_replica(own, setting).hardware.attention_dp == 8
    assert scenario_of_replica(own, tried.setting(None, 1)).hardware.attention_dp == 1


def of_crossover(alpha: float, draft_length: int) -> tuple[str, float | None, bool]:
    scenario = small_scenario(
        {
            "speculation.eagle3.acceptance.alpha": alpha,
            "engine.max_num_seqs": 256,
            "workload.arrivals": {"kind": "poisson", "rate_per_s": 1.0},
            "slo": {"tpot_p99_s": 1.0},
        }
    )
    tried = candidates(scenario, demand=rate(1.0))
    setting = tried.setting(scenario.speculation[0], 1).with_draft_length(draft_length)
    plain = tried.replica(tried.setting(None, 1))
    result = find_crossover(plain, tried.replica(setting), RATE, REPLICATIONS, 0.1)
    return result.outcome, result.load and result.load.value, result.idle_pays


def test_speculation_pays_below_a_load_which_grows_with_acceptance() -> None:
    nowhere, low, high = (of_crossover(alpha, 7) for alpha in (0.1, 0.4, 0.6))
    assert nowhere == (NO_LOAD, None, False)
    assert low[0] == high[0] == BELOW
    assert low[1] is not None
    assert high[1] is not None
    assert low[1] < high[1]
    assert of_crossover(0.95, 2)[0] == ALL_LOADS


def test_a_longer_band_is_wider_and_holds_the_value() -> None:
    replica = candidates(tiny()).replica(PLAIN)
    narrow, wide = (LoadSearch(replica, RATE, REPLICATIONS, band).capacity().amount for band in (0.0, 0.1))
    assert narrow is not None
    assert wide is not None
    assert wide.value == narrow.value
    assert narrow.band == narrow.ci95
    assert wide.band is not None
    assert wide.ci95 is not None
    assert wide.band[0] < wide.ci95[0] < wide.value < wide.ci95[1] < wide.band[1]
    assert isinstance(candidates(tiny()).candidate(PLAIN), Candidate)
