"""The example with every method: each is there, prints one row, and only equal costs give equal figures."""

from __future__ import annotations

from itertools import combinations

import pytest

from experiments.commands.simulate import print_result
from simulator.results.result import Result
from simulator.scenario import Scenario, load_scenario
from simulator.simulation import simulate
from simulator.speculation import methods
from tests.shared_data import ROOT

SAME_COST = {frozenset({"eagle", "mtp"})}
"""EAGLE's layer and an MTP module of the target's shape: as many passes, as many rows, the same layer."""


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    changes = ["workload.requests=60", "run.replications=2"]
    return load_scenario(ROOT / "examples" / "method-shootout.yaml", changes)


@pytest.fixture(scope="module")
def result(scenario: Scenario) -> Result:
    return simulate(scenario)


def test_every_method_takes_part(scenario: Scenario) -> None:
    assert {variant.method for variant in scenario.speculation} == set(methods())


def test_no_two_methods_have_the_same_steps(result: Result) -> None:
    steps = {
        name: tuple(values.get(f"step_s.{part}") for part in ("mean", "draft", "verify"))
        for name, values in ((name, variant.values()) for name, variant in result.variants.items())
    }
    equal = {frozenset(pair) for pair in combinations(steps, 2) if steps[pair[0]] == steps[pair[1]]}
    assert equal == SAME_COST


def test_parallel_drafters_take_one_pass_and_chains_one_for_each_draft(result: Result) -> None:
    draft_s = {name: variant.values()["step_s.draft"] for name, variant in result.variants.items()}
    assert draft_s["peagle"] < 0.6 * draft_s["eagle"]
    assert draft_s["pard"] < 0.6 * draft_s["draft-model"]
    assert draft_s["plain"] == draft_s["lookahead"] == 0.0


def test_the_table_has_a_row_for_each_variant_the_fastest_first(
    result: Result, scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    print_result(result.to_json(), scenario)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    names = [row[0] for row in rows if row and row[0] in result.variants]
    assert sorted(names) == sorted(result.variants)
    factors = {row[0]: float(row[2]) for row in rows if row and row[0] in result.comparison}
    ranked = [factors[name] for name in names if name in factors]
    assert ranked == sorted(ranked, reverse=True)
