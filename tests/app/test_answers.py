"""Break-even and speedup over the load, in closed form and simulated."""

from __future__ import annotations

import pytest

from dashboards.app import answers
from dashboards.app.settings import Base
from simulator.breakeven.breakeven import breakeven
from simulator.scenario import Scenario, scenario_from_flags
from simulator.scenario.flags import EXAMPLE


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return Base(scenario_from_flags(EXAMPLE)).scenario_of({"concurrency": 16, "prompt_tokens": 200})


def test_a_break_even_lies_where_the_speedup_is_one() -> None:
    needed = answers.break_even((0.1, 0.5, 0.9), (0.8, 1.2, 1.6))
    assert needed is not None
    assert needed.value == pytest.approx(0.3)
    assert needed.band == (pytest.approx(0.2), pytest.approx(0.4))
    assert answers.break_even((0.1, 0.9), (0.5, 0.8)) is None
    assert answers.break_even((0.1, 0.9), (None, None)) is None
    always = answers.break_even((0.1, 0.9), (1.5, 2.3))
    assert always is not None
    assert always.value == 0.0


def test_the_simulated_break_even_agrees_with_the_command(scenario: Scenario) -> None:
    study = answers.simulated(scenario, lambda: False)
    assert study is not None
    (document,) = study.break_even.values()
    (row,) = (row for row in document["rows"] if row["concurrency"] == 16)
    reference = breakeven(scenario).rows[0].simulated_alpha
    assert reference is not None
    assert row["simulated_alpha"]["value"] == pytest.approx(reference.value, abs=0.05)


def test_the_closed_form_is_tokens_over_time(scenario: Scenario) -> None:
    study = answers.closed_form(scenario)
    (speedups,) = study.speedup.values()
    load, alpha = speedups.concurrency.index(16), speedups.alpha.index(0.7)
    overhead = answers.overhead_at(scenario, scenario.speculation[0], 16)
    assert overhead is not None
    assert speedups.speedup[alpha][load] == pytest.approx((1 + 0.7 + 0.49 + 0.343) / (1 + overhead))


def test_a_page_that_has_moved_on_stops_the_study(scenario: Scenario) -> None:
    asked = []

    def is_stale() -> bool:
        asked.append(True)
        return len(asked) > 1

    assert answers.simulated(scenario, is_stale) is None
    assert len(asked) == 2


def test_answers_are_made_once_and_forgotten_in_time(scenario: Scenario) -> None:
    cache, made = answers.AnswerCache(), []
    for _ in range(2):
        cache.answer("point", scenario, lambda: made.append(True) or "answer")
    assert len(made) == 1
    for number in range(100):
        cache.answer(str(number), scenario, lambda: "other")
    cache.answer("point", scenario, lambda: made.append(True) or "answer")
    assert len(made) == 2
