"""The figures of the report: what each table holds, against the result, closed forms and arithmetic."""

from __future__ import annotations

import inspect
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dashboards.closure_page
import dashboards.figures
import dashboards.profile_page
from dashboards.figures import (
    FIGURES,
    STUDY_FIGURES,
    Figure,
    acceptance,
    break_even,
    memory,
    speedup_map,
    step_time,
    tails,
)
from dashboards.figures.look import (
    ARM_COLOURS,
    PLAIN_COLOUR,
    arm_colours,
    draft_lengths,
    log_ticks,
    tick_text,
)
from dashboards.subject import Subject
from dashboards.table import Column, Table, empty
from experiments.maps.speedup import SpeedupMap
from simulator.results.measure import measure
from simulator.results.metrics import histogram_statistics
from tests.subjects import (
    ARM,
    break_even_row,
    by_hand,
    small_subject,
    with_arms_saturated,
    with_break_even,
    with_map,
)

EVERY_FIGURE = pytest.mark.parametrize("figure", FIGURES.values(), ids=FIGURES)


def test_every_file_with_a_figure_is_registered() -> None:
    folder = Path(dashboards.figures.__file__).parent
    files = {path for path in folder.glob("*.py") if re.search(r"^FIGURE\b", path.read_text("utf-8"), re.M)}
    assert len(FIGURES) == 6
    assert len(STUDY_FIGURES) == 4
    of_devices = (*dashboards.closure_page.FIGURES, *dashboards.profile_page.FIGURES)
    drawn = [one.draw for one in (*FIGURES.values(), *STUDY_FIGURES.values(), *of_devices)]
    assert files == {Path(inspect.getfile(draw)) for draw in drawn}


@EVERY_FIGURE
def test_every_figure_has_rows_says_something_and_draws_with_units(figure: Figure[Subject]) -> None:
    table = figure.prepare(small_subject())
    assert table.rows
    assert figure.finding(table)
    assert all(line.endswith(".") for line in figure.finding(table))
    assert figure.caption(table).endswith(".")
    for _, part in figure.pictures(table):
        drawn = figure.draw(part)
        assert drawn.layout.xaxis.title.text
        assert drawn.layout.yaxis.title.text or drawn.layout.yaxis.categoryarray
        assert "NaN" not in drawn.to_json()


@EVERY_FIGURE
def test_every_figure_says_why_it_is_empty(figure: Figure[Subject]) -> None:
    subject = replace(by_hand({}, {}), why="The scenario is elsewhere.")
    table = figure.prepare(subject)
    assert table.rows == ()
    assert table.missing
    assert table.missing.endswith(".")


@EVERY_FIGURE
def test_the_same_subject_gives_the_same_table(figure: Figure[Subject]) -> None:
    assert figure.prepare(small_subject()) == figure.prepare(small_subject())


# --- break-even -------------------------------------------------------------------------------------------


def test_break_even_has_the_rows_of_the_study() -> None:
    subject = small_subject()
    table = break_even.prepare(subject)
    rows = subject.study.break_even[ARM]["rows"]
    assert table["concurrency"] == [row["concurrency"] for row in rows] == [1, 4, 8, 16]
    assert table["simulated"] == [row["simulated_alpha"]["value"] for row in rows]
    assert table["low"] == [row["simulated_alpha"]["band"][0] for row in rows]
    assert table["high"] == [row["simulated_alpha"]["band"][1] for row in rows]
    assert table.facts["own_concurrency"] == 8
    for low, value, high in zip(table["low"], table["simulated"], table["high"], strict=True):
        assert low < value < high


def test_break_even_says_where_it_pays_in_stretches() -> None:
    rows = [
        break_even_row(1, 0.1, "pays"),
        break_even_row(4, 0.2, "pays"),
        break_even_row(64, 0.7, "undecided"),
        break_even_row(256, None, "unreachable"),
    ]
    table = break_even.prepare(with_break_even(by_hand({}, {}), rows))
    assert break_even.finding(table) == [
        f"At an acceptance α of 0.70, {ARM} pays from 1 to 4 clients, is undecided (within the error) "
        "at 64 clients and gains nothing at any α at 256 clients."
    ]


def test_break_even_without_an_alpha_says_what_is_needed() -> None:
    rows = [break_even_row(1, 0.1, "undecided", None), break_even_row(64, 0.62, "undecided", None)]
    table = break_even.prepare(with_break_even(by_hand({}, {}), rows))
    assert break_even.finding(table) == [
        f"{ARM} needs an acceptance of 0.10 at 1 client and 0.62 at 64 clients."
    ]
    assert not break_even.draw(table).layout.shapes


def test_break_even_marks_the_scenario_on_its_line() -> None:
    drawn = break_even.draw(break_even.prepare(small_subject()))
    ring = drawn.data[-1]
    assert (ring.x, ring.y) == ((8,), (0.7,))
    assert [trace.name for trace in drawn.data[:-1]] == [
        "simulated",
        "its error",
        "geometric",
        "linear (accepted ÷ drafted)",
    ]


def test_break_even_leaves_out_what_has_no_root() -> None:
    rows = [break_even_row(1, 0.1, "pays"), break_even_row(64, None, "unreachable")]
    drawn = break_even.draw(break_even.prepare(with_break_even(by_hand({}, {}), rows)))
    simulated, band = drawn.data[:2]
    assert simulated.y == (0.1, None)
    assert band.x == (1, 1)


def test_an_arm_whose_k_varies_says_so_and_has_no_closed_forms() -> None:
    row = {**break_even_row(1, 0.1, "pays"), "geometric_alpha": None, "linear_acceptance_rate": None}
    arms = [{"name": ARM, "draft_length": [[1, 15, 3], [16, None, 0]]}]
    table = break_even.prepare(with_break_even(by_hand({}, {}, speculation=arms), [row]))
    assert "K = 3 at most." in break_even.caption(table)
    assert {trace.name for trace in break_even.draw(table).data} == {"simulated", "its error", None}


def test_lengths_of_several_arms_are_told_apart() -> None:
    columns = (Column("arm", ""), Column("draft_length", ""))
    assert draft_lengths(Table(columns, (("a", 3), ("b", 3))), ()) == "K = 3"
    assert draft_lengths(Table(columns, (("a", 3), ("b", 5))), ("b",)) == "K = 3 for a, K = 5 at most for b"


# --- speedup map ------------------------------------------------------------------------------------------


def map_of(*speedups: tuple[float | None, ...]) -> SpeedupMap:
    alphas = tuple(round(0.5 + 0.1 * i, 1) for i in range(len(speedups)))
    return SpeedupMap(ARM, 3, alphas, (1, 64)[: len(speedups[0])], speedups)


def test_the_map_holds_every_cell_and_the_scenario_is_one() -> None:
    subject = small_subject()
    table = speedup_map.prepare(subject)
    found = subject.study.speedup[ARM]
    assert len(table.rows) == len(found.alpha) * len(found.concurrency)
    assert 0.7 in found.alpha
    assert table.facts["own"] == {ARM: (8, 0.7)}
    for row in table.records():
        i, j = found.alpha.index(row["alpha"]), found.concurrency.index(row["concurrency"])
        assert row["speedup"] == found.speedup[i][j]


def test_the_map_agrees_with_the_break_even() -> None:
    subject = small_subject()
    found, rows = subject.study.speedup[ARM], subject.study.break_even[ARM]["rows"]
    for j, row in enumerate(rows):
        low, high = row["simulated_alpha"]["band"]
        for alpha, speedups in zip(found.alpha, found.speedup, strict=True):
            speedup = speedups[j]
            assert speedup is not None
            if alpha > high:
                assert speedup > 1
            if alpha < low:
                assert speedup < 1


@pytest.mark.parametrize(
    ("column", "height"),
    [
        ([0.9, 1.1, 1.2], 0.5),
        ([0.9, 0.95, 1.2], 1.5),
        ([1.0, 1.1, 1.2], -0.5),
        ([0.7, 0.8, 0.9], 2.5),
        ([0.9, 1.1, 0.99], 2.5),
        ([None, None, None], None),
    ],
)
def test_the_boundary_runs_along_the_edges_of_cells(column: list[float | None], height: float) -> None:
    x, y = speedup_map.boundary([[cell] for cell in column])
    assert x == [-0.5, 0.5]
    assert y == [height, height]


def test_the_boundary_has_two_corners_a_column() -> None:
    x, y = speedup_map.boundary([[0.9, 0.8], [1.1, 0.9], [1.2, 1.3]])
    assert x == [-0.5, 0.5, 0.5, 1.5]
    assert y == [0.5, 0.5, 1.5, 1.5]


def test_the_map_says_what_a_tenth_of_acceptance_is_worth() -> None:
    subject = with_break_even(by_hand({}, {}), [break_even_row(64, 0.5, "pays", 0.6)])
    table = speedup_map.prepare(with_map(subject, map_of((2.0, 0.9), (2.1, 1.0), (2.2, 1.1))))
    assert speedup_map.finding(table) == [
        f"At 64 clients, 0.1 more of acceptance is worth 10.0% of throughput to {ARM}."
    ]
    at_the_top = replace(table, facts={**table.facts, "own": {ARM: (64, 0.7)}})
    assert "worth 10.0%" in speedup_map.finding(at_the_top)[0]
    elsewhere = replace(table, facts={**table.facts, "own": {ARM: (None, 0.6)}})
    assert speedup_map.finding(elsewhere) == [f"{ARM} gains most at 1 client and α 0.70: × 2.20."]
    assert "frame" in speedup_map.caption(table)
    assert "frame" not in speedup_map.caption(elsewhere)


def test_the_map_without_memory_says_so() -> None:
    table = speedup_map.prepare(with_map(by_hand({}, {}), map_of((None, None), (None, None))))
    assert speedup_map.finding(table) == [f"{ARM} does not fit the memory at these loads."]
    assert [list(row) for row in speedup_map.draw(table).data[0].text] == [["", ""], ["", ""]]


# --- tails ------------------------------------------------------------------------------------------------


def test_tails_are_the_percentiles_of_one_run() -> None:
    subject = small_subject()
    records = {name: runs[:1] for name, runs in subject.result.records.items()}
    table = tails.prepare(replace(subject, result=replace(subject.result, records=records)))
    for metric in tails.METRICS:
        for arm, (record,) in records.items():
            figures = measure(record)
            for slower, name in ((0.5, "p50"), (0.1, "p90")):
                expected = figures[f"{metric.path}.{name}"]
                curve = table.where(metric=metric.title, arm=arm, slower=slower)
                assert curve["time"] == pytest.approx([expected])


@given(
    counts=st.lists(st.integers(0, 50), min_size=3, max_size=12).filter(any),
    copies=st.integers(100, 1000),
)
def test_curves_of_histograms_have_the_percentiles_of_metrics(counts: list[int], copies: int) -> None:
    histogram = np.array(counts) * copies
    edges = np.geomspace(1e-3, 1, len(counts) + 1)
    curve = dict(tails._of_histogram(histogram, edges))
    exact = histogram_statistics(histogram, edges, math.nan)
    assert list(curve) == sorted(curve, reverse=True)
    assert list(curve.values()) == sorted(curve.values())
    for share, name in ((0.5, "p50"), (0.1, "p90"), (0.01, "p99"), (0.001, "p999")):
        if share in curve:
            assert curve[share] == pytest.approx(exact[name], rel=1e-12)


def test_curves_end_where_ten_samples_lie_beyond() -> None:
    curve = tails._of_samples(np.arange(1.0, 1001.0))
    assert min(share for share, _ in curve) >= 0.01
    assert tails._of_samples(np.arange(5.0)) == []
    assert tails._of_histogram(np.zeros(3, np.int64), np.arange(4.0)) == []


def test_a_saturated_arm_has_no_curve() -> None:
    subject = with_arms_saturated(small_subject(), ARM)
    table = tails.prepare(subject)
    assert table.distinct("arm") == ["plain"]
    assert f"without a curve: {ARM}." in tails.caption(table)
    nobody = tails.prepare(with_arms_saturated(small_subject(), "plain", ARM))
    assert nobody.rows == ()
    assert "above capacity" in str(nobody.missing)


def test_tails_show_the_limits_of_the_slo() -> None:
    table = tails.prepare(small_subject())
    limits = table.facts["limits"]
    assert limits == {tails.METRICS[0].title: 1.0, tails.METRICS[1].title: 0.025}
    drawn = tails.draw(table.where(metric=tails.METRICS[1].title))
    assert [note.text for note in drawn.layout.annotations] == ["SLO 25 ms"]
    without = tails.draw(table.where(metric=tails.METRICS[2].title))
    assert not without.layout.annotations


def test_both_means_are_said_apart() -> None:
    plain, fast = {"tpot_s.mean": 0.03, "itl_s.mean": 0.03}, {"tpot_s.mean": 0.025, "itl_s.mean": 0.06}
    subject = by_hand(plain, fast)
    curve = tails.prepare(small_subject())
    facts = {**curve.facts, "means": {("tpot_s", "plain"): 0.03, ("itl_s", "plain"): 0.03}}
    facts["means"] |= {("tpot_s", ARM): 0.025, ("itl_s", ARM): 0.06}
    assert tails.prepare(subject).rows == ()
    (said,) = tails.finding(replace(curve, facts=facts))
    assert "falls from 30.0 ms to 25.0 ms" in said
    assert "rises from 30.0 ms to 60.0 ms" in said


# --- step -------------------------------------------------------------------------------------------------

STEP = {
    "step_s.mean": 0.040,
    "step_s.verify": 0.030,
    "step_s.attention": 0.004,
    "step_s.communication": 0.006,
    "step_s.draft": 0.005,
    "step_s.sampling": 0.001,
    "step_s.host": 0.002,
    "tokens_per_round": 2.5,
}


def test_parts_of_a_step_are_disjoint_and_sum_to_it() -> None:
    parts = step_time.parts_of(STEP)
    assert parts["verify"] == pytest.approx(0.020)
    assert parts["waiting"] == pytest.approx(0.002)
    assert sum(parts.values()) == pytest.approx(STEP["step_s.mean"])


def test_simulated_parts_sum_to_the_mean_step() -> None:
    table = step_time.prepare(small_subject())
    for name, arm in small_subject().result.arms.items():
        mean = arm.values()["step_s.mean"]
        assert sum(table.where(basis="step", arm=name)["time"]) == pytest.approx(mean, rel=0.01)


def test_a_token_is_a_step_divided_by_its_tokens() -> None:
    plain = {
        **STEP,
        "step_s.mean": 0.02,
        "step_s.draft": 0.0,
        "step_s.verify": 0.015,
        "tokens_per_round": 1.0,
    }
    table = step_time.prepare(by_hand(plain, STEP))
    steps, tokens = (table.where(basis=basis, arm=ARM)["time"] for basis in ("step", "token"))
    assert tokens == pytest.approx([time_s / 2.5 for time_s in steps])
    assert table.where(basis="step", arm="plain", part="draft").rows == ()
    assert step_time.finding(table) == [
        f"A step of {ARM} takes 2.00 × as long (40.0 ms in place of 20.0 ms) and brings each request 2.50 "
        "tokens: 16.0 ms a token."
    ]


# --- memory and acceptance --------------------------------------------------------------------------------


def test_memory_sums_to_the_device() -> None:
    table = memory.prepare(small_subject())
    for arm in ("plain", ARM):
        assert sum(table.where(arm=arm)["bytes"]) == table.facts["device_bytes"]
    assert table.where(arm="plain", part="drafter").rows == ()
    assert table.facts["kv_tokens"][ARM] < table.facts["kv_tokens"]["plain"]
    (said,) = memory.finding(table)
    lost = 1 - table.facts["kv_tokens"][ARM] / table.facts["kv_tokens"]["plain"]
    assert f"{lost:.1%} fewer" in said


def test_acceptance_by_position_multiplies_up() -> None:
    table = acceptance.prepare(small_subject())
    assert table["position"] == [1, 2, 3]
    assert table["reached"] == pytest.approx(np.cumprod(table["conditional"]).tolist(), rel=0.01)
    assert table["conditional"] == pytest.approx([0.7] * 3, abs=0.05)
    length = table.facts["mean_acceptance_length"][ARM]
    assert length == pytest.approx(1 + sum(table["reached"]), rel=0.01)


# --- look and table ---------------------------------------------------------------------------------------


@given(low=st.floats(1e-6, 1e3), factor=st.floats(1.3, 1e6))
def test_log_ticks_lie_inside_and_are_few(low: float, factor: float) -> None:
    ticks = log_ticks(low, low * factor)
    assert 2 <= len(ticks) <= 8
    assert ticks == sorted(ticks)
    assert all(low <= tick <= low * factor for tick in ticks)


def test_ticks_are_short() -> None:
    assert [tick_text(time_s) for time_s in (1.0, 0.05, 0.0015, 2e-6)] == ["1 s", "50 ms", "1.5 ms", "2 µs"]


def test_plain_is_grey_and_arms_keep_their_colour() -> None:
    colours = arm_colours(["plain", "a", "b"])
    assert colours == {"plain": PLAIN_COLOUR, "a": ARM_COLOURS[0], "b": ARM_COLOURS[1]}
    many = arm_colours(["plain", *map(str, range(20))])
    assert len(many) == 21
    assert PLAIN_COLOUR not in list(many.values())[1:]


def test_a_table_finds_its_rows() -> None:
    table = Table((Column("a", ""), Column("b", "", "s")), ((1, "x"), (2, "y"), (1, "z")))
    assert table["b"] == ["x", "y", "z"]
    assert table.where(a=1)["b"] == ["x", "z"]
    assert table.where(a=3).rows == ()
    assert table.distinct("a") == [1, 2]
    assert table.records()[1] == {"a": 2, "b": "y"}


@pytest.mark.parametrize(
    "make",
    [
        lambda: Table((Column("a", ""),), ((1, 2),)),
        lambda: Table((Column("a", ""),), ()),
        lambda: Table((Column("a", ""),), ((1,),))["b"],
    ],
)
def test_a_table_refuses_what_it_cannot_hold(make: Any) -> None:
    with pytest.raises(ValueError):
        make()


def test_an_empty_table_says_why() -> None:
    assert empty((Column("a", ""),), "because").missing == "because"


def test_a_page_of_many_arms_gives_each_a_picture() -> None:
    subject: Subject = with_break_even(by_hand({}, {}), [break_even_row(1, 0.1, "pays")])
    documents = {name: subject.study.break_even[ARM] for name in ("one", "two")}
    subject = replace(subject, study=replace(subject.study, break_even=documents))
    table = break_even.prepare(subject)
    pictures = FIGURES["break-even"].pictures(table)
    assert [(title, part.distinct("arm")) for title, part in pictures] == [("one", ["one"]), ("two", ["two"])]
