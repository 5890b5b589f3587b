"""The figures of the report: what each table holds, against the result and arithmetic."""

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
    PageFigure,
    acceptance,
    break_even,
    draft_length,
    engine_speedups,
    memory,
    step_time,
    tails,
)
from dashboards.figures.look import (
    PLAIN_COLOUR,
    VARIANT_COLOURS,
    log_ticks,
    tick_text,
    variant_colours,
)
from dashboards.subject import ReportedResult
from dashboards.table import Column, Table, empty
from simulator.results.measure import measure
from simulator.results.metrics import histogram_statistics
from tests.subjects import (
    VARIANT,
    break_even_row,
    by_hand,
    small_subject,
    with_break_even,
    with_variants_saturated,
)

EVERY_FIGURE = pytest.mark.parametrize("figure", FIGURES.values(), ids=FIGURES)


def test_every_file_with_a_figure_is_registered() -> None:
    folder = Path(dashboards.figures.__file__).parent
    files = {path for path in folder.glob("*.py") if re.search(r"^FIGURE\b", path.read_text("utf-8"), re.M)}
    assert len(FIGURES) == 6
    assert len(STUDY_FIGURES) == 4
    of_devices = (
        *dashboards.closure_page.FIGURES,
        *dashboards.profile_page.FIGURES,
        engine_speedups.FIGURE,
        draft_length.FIGURE,
    )
    drawn = [figure.draw for figure in (*FIGURES.values(), *STUDY_FIGURES.values(), *of_devices)]
    assert files == {Path(inspect.getfile(draw)) for draw in drawn}


@EVERY_FIGURE
def test_every_figure_has_rows_says_something_and_draws_with_units(
    figure: PageFigure[ReportedResult],
) -> None:
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
def test_every_figure_says_why_it_is_empty(figure: PageFigure[ReportedResult]) -> None:
    subject = replace(by_hand({}, {}), scenario_problem="The scenario is elsewhere.")
    table = figure.prepare(subject)
    assert table.rows == ()
    assert table.missing
    assert table.missing.endswith(".")


@EVERY_FIGURE
def test_the_same_subject_gives_the_same_table(figure: PageFigure[ReportedResult]) -> None:
    assert figure.prepare(small_subject()) == figure.prepare(small_subject())


def test_tails_are_the_percentiles_of_one_run() -> None:
    subject = small_subject()
    records = {name: runs[:1] for name, runs in subject.result.records.items()}
    table = tails.prepare(replace(subject, result=replace(subject.result, records=records)))
    for metric in tails.METRICS:
        for variant, (record,) in records.items():
            figures = measure(record)
            for slower, name in ((0.5, "p50"), (0.1, "p90")):
                expected = figures[f"{metric.name}.{name}"]
                curve = table.where(metric=tails.title(metric), variant=variant, slower=slower)
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


def test_a_saturated_variant_has_no_curve() -> None:
    subject = with_variants_saturated(small_subject(), VARIANT)
    table = tails.prepare(subject)
    assert table.distinct("variant") == ["plain"]
    assert f"without a curve: {VARIANT}." in tails.caption(table)
    without_rows = tails.prepare(with_variants_saturated(small_subject(), "plain", VARIANT))
    assert without_rows.rows == ()
    assert "above capacity" in str(without_rows.missing)


def test_tails_show_the_limits_of_the_slo() -> None:
    table = tails.prepare(small_subject())
    limits = table.facts["limits"]
    assert limits == {tails.title(tails.METRICS[0]): 1.0, tails.title(tails.METRICS[1]): 0.025}
    drawn = tails.draw(table.where(metric=tails.title(tails.METRICS[1])))
    assert [note.text for note in drawn.layout.annotations] == ["SLO 25 ms"]
    without = tails.draw(table.where(metric=tails.title(tails.METRICS[2])))
    assert not without.layout.annotations


def test_both_means_are_said_apart() -> None:
    plain, fast = {"tpot_s.mean": 0.03, "itl_s.mean": 0.03}, {"tpot_s.mean": 0.025, "itl_s.mean": 0.06}
    subject = by_hand(plain, fast)
    curve = tails.prepare(small_subject())
    facts = {**curve.facts, "means": {("tpot_s", "plain"): 0.03, ("itl_s", "plain"): 0.03}}
    facts["means"] |= {("tpot_s", VARIANT): 0.025, ("itl_s", VARIANT): 0.06}
    assert tails.prepare(subject).rows == ()
    (sentence,) = tails.finding(replace(curve, facts=facts))
    assert "falls from 30.0 ms to 25.0 ms" in sentence
    assert "rises from 30.0 ms to 60.0 ms" in sentence


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
    for name, variant in small_subject().result.variants.items():
        mean = variant.values()["step_s.mean"]
        assert sum(table.where(basis="step", variant=name)["time"]) == pytest.approx(mean, rel=0.01)


def test_a_token_is_a_step_divided_by_its_tokens() -> None:
    plain = {
        **STEP,
        "step_s.mean": 0.02,
        "step_s.draft": 0.0,
        "step_s.verify": 0.015,
        "tokens_per_round": 1.0,
    }
    table = step_time.prepare(by_hand(plain, STEP))
    steps, tokens = (table.where(basis=basis, variant=VARIANT)["time"] for basis in ("step", "token"))
    assert tokens == pytest.approx([time_s / 2.5 for time_s in steps])
    assert table.where(basis="step", variant="plain", part="draft").rows == ()
    assert step_time.finding(table) == [
        f"A step of {VARIANT} takes 2.00 × as long (40.0 ms in place of 20.0 ms) and brings each request "
        f"2.50 "
        "tokens: 16.0 ms a token."
    ]


def test_memory_sums_to_the_device() -> None:
    table = memory.prepare(small_subject())
    for variant in ("plain", VARIANT):
        assert sum(table.where(variant=variant)["bytes"]) == table.facts["device_bytes"]
    assert table.where(variant="plain", part="drafter").rows == ()
    assert table.facts["kv_tokens"][VARIANT] < table.facts["kv_tokens"]["plain"]
    (sentence,) = memory.finding(table)
    lost = 1 - table.facts["kv_tokens"][VARIANT] / table.facts["kv_tokens"]["plain"]
    assert f"{lost:.1%} fewer" in sentence


def test_acceptance_by_position_multiplies_up() -> None:
    table = acceptance.prepare(small_subject())
    assert table["position"] == [1, 2, 3]
    assert table["reached"] == pytest.approx(np.cumprod(table["conditional"]).tolist(), rel=0.01)
    assert table["conditional"] == pytest.approx([0.7] * 3, abs=0.05)
    length = table.facts["mean_acceptance_length"][VARIANT]
    assert length == pytest.approx(1 + sum(table["reached"]), rel=0.01)


@given(low=st.floats(1e-6, 1e3), factor=st.floats(1.3, 1e6))
def test_log_ticks_lie_inside_and_are_few(low: float, factor: float) -> None:
    ticks = log_ticks(low, low * factor)
    assert 2 <= len(ticks) <= 8
    assert ticks == sorted(ticks)
    assert all(low <= tick <= low * factor for tick in ticks)


def test_ticks_are_short() -> None:
    assert [tick_text(time_s) for time_s in (1.0, 0.05, 0.0015, 2e-6)] == ["1 s", "50 ms", "1.5 ms", "2 µs"]


def test_plain_is_grey_and_variants_keep_their_colour() -> None:
    colours = variant_colours(["plain", "a", "b"])
    assert colours == {"plain": PLAIN_COLOUR, "a": VARIANT_COLOURS[0], "b": VARIANT_COLOURS[1]}
    many = variant_colours(["plain", *map(str, range(20))])
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


def test_a_page_of_many_variants_gives_each_a_picture() -> None:
    subject: ReportedResult = with_break_even(by_hand({}, {}), [break_even_row(1, 0.1, "pays")])
    documents = {name: subject.study.break_even[VARIANT] for name in ("one", "two")}
    subject = replace(subject, study=replace(subject.study, break_even=documents))
    table = break_even.prepare(subject)
    pictures = FIGURES["break-even"].pictures(table)
    assert [(title, part.distinct("variant")) for title, part in pictures] == [
        ("one", ["one"]),
        ("two", ["two"]),
    ]
