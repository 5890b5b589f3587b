"""What is asked of the service, and how many replicas of a known capacity carry it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.capacity.demand import RATE, USERS, Demand, demand_of
from simulator.errors import InputError
from simulator.results.estimate import Estimate
from tests.runs import small_scenario

RATES = st.floats(1e-3, 1e5)


def of(arrivals: dict[str, Any], rate: float | None = None) -> Demand:
    return demand_of(small_scenario({"workload.arrivals": arrivals}), rate)


def profile(*rows: tuple[float, float]) -> Demand:
    return of({"kind": "profile", "rates_per_s": [list(row) for row in rows]})


def test_one_figure_is_the_peak_of_what_also_falls_below_it() -> None:
    assert of({"kind": "poisson", "rate_per_s": 7.0}) == Demand(RATE, 7.0, 7.0, 0.0)
    assert of({"kind": "gamma", "rate_per_s": 7.0, "cv": 2.0}) == Demand(RATE, 7.0, 7.0, 0.0)
    assert of({"kind": "closed", "concurrency": 64}) == Demand(USERS, 64.0, 64.0, 0.0)
    assert of({"kind": "burst"}, 3.0) == Demand(RATE, 3.0, 3.0, 0.0)
    assert of({"kind": "closed", "concurrency": 64}, 3.0) == Demand(RATE, 3.0, 3.0, 0.0)


def test_a_profile_of_a_day_ends_with_it() -> None:
    result = profile((0, 2), (8 * 3600, 10), (18 * 3600, 4))
    assert result.rows == ((8 * 3600, 2), (10 * 3600, 10), (6 * 3600, 4))
    assert (result.peak, result.low) == (10, 2)
    assert result.mean == pytest.approx((8 * 2 + 10 * 10 + 6 * 4) / 24)


def test_a_short_profile_ends_with_a_row_as_long_as_the_one_before() -> None:
    result = profile((0, 2), (60, 8), (90, 0), (100, 5))
    assert result.rows == ((60, 2), (30, 8), (10, 0), (10, 5))
    assert (result.peak, result.low) == (8, 2), "nobody is there to speculate for at 0"
    assert result.mean == pytest.approx((120 + 240 + 50) / 110)
    assert profile((0, 3)).rows == ()


@given(st.sampled_from([RATE, USERS]), RATES, RATES, RATES)
def test_replicas_carry_the_peak_and_are_monotone(
    kind: str, first: float, other: float, capacity: float
) -> None:
    low, high = sorted((max(1, round(x)) if kind == USERS else x) for x in (first, other))
    less, more = (Demand(kind, peak, peak, 0.0) for peak in (low, high))
    carried = max(1, int(capacity + 1e-6)) if kind == USERS else capacity
    for demand in (less, more):
        count = demand.replicas(capacity)
        assert count * carried >= demand.peak * (1 - 1e-9)
        assert (count - 1) * carried < demand.peak or count == 1
        assert demand.replica_load(count) <= carried * (1 + 1e-9)
    assert less.replicas(capacity) <= more.replicas(capacity)
    assert more.replicas(2 * capacity) <= more.replicas(capacity)


@given(RATES, RATES, st.floats(1.0, 2.0), st.floats(1.0, 2.0))
def test_the_unlucky_end_of_the_interval_is_planned_for(
    peak: float, capacity: float, sampling: float, model: float
) -> None:
    demand = Demand(RATE, peak, peak, 0.0)
    around = Estimate(
        capacity,
        (capacity / sampling, capacity * sampling),
        (capacity / sampling / model, capacity * sampling * model),
    )
    fewest, most = demand.possible_replicas(around)
    assert fewest <= demand.replicas(capacity) <= demand.safe_replicas(around) <= most
    assert demand.safe_replicas(Estimate(capacity)) == demand.replicas(capacity)


def test_loads_are_said_in_their_unit() -> None:
    assert Demand(RATE, 2.5, 2.5, 0.0).words(2.5) == "2.50 requests/s"
    assert Demand(USERS, 1, 1, 0.0).words(1) == "1 concurrent request"
    assert Demand(RATE, 1, 1, 0.0).words(1) == "1 requests/s"
    assert Demand(USERS, 1200, 1200, 0.0).words(1200) == "1,200 concurrent requests"


@pytest.mark.parametrize(
    ("arrivals", "rate", "message"),
    [
        ({"kind": "burst"}, None, "there is no rate to plan for"),
        ({"kind": "poisson", "rate_per_s": 1.0}, 0.0, "--rate: is out of range"),
        ({"kind": "poisson", "rate_per_s": 1.0}, -2.0, "--rate: is out of range"),
        ({"kind": "poisson", "rate_per_s": 1.0}, float("nan"), "--rate: is out of range"),
        ({"kind": "poisson", "rate_per_s": 1.0}, 1e9, "--rate: is out of range"),
    ],
)
def test_what_has_no_rate_is_refused(arrivals: dict[str, Any], rate: float | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        of(arrivals, rate)


@pytest.mark.parametrize("rate", [None, 5.0])
def test_a_trace_is_refused_as_its_lengths_would_be_lost(tmp_path: Any, rate: float | None) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,374,44\n", "utf-8")
    with pytest.raises(InputError, match="replays recorded times and lengths"):
        of({"kind": "trace", "file": str(file)}, rate)
