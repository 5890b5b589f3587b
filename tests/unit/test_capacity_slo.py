"""The SLO as people type it, and how a run is held against it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.capacity.slo import METRICS, STATISTICS, Limit, slo_from_text, slo_of
from simulator.errors import InputError
from tests.runs import small_scenario

CLASSES = ("chat", "code")


def bad(text: str, classes: tuple[str, ...] = ()) -> str:
    with pytest.raises(InputError) as error:
        slo_from_text(text, classes)
    return str(error.value)


@given(
    st.sampled_from(list(METRICS)),
    st.sampled_from(STATISTICS),
    st.sampled_from([("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("µs", 1e-6)]),
    st.floats(1e-3, 1e6),
)
def test_every_limit_is_read_in_its_unit(
    metric: str, statistic: str, unit: tuple[str, float], number: float
) -> None:
    name, seconds = unit
    (limit,) = slo_from_text(f" {metric.upper()}_{statistic} = {number!r}{name} ").limits
    assert (limit.metric, limit.statistic, limit.traffic_class) == (metric, statistic, None)
    assert limit.maximum == pytest.approx(number * seconds, rel=1e-12)
    assert limit.path == f"{metric}_s.{statistic}"


def test_limits_of_classes_stand_under_their_class() -> None:
    slo = slo_from_text("chat.tpot_p99=25ms,ttft_p99=1s", CLASSES)
    assert [limit.path for limit in slo.limits] == ["classes.chat.tpot_s.p99", "ttft_s.p99"]
    assert [limit.path for limit in slo.of_class("chat").limits] == ["tpot_s.p99", "ttft_s.p99"]
    assert [limit.path for limit in slo.of_class("code").limits] == ["ttft_s.p99"]


def test_a_class_without_limits_keeps_every_load() -> None:
    alone = slo_from_text("chat.tpot_p99=25ms", CLASSES).of_class("code")
    assert alone.score({"e2e_s.mean": 1e9}) < 0


def test_goodput_takes_the_limits_as_those_of_each_request() -> None:
    for text in ("ttft=1s,tpot=25ms,goodput=95%", "ttft_p99=1s,tpot_p90=25ms,goodput=0.95"):
        slo = slo_from_text(text)
        assert [(limit.path, limit.maximum) for limit in slo.limits] == [
            ("slo_attainment", pytest.approx(0.05))
        ]
        assert slo.limits_of_requests == {"ttft_each_s": 1.0, "tpot_each_s": 0.025}


def test_goodput_alone_takes_the_scenarios_limits() -> None:
    scenario = small_scenario({"slo": {"ttft_p99_s": 2.0}})
    assert slo_of(scenario, "goodput=90%").each_s == {"ttft": 2.0}
    assert slo_of(scenario).limits == (Limit("ttft", "p99", 2.0),)
    assert slo_of(scenario, "tpot_mean=9ms").limits == (Limit("tpot", "mean", 0.009),), "the option's alone"


def test_the_score_is_that_of_the_worst_limit_and_rises_through_zero_at_it() -> None:
    slo = slo_from_text("ttft_p99=1s,tpot_p99=20ms")
    assert slo.score({"ttft_s.p99": 0.5, "tpot_s.p99": 0.04}) == pytest.approx(math.log(2))
    assert slo.score({"ttft_s.p99": 1.0, "tpot_s.p99": 0.01}) == 0
    assert slo.score({"ttft_s.p99": 0.5, "tpot_s.p99": 0.015}) == pytest.approx(math.log(0.75))
    assert slo.score({"ttft_s.p99": 0.5}) > 5, "a limit without a figure is missed"
    share = slo_from_text("ttft=1s,goodput=95%")
    assert share.score({"slo_attainment": 0.95}) == pytest.approx(0, abs=1e-9)
    assert share.score({"slo_attainment": 1.0}) < -3 < 0.5 < share.score({"slo_attainment": 0.9})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a limit"),
        ("ttft_p99", "is not a limit"),
        ("ttft_p99=", "is not a limit"),
        ("ttft_p99<1s", "is not a limit"),
        ("ttft_p99=1", "has no unit"),
        ("ttft_p99=1min", "has the unit 'min'"),
        ("ttft_p99=0s", "is not a duration above 0"),
        ("ttft_p99=-1s", "is not a duration above 0"),
        ("ttft_p99=nan", "is not a duration above 0"),
        ("ttft_p99=1e999s", "is not a duration above 0"),
        ("tfft_p99=1s", "did you mean ttft?"),
        ("p99_ttft=1s", "limits an unknown metric"),
        ("tpot_p42=1ms", "has an unknown statistic"),
        ("tpot_p999=1ms", "one of mean, p50, p90, p95, p99"),
        ("ttft_p99=1s,ttft_p99=2s", "limits TTFT P99 twice"),
        ("ttft=1s,ttft=2s,goodput=90%", "limits TTFT twice"),
        ("ttft=1s,goodput=95%,goodput=90%", "limits goodput twice"),
        ("ttft=1s", "does not state for which requests ttft holds"),
        ("goodput=95%", "goodput needs limits to meet"),
        ("ttft=1s,goodput=95", "is not a share of requests"),
        ("ttft=1s,goodput=0%", "is not a share of requests"),
        ("ttft=1s,goodput=100%", "is not a share of requests"),
        ("chat.ttft_p99=1s", "names no traffic class 'chat'"),
    ],
)
def test_what_cannot_be_read_is_said(text: str, message: str) -> None:
    assert message in bad(text)
    assert bad(text).startswith("--slo: ")


def test_all_that_is_wrong_is_said_at_once() -> None:
    assert len(bad("ttft_p99=1,tpot_p42=1ms,chat.itl_p99=2s", ("news", "code")).splitlines()) == 3


def test_classes_that_are_known_are_listed() -> None:
    assert "known: chat, code" in bad("cod.ttft_p99=1s", CLASSES)
    assert "limits each request of a class" in bad("chat.ttft=1s", CLASSES)


def test_without_any_slo_nothing_can_be_planned() -> None:
    with pytest.raises(InputError, match="nothing limits the load"):
        slo_of(small_scenario())
