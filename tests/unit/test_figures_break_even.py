"""The break-even and the speedup map: what they hold, against the study and closed forms."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dashboards.figures import (
    break_even,
    speedup_map,
)
from dashboards.figures.look import (
    draft_lengths,
)
from dashboards.table import Column, Table
from experiments.maps.speedup import SpeedupMap
from tests.subjects import (
    VARIANT,
    break_even_row,
    by_hand,
    small_subject,
    with_break_even,
    with_map,
)


def test_break_even_has_the_rows_of_the_study() -> None:
    subject = small_subject()
    table = break_even.prepare(subject)
    rows = subject.study.break_even[VARIANT]["rows"]
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
        f"At an acceptance α of 0.70, {VARIANT} pays from 1 to 4 clients, is undecided (within the error) "
        "at 64 clients and gains nothing at any α at 256 clients."
    ]


def test_break_even_without_an_alpha_says_what_is_needed() -> None:
    rows = [break_even_row(1, 0.1, "undecided", None), break_even_row(64, 0.62, "undecided", None)]
    table = break_even.prepare(with_break_even(by_hand({}, {}), rows))
    assert break_even.finding(table) == [
        f"{VARIANT} needs an acceptance of 0.10 at 1 client and 0.62 at 64 clients."
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


def test_a_variant_whose_k_varies_says_so_and_has_no_closed_forms() -> None:
    row = {**break_even_row(1, 0.1, "pays"), "geometric_alpha": None, "linear_acceptance_rate": None}
    variants = [{"name": VARIANT, "draft_length": [[1, 15, 3], [16, None, 0]]}]
    table = break_even.prepare(with_break_even(by_hand({}, {}, speculation=variants), [row]))
    assert "K = 3 at most." in break_even.caption(table)
    assert {trace.name for trace in break_even.draw(table).data} == {"simulated", "its error", None}


def test_lengths_of_several_variants_are_told_apart() -> None:
    columns = (Column("variant", ""), Column("draft_length", ""))
    assert draft_lengths(Table(columns, (("a", 3), ("b", 3))), ()) == "K = 3"
    assert draft_lengths(Table(columns, (("a", 3), ("b", 5))), ("b",)) == "K = 3 for a, K = 5 at most for b"


def map_of(*speedups: tuple[float | None, ...]) -> SpeedupMap:
    alphas = tuple(round(0.5 + 0.1 * i, 1) for i in range(len(speedups)))
    return SpeedupMap(VARIANT, 3, alphas, (1, 64)[: len(speedups[0])], speedups)


def test_the_map_holds_every_cell_and_the_scenario_is_one() -> None:
    subject = small_subject()
    table = speedup_map.prepare(subject)
    result = subject.study.speedup[VARIANT]
    assert len(table.rows) == len(result.alpha) * len(result.concurrency)
    assert 0.7 in result.alpha
    assert table.facts["own"] == {VARIANT: (8, 0.7)}
    for row in table.records():
        i, j = result.alpha.index(row["alpha"]), result.concurrency.index(row["concurrency"])
        assert row["speedup"] == result.speedup[i][j]


def test_the_map_agrees_with_the_break_even() -> None:
    subject = small_subject()
    result, rows = subject.study.speedup[VARIANT], subject.study.break_even[VARIANT]["rows"]
    for j, row in enumerate(rows):
        low, high = row["simulated_alpha"]["band"]
        for alpha, speedups in zip(result.alpha, result.speedup, strict=True):
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
        f"At 64 clients, 0.1 more of acceptance is worth 10.0% of throughput to {VARIANT}."
    ]
    at_the_top = replace(table, facts={**table.facts, "own": {VARIANT: (64, 0.7)}})
    assert "worth 10.0%" in speedup_map.finding(at_the_top)[0]
    elsewhere = replace(table, facts={**table.facts, "own": {VARIANT: (None, 0.6)}})
    assert speedup_map.finding(elsewhere) == [f"{VARIANT} gains most at 1 client and α 0.70: × 2.20."]
    assert "frame" in speedup_map.caption(table)
    assert "frame" not in speedup_map.caption(elsewhere)


def test_the_map_without_memory_says_so() -> None:
    table = speedup_map.prepare(with_map(by_hand({}, {}), map_of((None, None), (None, None))))
    assert speedup_map.finding(table) == [f"{VARIANT} does not fit the memory at these loads."]
    assert [list(row) for row in speedup_map.draw(table).data[0].text] == [["", ""], ["", ""]]
