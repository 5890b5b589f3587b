"""Whole plans of a tiny model: the verdict's rules, the arithmetic of cost, and what the JSON holds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calibration.launch.registry import ENGINES
from experiments.capacity.answer import CapacityPlan
from experiments.capacity.candidates import Candidate
from experiments.capacity.crossover import ALL_LOADS, BELOW, NO_LOAD, Crossover
from experiments.capacity.decision import decide, decision_unconfirmed, decision_without_slo
from experiments.capacity.demand import RATE, Demand
from experiments.capacity.deployment import Deployment
from experiments.capacity.plan import plan
from experiments.run_cell import run_cell
from experiments.study.grid import StudyGrid
from experiments.study.load import load_study
from simulator.errors import InputError
from simulator.results.estimate import Estimate
from simulator.results.verdict import LOSES, PAYS, UNDECIDED, Verdict
from simulator.scenario import scenario_yaml
from tests.plans import candidates, tiny, tiny_plan

KEYS = (
    "verdict reason best schedule replicas cost_per_million_tokens crossover value_of_better_drafter "
    "alternatives engine gains"
)


def test_the_contract_of_the_json() -> None:
    document = json.loads(json.dumps(tiny_plan().to_json(), allow_nan=False))
    assert set(KEYS.split()) <= set(document)
    assert document["verdict"].split(" BELOW ")[0] in ("ENABLE", "DO NOT", "MEASURE FIRST")
    assert document["best"]["method"] == "ngram"
    assert isinstance(document["best"]["draft_length"], int)
    assert set(document["replicas"]) == set(document["cost_per_million_tokens"]) == {"plain", "speculative"}
    assert all(isinstance(count, int) for count in document["replicas"].values())
    assert document["schedule"][0][0] == 1
    assert document["schedule"][-1][1] is None
    assert document["alternatives"]
    for alternative in document["alternatives"]:
        assert (alternative["gpus"] is None) == (alternative["why_not"] is not None)
    gpu_pareto = [point["tokens_per_s_per_gpu"] for point in document["pareto"]]
    assert gpu_pareto == sorted(gpu_pareto)


def test_the_launch_of_a_plan_is_its_choice_and_reads_back_as_it() -> None:
    answer = tiny_plan()
    document = answer.to_json()
    assert document["engine"].keys() == {"vllm", "sglang", "trtllm"}
    read = ENGINES["vllm"].read(document["engine"]["vllm"], "line")
    if document["verdict"] == "DO NOT":
        assert not read.speculation
        return
    assert answer.schedule is not None
    gained = answer.schedule_speedup
    assert len(answer.schedule.rows) == 1 or (gained is not None and gained.value > 1)
    length = read.speculation["num_speculative_tokens"]
    triples = read.speculation.get("num_speculative_tokens_per_batch_size", [[1, 16, length]])
    for low, high, length in triples:
        assert answer.schedule.draft_length(low) == answer.schedule.draft_length(high) == length


def test_the_gains_are_ratios_of_both_deployments() -> None:
    answer = tiny_plan()
    assert answer.plain is not None
    assert answer.speculative is not None
    document = answer.to_json()
    assert document["gains"]["gpus_ratio"]["value"] == answer.speculative.gpus / answer.plain.gpus
    before, after = (document["at_peak"][way]["figures"]["tpot_s.mean"] for way in ("plain", "speculative"))
    speedup = document["gains"]["tpot_mean_speedup"]["value"]
    assert speedup == pytest.approx(before["value"] / after["value"], rel=0.01)
    assert replace(answer, plain=None, crossover=None, better_drafter=None).gains() == {}


def test_cost_is_gpus_by_price_by_tokens_asked_for() -> None:
    document = tiny_plan().to_json()
    tokens_per_s = 100.0 * candidates(tiny({"workload.requests": 4000})).tokens_per_request
    for way in ("plain", "speculative"):
        gpus = document["replicas"][way] * document["tensor_parallel"][way]
        assert document["gpus"][way] == gpus
        assert document["cost_per_million_tokens"][way] == pytest.approx(
            gpus * 3.0 / (tokens_per_s * 3600) * 1e6
        )
    in_hours = replace(tiny_plan(), gpu_hour_cost=None).to_json()
    assert in_hours["cost_unit"] == "GPU-hours"
    for way, cost in in_hours["cost_per_million_tokens"].items():
        assert document["cost_per_million_tokens"][way] == pytest.approx(3.0 * cost)


def test_the_planned_load_keeps_the_slo_and_the_capacity_carries_the_rate() -> None:
    capacity_plan = tiny_plan()
    for way in (capacity_plan.plain, capacity_plan.speculative):
        assert way is not None
        assert way.confirmed
        assert way.capacity.amount is not None
        assert way.capacity.amount.value * way.replicas >= 100.0
        assert way.headroom == pytest.approx(way.capacity.amount.value * way.replicas / 100.0 - 1)
        for limit in capacity_plan.slo.limits:
            assert way.summary.values()[limit.path] <= limit.maximum


def test_the_best_draft_length_is_that_of_a_sweep(tmp_path: Path) -> None:
    """Where every draft length needs one replica the plan takes the shortest time per token, and so does a
    sweep of the same scenario: the same runs, the same figures."""
    scenario = tiny({"slo.tpot_p99_s": 1.0})
    (tmp_path / "scenario.yaml").write_text(scenario_yaml(scenario), encoding="utf-8")
    (tmp_path / "study.yaml").write_text(
        "scenario: scenario.yaml\naxes:\n  speculation.lookup.draft_length: {from: 1, to: 14, steps: 14}\n"
        "keep: [lookup.tpot_s.mean]\n",
        encoding="utf-8",
    )
    swept = {}
    for cell in StudyGrid(load_study(tmp_path / "study.yaml")).cells():
        result = run_cell(cell)
        swept[cell.settings["speculation.lookup.draft_length"]] = result.metrics["lookup.tpot_s.mean"]
    times = {length: metric["value"] for length, metric in swept.items() if isinstance(metric, dict)}
    assert len(times) == 14
    best = plan(scenario).best
    assert best.replicas == 1
    assert best.setting.draft_length == min(times, key=lambda length: times[length])
    assert best.tpot_s == pytest.approx(times[best.setting.draft_length], rel=1e-12)


def test_when_plain_decoding_misses_the_slo_at_any_rate_speculation_is_the_way() -> None:
    capacity_plan = plan(tiny(), "tpot_mean=1ms")
    assert capacity_plan.decision.verdict == "ENABLE"
    assert capacity_plan.plain is None
    assert capacity_plan.speculative is not None
    assert "plain decoding does not: plain: TPOT mean is 1.36 ms even with one request at a time (+36%)" in (
        capacity_plan.decision.reason
    )
    document = capacity_plan.to_json()
    assert document["replicas"]["plain"] is None
    assert document["cost_per_million_tokens"]["plain"] is None
    assert document["crossover"] is None


def test_when_nothing_keeps_the_slo_the_limit_and_the_miss_are_said() -> None:
    capacity_plan = plan(tiny(), "ttft_p99=1s,tpot_p99=50us")
    assert capacity_plan.decision.verdict == "SLO UNREACHABLE"
    assert capacity_plan.decision.reason.startswith(
        "nothing meets the SLO: plain: TPOT P99 is 1.36 ms even with one"
    )
    assert "lookup: TPOT P99 is" in capacity_plan.decision.reason
    assert capacity_plan.to_json()["best"]["keeps_slo"] is False
    assert capacity_plan.schedule is None


def test_a_profile_is_planned_for_its_peak_and_paid_at_its_mean() -> None:
    rows = [[0, 40.0], [28800, 160.0], [64800, 80.0]]
    capacity_plan = plan(
        tiny({"workload.arrivals": {"kind": "profile", "rates_per_s": rows}}), gpu_hour_cost=2.0
    )
    constant = plan(tiny(), rate_per_s=160.0, gpu_hour_cost=2.0)
    mean = (40 * 8 + 160 * 10 + 80 * 6) / 24
    for way, other in (
        (capacity_plan.plain, constant.plain),
        (capacity_plan.speculative, constant.speculative),
    ):
        assert way is not None
        assert other is not None
        assert way.replicas == other.replicas
        assert way.gpu_hours_per_million_tokens == pytest.approx(
            other.gpu_hours_per_million_tokens * 160 / mean
        )
        assert way.gpu_hours_per_million_tokens_when_scaled is not None
        assert other.gpu_hours_per_million_tokens_when_scaled is None
        assert way.gpu_hours_per_million_tokens_when_scaled <= way.gpu_hours_per_million_tokens
        assert other.tpot_at_mean_s is None
        assert way.tpot_at_mean_s is not None
        assert way.tpot_at_mean_s < way.summary.values()["tpot_s.mean"]
    assert capacity_plan.demand.low == 40.0


def test_classes_may_have_replicas_of_their_own() -> None:
    classes = [
        {"name": "chat", "share": 0.5},
        {"name": "batch", "share": 0.5, "output_tokens": {"kind": "fixed", "tokens": 120}},
    ]
    capacity_plan = plan(tiny({"workload.classes": classes}), "chat.tpot_p99=1.7ms")
    assert capacity_plan.mixed is not None
    fleets = {fleet.name: fleet for fleet in capacity_plan.mixed}
    assert set(fleets) == {"chat", "batch"}
    assert [fleet.demand.peak for fleet in capacity_plan.mixed] == [50.0, 50.0]
    document = capacity_plan.to_json()["mixed_fleet"]
    assert document["gpus"] == sum(entry["gpus"] for entry in document["classes"])
    assert fleets["batch"].best.capacity is not None
    assert fleets["batch"].best.capacity.limited_by == "saturation", "nothing limits the batch class"
    assert tiny_plan().mixed is None


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"speculation": []}, {}, "speculation: is empty"),
        (
            {"speculation.lookup.draft_length": 0},
            {},
            "speculation.lookup.draft_length: is 0, so nothing is drafted",
        ),
        ({}, {"gpu_hour_cost": 0.0}, "--gpu-hour-cost: is out of range"),
        ({}, {"gpu_hour_cost": float("inf")}, "--gpu-hour-cost: is out of range"),
        ({}, {"gpu_hour_cost": -1.0}, "--gpu-hour-cost: is out of range"),
        ({}, {"rate_per_s": 0.0}, "--rate: is out of range"),
        ({}, {"slo": "ttft_p99=1"}, "--slo: has no unit"),
        ({"workload.output_tokens": {"kind": "fixed", "tokens": 1}}, {}, "has no figure in this traffic"),
        ({"engine.gpu_memory_utilization": 0.01}, {}, "hardware.tensor_parallel: plain: "),
    ],
)
def test_what_cannot_be_planned_is_refused(
    changes: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as error:
        plan(tiny(changes), **options)
    assert message in str(error.value)


# The rules of the verdict, on deployments made up from those of the tiny plan.

PEAK = Demand(RATE, 100.0, 100.0, 0.0)
FOUND = Crossover(BELOW, Estimate(30.0, (28.0, 32.0), (20.0, 40.0)), 200.0, True)


def ways(plain_gpus: int, drafting_gpus: int) -> tuple[Deployment, Deployment]:
    capacity_plan: CapacityPlan = tiny_plan()
    assert capacity_plan.plain is not None
    assert capacity_plan.speculative is not None
    pair = ((capacity_plan.plain, plain_gpus), (capacity_plan.speculative, drafting_gpus))
    before, after = (replace(way, replicas=n, gpu_hours_per_million_tokens=float(n)) for way, n in pair)
    return before, after


def verdict(
    plain_gpus: int,
    drafting_gpus: int,
    work: tuple[float, float, float],
    at_peak: str = PAYS,
    crossover: Crossover = FOUND,
    demand: Demand = PEAK,
    ceiling: float = 1e9,
) -> str:
    value, low, high = work
    estimate = Estimate(value, (low, high), (low, high))
    sentence = Verdict(at_peak, f"arm: {at_peak}: TPOT speedup × 1.10: because")
    result = decide(demand, *ways(plain_gpus, drafting_gpus), estimate, sentence, crossover, ceiling, 2)
    assert result.reason
    return result.verdict


SURE, LESS, UNSURE = (1.3, 1.1, 1.5), (0.7, 0.6, 0.9), (1.05, 0.9, 1.2)


def test_fewer_gpus_beyond_the_band_decide() -> None:
    assert verdict(6, 5, SURE) == "ENABLE"
    assert verdict(6, 5, SURE, at_peak=LOSES) == "ENABLE", "a token is cheaper, whatever it waits"
    assert verdict(5, 6, LESS, at_peak=PAYS) != "ENABLE"


def test_equal_or_unsure_costs_leave_the_decision_to_the_users() -> None:
    for costs in ((4, 4, SURE), (4, 4, LESS), (5, 4, UNSURE), (4, 5, UNSURE)):
        assert verdict(*costs, at_peak=PAYS) == "ENABLE"
        assert verdict(*costs, at_peak=LOSES, crossover=Crossover(NO_LOAD, None, 200.0, False)) == "DO NOT"
        nowhere = Crossover("unclear", None, 200.0, True)
        assert verdict(*costs, at_peak=UNDECIDED, crossover=nowhere) == "MEASURE FIRST"


def test_below_a_load_of_all_replicas_it_may_still_pay() -> None:
    below = "ENABLE BELOW 40 requests/s"  # 20, where the band is still above, on two replicas
    assert verdict(4, 4, UNSURE, at_peak=LOSES) == below
    assert verdict(4, 4, UNSURE, at_peak=UNDECIDED) == below
    assert verdict(4, 6, LESS) == below
    assert verdict(4, 6, LESS, ceiling=12.0) == "ENABLE BELOW 24 requests/s", "the SLO ends before"
    everywhere = Crossover(ALL_LOADS, None, 35.0, True)
    assert verdict(4, 6, LESS, crossover=everywhere) == "ENABLE BELOW 70 requests/s"


def test_what_happens_at_the_mean_load_is_said() -> None:
    before, after = (replace(way, tpot_at_mean_s=0.01) for way in ways(6, 5))
    work, sentence = Estimate(1.3, (1.1, 1.5), (1.1, 1.5)), Verdict(PAYS, "arm: pays: TPOT speedup × 1.10")
    for time_s, message in ((0.009, False), (0.011, True)):
        slower = replace(after, tpot_at_mean_s=time_s)
        result = decide(PEAK, before, slower, work, sentence, FOUND, 1e9, 2)
        assert ("at the mean load it makes tokens slower" in result.reason) is message


def test_a_traffic_that_never_falls_so_low_has_no_use_for_it() -> None:
    busy = replace(PEAK, low=60.0)
    assert verdict(4, 4, UNSURE, at_peak=LOSES, demand=busy) == "DO NOT"
    assert verdict(4, 4, UNSURE, at_peak=UNDECIDED, demand=busy) == "MEASURE FIRST"


def failing(ratio: float, within_model_error: bool = False) -> Candidate:
    """A candidate that misses its limit with one request at a time."""
    capacity_plan = tiny_plan()
    assert capacity_plan.plain is not None
    capacity = replace(
        capacity_plan.plain.capacity,
        amount=None,
        idle=capacity_plan.plain.capacity.idle._replace(ratio=ratio),
        within_model_error=within_model_error,
    )
    return Candidate(capacity_plan.plain.setting, capacity, why_not="TPOT P99 is too long")


def test_a_way_that_fails_decides_unless_it_fails_by_less_than_the_models_error() -> None:
    able = tiny_plan().best
    for perhaps, verdicts in (
        (False, ("DO NOT", "ENABLE", "SLO UNREACHABLE")),
        (True, ("MEASURE FIRST",) * 3),
    ):
        bad = failing(1.05, perhaps)
        cases = ((able, bad), (bad, able), (bad, bad))
        result = [decision_without_slo(*case) for case in cases]
        assert tuple(decision.verdict for decision in result if decision is not None) == verdicts
    assert decision_without_slo(able, able) is None


def test_a_long_run_that_misses_the_slo_is_too_near_to_tell() -> None:
    way = tiny_plan().speculative
    assert way is not None
    assert decision_unconfirmed(way) is None
    missed = replace(way, worst_limit=way.worst_limit._replace(ratio=1.02))
    result = decision_unconfirmed(missed)
    assert result is not None
    assert result.verdict == "MEASURE FIRST"
