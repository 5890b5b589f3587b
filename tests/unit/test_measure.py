"""Figures of runs that were written down by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest

from simulator.results.measure import measure, window_of
from simulator.step.state import CANCELLED, REJECTED, TIMED_OUT
from tests.records import MS, closed_loop_record, record_of_requests

TWO = record_of_requests(
    arrival_ms=[0, 100],
    first_ms=[50, 130],
    gaps_ms=[[(10, 2), (30, 1), (20, 4)], [(40, 1)]],
    totals={
        "steps": 10,
        "busy_ns": 100 * MS,
        "draft_ns": 20 * MS,
        "host_ns": 10 * MS,
        "verify_ns": 60 * MS,
        "accept_ns": 10 * MS,
        "attention_ns": 15 * MS,
        "communication_ns": 5 * MS,
        "total_blocks": 50,
        "peak_blocks": 40,
    },
)


def test_latencies_of_two_requests() -> None:
    figures = measure(TWO)
    assert figures["ttft_s.mean"] == pytest.approx((0.050 + 0.030) / 2)
    assert figures["e2e_s.mean"] == pytest.approx((0.110 + 0.070) / 2)
    assert figures["tpot_s.mean"] == pytest.approx((0.060 / 7 + 0.040 / 1) / 2)
    assert figures["worst_gap_s.mean"] == pytest.approx((0.030 + 0.040) / 2)
    assert figures["queue_s.mean"] == 0
    assert math.isnan(figures["ttft_s.p99"]), "two samples have no P99"


def test_both_itl_definitions_differ_as_soon_as_emissions_hold_several_tokens() -> None:
    """Gaps 10, 30, 20, 40 ms with 2, 1, 4, 1 tokens: 25 ms a gap, 100 ms ÷ 8 tokens = 12.5 ms a token."""
    figures = measure(TWO)
    assert figures["itl_s.mean"] == pytest.approx(0.025)
    assert figures["itl_token_s.mean"] == pytest.approx(0.0125)


def test_mean_itl_is_tpot_times_tokens_per_emission() -> None:
    """The published relation 27.17 = 9.57 × 2.84 ms (vllm-project/vllm#25872), here on equal requests."""
    figures = measure(closed_loop_record(4, 10, rounds=25, step_ms=27.0, draws=[3, 3, 2]))
    equal = measure(closed_loop_record(4, 10, rounds=25, step_ms=27.0, tokens=3))
    assert equal["itl_s.mean"] == pytest.approx(equal["tpot_s.mean"] * equal["tokens_per_round"])
    assert figures["itl_s.mean"] == pytest.approx(0.027)


def test_acceptance_of_the_rounds() -> None:
    """Accepted 1, 0, 3, 0 of 3 drafts each."""
    figures = measure(TWO)
    assert figures["mean_acceptance_length"] == 2
    assert figures["draft_acceptance_rate"] == pytest.approx(4 / 12)
    assert [figures[f"acceptance_rate_at.{j}"] for j in (1, 2, 3)] == [0.5, 0.25, 0.25]
    assert [figures[f"conditional_acceptance.{j}"] for j in (1, 2, 3)] == [0.5, 0.5, 1.0]
    assert figures["draft_coverage"] == 1
    assert figures["tokens_per_round"] == 2


def test_step_is_split_into_its_stages_and_attention_is_part_of_verify() -> None:
    figures = measure(TWO)
    assert figures["step_s.mean"] == pytest.approx(0.010)
    parts = [figures[f"step_s.{name}"] for name in ("draft", "verify", "sampling", "host")]
    assert sum(parts) == pytest.approx(figures["step_s.mean"])
    assert figures["step_s.attention"] == pytest.approx(0.0015)
    assert figures["kv_peak_fraction"] == pytest.approx(0.8)


def test_closed_loop_rates_leave_out_filling_and_draining() -> None:
    """5 clients, an emission of 2 tokens every 10 ms, 1 + 2 × 19 tokens in 200 ms: 5 × 39 / 0.2 tokens/s."""
    record = closed_loop_record(5, 8, rounds=19, step_ms=10, tokens=2)
    figures = measure(record)
    window = window_of(record)
    assert (window.start_ns, window.end_ns) == (200 * MS, 7 * 200 * MS)
    assert figures["throughput_tokens_per_s"] == pytest.approx(5 * 39 / 0.2)
    assert figures["request_rate_per_s"] == pytest.approx(5 / 0.2)
    assert figures["mean_batch"] == pytest.approx(5 * 19 / 20), "a request decodes in 19 of its 20 steps"


def test_a_slow_tail_does_not_change_the_rates() -> None:
    """The last requests take ten times as long: the window has closed by then."""
    record = closed_loop_record(5, 8, rounds=19, step_ms=10, tokens=2)
    late = np.arange(40) >= 35
    slow = replace(
        record,
        last_ns=np.where(late, record.last_ns + 2000 * MS, record.last_ns),
        makespan_ns=record.makespan_ns + 2000 * MS,
    )
    assert measure(slow)["throughput_tokens_per_s"] == measure(record)["throughput_tokens_per_s"]


def test_burst_is_tokens_by_makespan() -> None:
    record = record_of_requests([0, 0], [10, 10], [[(20, 3)], [(20, 1), (50, 2)]])
    assert window_of(record).last == -1
    figures = measure(record)
    assert figures["throughput_tokens_per_s"] == pytest.approx(8 / 0.080)
    assert figures["request_rate_per_s"] == pytest.approx(2 / 0.080)


def test_warm_up_requests_are_not_measured() -> None:
    record = record_of_requests(
        [0, 100, 200], [90, 110, 210], [[(50, 1)], [(10, 2)], [(10, 2)]], measured=(1, 3)
    )
    figures = measure(record)
    assert figures["ttft_s.mean"] == pytest.approx(0.010)
    assert figures["itl_s.mean"] == pytest.approx(0.010)
    assert figures["mean_acceptance_length"] == 2


def test_what_was_not_answered_is_no_latency_but_fails_the_slo() -> None:
    """Of six: one timed out, one rejected, one cancelled by its client (which is no fault), one too slow."""
    record = record_of_requests([0, 10, 20, 30, 40, 50], [10, 20, 30, 40, 50, 900], [[(10, 1)]] * 6)
    status, first = record.status.copy(), record.first_ns.copy()
    status[1:4] = TIMED_OUT, REJECTED, CANCELLED
    first[1:3] = -1
    figures = measure(
        replace(record, status=status, first_ns=first), limits={"ttft_p99_s": 0.5, "tpot_p99_s": 0.05}
    )
    assert figures["e2e_s.mean"] == pytest.approx((0.020 + 0.020 + 0.860) / 3)
    assert figures["timed_out_fraction"] == pytest.approx(1 / 6)
    assert figures["rejected_fraction"] == pytest.approx(1 / 6)
    assert figures["slo_attainment"] == pytest.approx(2 / 5)
    assert math.isnan(measure(record)["slo_attainment"]), "no SLO"
    assert math.isnan(measure(record)["goodput_requests_per_s"])


def test_goodput_is_the_rate_of_good_requests() -> None:
    record = closed_loop_record(5, 8, rounds=19, step_ms=10, tokens=2)
    good = measure(record, limits={"tpot_p99_s": 0.006})
    assert good["goodput_requests_per_s"] == pytest.approx(good["request_rate_per_s"])
    assert good["slo_attainment"] == 1
    assert measure(record, limits={"tpot_p99_s": 0.004})["goodput_requests_per_s"] == 0


def test_classes_are_measured_by_themselves_and_add_up() -> None:
    classes = [0, 1, 1, 0, 1] * 8
    record = closed_loop_record(5, 8, rounds=19, step_ms=10, draws=[1, 4, 4, 1, 4], traffic_class=classes)
    figures = measure(record, ["chat", "code"])
    assert figures["classes.chat.mean_acceptance_length"] == 1
    assert figures["classes.code.mean_acceptance_length"] == 4
    assert figures["classes.code.tpot_s.mean"] == pytest.approx(0.0025)
    total = figures["classes.chat.throughput_tokens_per_s"] + figures["classes.code.throughput_tokens_per_s"]
    assert total == pytest.approx(figures["throughput_tokens_per_s"])
    rates = figures["classes.chat.request_rate_per_s"] + figures["classes.code.request_rate_per_s"]
    assert rates == pytest.approx(figures["request_rate_per_s"])
    assert not any(path.startswith("classes") for path in measure(record, ["only"]))


def test_replicas_share_the_load() -> None:
    record = closed_loop_record(4, 10, rounds=19, step_ms=10)
    twice = replace(record, totals={**record.totals, "busy_ns": 2 * record.totals["busy_ns"]})
    assert measure(twice, replicas=2)["mean_batch"] == pytest.approx(measure(record)["mean_batch"] / 2)


def test_an_empty_run_has_no_figures_and_no_error() -> None:
    figures = measure(record_of_requests([], [], []))
    assert math.isnan(figures["throughput_tokens_per_s"])
    assert math.isnan(figures["ttft_s.mean"])
    assert math.isnan(figures["mean_acceptance_length"])


def test_rate_served_above_capacity_is_that_of_the_full_engine() -> None:
    """400 requests come at once for 4 clients' worth of seats,
    5 rounds of 10 ms each: 4 / 0.06 requests/s all along.
    """
    record = closed_loop_record(4, 100, rounds=5, step_ms=10, tokens=2)
    at_once = replace(record, arrival_ns=np.arange(400) * 1000)
    window = window_of(at_once, saturated=True)
    assert (window.start_ns, window.end_ns) == (11 * 60 * MS, 90 * 60 * MS)
    figures = measure(at_once, saturated=True)
    assert figures["request_rate_per_s"] == pytest.approx(4 / 0.060)
    assert figures["throughput_tokens_per_s"] == pytest.approx(4 * 11 / 0.060)
    few = closed_loop_record(100, 3, rounds=5, step_ms=10)
    assert window_of(few, saturated=True).end_ns == few.makespan_ns, "a third of the run is served at once"
