"""Requests that outgrow the drafter go on without drafts, and the answers say how many there are."""

from __future__ import annotations

from typing import Any

from simulator.breakeven.breakeven import breakeven
from simulator.runs.variant import CompiledVariant
from simulator.scenario import Scenario
from simulator.simulation import simulate
from simulator.step.state import NEVER
from tests.runs import small_scenario

NOTE = "of the requests outgrow the drafter's 150 tokens, and go on without drafts"


def scenario(prompt_tokens: int, changes: dict[str, Any] | None = None) -> Scenario:
    """A drafter that goes to 150 tokens, and outputs of 20."""
    base = {
        "speculation.eagle3.max_context_tokens": 150,
        "workload.prompt_tokens": {"kind": "fixed", "tokens": prompt_tokens},
        "workload.output_tokens": {"kind": "fixed", "tokens": 20},
        "run.replications": 2,
    }
    return small_scenario(base | (changes or {}))


def notes_of(scenario: Scenario) -> list[str]:
    return [note for note in simulate(scenario).notes if NOTE in note]


def test_requests_that_fit_are_not_mentioned() -> None:
    result = simulate(scenario(130))
    assert not [note for note in result.notes if NOTE in note]
    coverage = result.variants["eagle3"]["draft_coverage"]
    assert coverage is not None
    assert coverage.value == 1


def test_requests_that_outgrow_it_draft_until_then() -> None:
    result = simulate(scenario(140))
    assert notes_of(scenario(140)) == [f"eagle3: 100.0% {NOTE}"]
    coverage = result.variants["eagle3"]["draft_coverage"]
    assert coverage is not None
    assert 0 < coverage.value < 1


def test_requests_of_a_class_that_never_drafts_do_not_count() -> None:
    classes = [{"name": "silent", "share": 0.5, "drafts": False}, {"name": "all", "share": 0.5}]
    (note,) = notes_of(scenario(140, {"workload.classes": classes, "workload.requests": 400}))
    share = float(note.removeprefix("eagle3: ").partition("%")[0])
    assert 40 < share < 60


def test_the_break_even_says_it_too() -> None:
    assert breakeven(scenario(140)).notes[0] == f"100.0% {NOTE}"
    assert not any(NOTE in note for note in breakeven(scenario(100)).notes)


def test_a_limit_in_the_scenario_goes_before_the_drafters_own() -> None:
    for limit in (None, 100, 1_000_000):
        scenario = small_scenario({"speculation.eagle3.max_context_tokens": limit})
        variant = CompiledVariant.compile(scenario, scenario.speculation[0])
        assert variant.settings.drafter_max_context == (
            limit or variant.setup.drafter_max_context_tokens or NEVER
        )
