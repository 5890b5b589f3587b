"""K schedules and Pareto fronts, from throughput curves whose crossings are known."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.capacity.grid import LoadPoint, concurrencies, pareto
from experiments.capacity.replica import ReplicaSetting
from experiments.capacity.schedule import MIN_GAIN, Schedule, schedule_of
from tests.runs import small_scenario

LOADS = concurrencies(256)
PLAIN = ReplicaSetting(None, 1, "h100-sxm")


def powers(curves: dict[int, tuple[float, float]]) -> dict[int, list[LoadPoint]]:
    """K → a · batch^b at every load: straight lines between logarithms, so that interpolation is exact."""
    return {k: [LoadPoint(PLAIN, n, a * n**b, 1.0) for n in LOADS] for k, (a, b) in curves.items()}


def test_rows_change_where_another_k_gains_the_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    """3 · n^0.5 and n: equal at 9; the second is 1 % ahead from 9 · 1.01² = 9.18 on."""
    result = schedule_of(powers({4: (3.0, 0.5), 1: (1.0, 1.0)}))
    assert result.rows == ((1, 9, 4), (10, None, 1))
    monkeypatch.setattr("experiments.capacity.schedule.MIN_GAIN", 0.5)
    wide = schedule_of(powers({4: (3.0, 0.5), 1: (1.0, 1.0)}))
    assert wide.rows == ((1, 20, 4), (21, None, 1)), "9 · 1.5² = 20.25"


def test_ties_make_no_rows_and_the_shorter_draft_wins_them() -> None:
    assert schedule_of(powers({0: (1.0, 0.7), 3: (1.0, 0.7), 5: (1.0, 0.7)})).rows == ((1, None, 0),)


def test_noise_within_the_margin_makes_no_rows() -> None:
    noisy = powers({2: (1.0, 0.7), 3: (1.0, 0.7)})
    noisy[3] = [
        LoadPoint(PLAIN, p.concurrency, p.tokens_per_s * (1 + 0.9 * MIN_GAIN * (-1) ** i), 1.0)
        for i, p in enumerate(noisy[3])
    ]
    assert len(schedule_of(noisy, longest=2).rows) == 1


def test_near_the_peak_no_draft_is_longer_than_the_chosen_one() -> None:
    curves = powers({1: (1.0, 0.9), 3: (2.0, 0.85), 6: (4.0, 0.8)})
    assert schedule_of(curves).rows == ((1, None, 6),)
    assert schedule_of(curves, longest=3, peak_batch=40).rows == ((1, 19, 6), (20, None, 3))


@given(st.dictionaries(st.integers(0, 8), st.tuples(st.floats(0.5, 5), st.floats(0.2, 1)), min_size=1))
def test_every_schedule_is_one_that_a_scenario_takes_and_loses_no_more_than_the_margin(
    curves: dict[int, tuple[float, float]],
) -> None:
    points = powers(curves)
    result = schedule_of(points)
    scenario = small_scenario({"speculation.eagle3.draft_length": result.to_json()})
    assert scenario.variant("eagle3").draft_length == result.rows
    assert all(row[2] != other[2] for row, other in pairwise(result.rows))
    for index, load in enumerate(LOADS):
        best = max(row[index].tokens_per_s for row in points.values())
        taken = points[result.draft_length(load)][index].tokens_per_s
        assert taken >= best / (1 + MIN_GAIN) * (1 - 1e-9)


def test_boundaries_near_a_batch_are_found() -> None:
    schedule = Schedule(((1, 15, 5), (16, 63, 3), (64, None, 0)))
    assert schedule.boundaries_within(15, 20) == [16]
    assert schedule.boundaries_within(16, 64) == [64]
    assert schedule.boundaries_within(17, 63) == []
    assert [schedule.draft_length(n) for n in (1, 15, 16, 63, 64, 10_000)] == [5, 5, 3, 3, 0, 0]


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=40))
def test_the_pareto_front_is_what_nothing_beats(places: list[tuple[int, int]]) -> None:
    points = [LoadPoint(PLAIN, 1, float(gpu), 1 / user) for gpu, user in places]
    front = pareto(points)

    def beaten(point: LoadPoint) -> bool:
        return any(
            other.tokens_per_s_per_gpu >= point.tokens_per_s_per_gpu
            and other.tokens_per_s_per_user >= point.tokens_per_s_per_user
            and (other.tokens_per_s, other.tpot_s) != (point.tokens_per_s, point.tpot_s)
            for other in points
        )

    assert {(p.tokens_per_s, p.tpot_s) for p in front} == {
        (p.tokens_per_s, p.tpot_s) for p in points if not beaten(p)
    }
    assert len(front) == len({(p.tokens_per_s, p.tpot_s) for p in front})
    assert all(point.tokens_per_s_per_user > other.tokens_per_s_per_user for point, other in pairwise(front))


@pytest.mark.parametrize(("request_limit", "expected"), [(1, (1,)), (4, (1, 2, 4)), (6, (1, 2, 4, 6))])
def test_loads_end_at_the_seats(request_limit: int, expected: tuple[int, ...]) -> None:
    assert concurrencies(request_limit) == expected
    assert math.isclose(max(expected), request_limit)
