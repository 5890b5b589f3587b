"""Stages follow the verdict, and their thresholds the plan."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from experiments.capacity.decision import PlanDecision
from experiments.cli import decodesim
from experiments.rollout.figures import acceptance_gate, requests_for
from experiments.rollout.markdown import rollout_markdown
from experiments.rollout.rollout import RolloutPlan, rollout
from experiments.rollout.stages import alert_rules, stages_of
from simulator.breakeven.theory import tokens_per_verify
from simulator.scenario import scenario_yaml
from tests.plans import tiny


@cache
def tiny_rollout(alpha: float = 0.5, rate: float = 100.0, method: str = "ngram") -> RolloutPlan:
    """The rollout of the tiny plan."""
    changes: dict[str, Any] = {"speculation.0.acceptance.alpha": alpha} if alpha != 0.5 else {}
    if method != "ngram":
        changes |= {"speculation.0.method": method, "speculation.0.draft": "smollm2-135m-instruct"}
    return rollout(tiny(changes or None), rate_per_s=rate)


def with_verdict(verdict: str, below: float | None = None) -> RolloutPlan:
    """The tiny rollout under another verdict."""
    facts = tiny_rollout().facts
    decision = PlanDecision(verdict, "because", below)
    changed = replace(facts, plan=replace(facts.plan, decision=decision))
    stages = stages_of(changed)
    return RolloutPlan(changed, stages, alert_rules(changed) if len(stages) > 1 else [])


@pytest.mark.parametrize(
    ("verdict", "names"),
    [
        ("ENABLE", ["baseline", "canary", "ramp", "fleet"]),
        ("ENABLE BELOW 5 requests/s", ["baseline", "canary", "ramp", "fleet"]),
        ("MEASURE FIRST", ["measure"]),
        ("DO NOT", []),
        ("SLO UNREACHABLE", []),
    ],
)
def test_stages_follow_the_verdict(verdict: str, names: list[str]) -> None:
    answer = with_verdict(verdict, 5.0 if "BELOW" in verdict else None)
    assert [stage.name for stage in answer.stages] == names
    assert bool(answer.alerts) == (len(names) > 1)
    assert verdict in answer.markdown
    if "BELOW" in verdict:
        assert "below 5" in answer.markdown


def test_the_acceptance_gate_is_the_break_even_of_the_plan() -> None:
    plan = tiny_rollout().plan
    gate = acceptance_gate(plan)
    assert gate is not None
    assert plan.break_even is not None
    assert plan.break_even.alpha is not None
    low, high = plan.break_even.alpha.band or (math.nan, math.nan)
    length = plan.best.setting.draft_length
    assert (gate.low, gate.high) == (
        pytest.approx(tokens_per_verify(low, length)),
        pytest.approx(tokens_per_verify(high, length)),
    )
    assert gate.expected == pytest.approx(tokens_per_verify(0.5, length))
    assert gate.rounds >= 100
    assert requests_for(gate, 40.0) >= 1000


def test_rounds_grow_as_the_expected_length_nears_the_break_even() -> None:
    facts = tiny_rollout().facts
    gate = facts.acceptance
    assert gate is not None

    def rounds(alpha: float) -> int:
        assert facts.plan.break_even is not None
        near = replace(facts.plan, break_even=replace(facts.plan.break_even, scenario_alpha=alpha))
        gate_near = acceptance_gate(near)
        assert gate_near is not None
        return gate_near.rounds

    assert facts.plan.break_even is not None
    assert facts.plan.break_even.alpha is not None
    _, high = facts.plan.break_even.alpha.band or (0.0, 0.0)
    assert rounds(min(high + 0.02, 0.99)) > rounds(min(high + 0.3, 0.99))


def test_guards_and_alerts_have_the_numbers_of_the_plan() -> None:
    answer = tiny_rollout()
    guards = {guard.path: guard for guard in answer.facts.guards}
    assert guards["tpot_s.p99"].limit_s == 0.0017
    assert guards["tpot_s.p99"].from_slo
    assert answer.plan.speculative is not None
    simulated = answer.plan.speculative.summary.estimates["ttft_s.p99"]
    assert simulated is not None
    assert guards["ttft_s.p99"].limit_s == pytest.approx(1.1 * simulated.value)
    rules = {rule["alert"]: rule["expr"] for rule in alert_rules(answer.facts)}
    assert rules["SpeculationP99TPOTHigh"].endswith("> 0.0017")
    gate = answer.facts.acceptance
    assert gate is not None
    assert rules["SpeculationAcceptanceLow"].endswith(f"< {gate.low:.3f}")


def test_lower_acceptance_changes_verdict_gates_and_queries() -> None:
    good, poor = tiny_rollout(), tiny_rollout(alpha=0.3, method="draft_model")
    assert good.plan.decision.verdict != poor.plan.decision.verdict
    assert len(good.stages) != len(poor.stages)
    assert [rule["expr"] for rule in good.alerts] != [rule["expr"] for rule in poor.alerts]


def test_another_load_changes_the_numbers() -> None:
    before, after = tiny_rollout(), tiny_rollout(rate=1000.0)
    rates = [
        re.findall(
            r"--request-rate (\S+)", " ".join(command for s in answer.stages for command in s.commands)
        )
        for answer in (before, after)
    ]
    assert before.plan.to_json()["replicas"] != after.plan.to_json()["replicas"]
    assert rates[0]
    assert rates[1]
    assert set(rates[0]) != set(rates[1])


def test_alerts_are_a_rule_file_of_prometheus() -> None:
    answer = with_verdict("ENABLE")
    (block,) = re.findall(r"```yaml\n(.*?)```", answer.markdown, re.DOTALL)
    rules = YAML(typ="safe").load(block)["groups"][0]["rules"]
    assert [rule["alert"] for rule in rules] == [rule["alert"] for rule in answer.alerts]
    assert all(rule["expr"] and rule["for"] == "10m" for rule in rules)


def test_gates_are_written_once_and_named_after_that() -> None:
    answer = with_verdict("ENABLE")
    text = rollout_markdown(answer.facts, answer.stages, answer.alerts)
    assert text.count("the gates above still hold") == 2
    assert text.count("**mean acceptance length above") == 1


@pytest.mark.parametrize(
    ("engine", "word"), [("sglang", "sglang.bench_serving"), ("vllm", "vllm bench serve")]
)
def test_commands_and_queries_are_those_of_the_engine(engine: str, word: str) -> None:
    facts = replace(with_verdict("ENABLE").facts, engine=engine)
    stages = stages_of(facts)
    assert word in stages[0].commands[0]
    queries = [gate.query for gate in stages[1].gates if gate.query]
    assert all(engine in query for query in queries)


def test_the_command_writes_markdown_or_json(tmp_path: Any) -> None:
    scenario, output = tmp_path / "tiny.yaml", tmp_path / "rollout.md"
    scenario.write_text(scenario_yaml(tiny()), encoding="utf-8")
    done = CliRunner().invoke(decodesim, ["rollout", str(scenario), "-o", str(output), "--json"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["markdown"] == output.read_text("utf-8")
    assert {"verdict", "stages", "engine", "markdown", "alerts"} <= document.keys()
    again = CliRunner().invoke(decodesim, ["rollout", str(scenario), "-o", str(output)])
    assert again.exit_code == 2
    assert "--force" in again.output
