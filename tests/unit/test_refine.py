"""Refinement: the contour of a dense grid from part of its cells, by formulas, real prices and real runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.contours import Index, Label, coarse_places, contour, refined
from simulator.arms import CompiledArm
from simulator.breakeven.simulated_bench import SimulatedBench
from simulator.scenario import load_scenario
from simulator.theory import tokens_per_verify
from tests.subjects import EXAMPLE

Function = Callable[[Index], Label]

MOST_SHARE = 0.4
"""Of a grid's cells, for the whole contour."""


class Asked:
    """A function on a grid that remembers its rounds."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.rounds: list[list[Index]] = []

    def __call__(self, cells: Sequence[Index]) -> Mapping[Index, Label]:
        self.rounds.append(list(cells))
        return {cell: self.function(cell) for cell in cells}


def dense(shape: Sequence[int], function: Function) -> dict[Index, Label]:
    return {index: function(index) for index in product(*map(range, shape))}


def assert_whole_contour(shape: Sequence[int], function: Function, share: float = MOST_SHARE) -> None:
    """Refinement finds every change of the dense grid, and asks at most this share of its cells."""
    asked = Asked(function)
    found = refined(shape, asked)
    axes = range(len(shape))
    wanted = contour(dense(shape, function), axes)
    assert wanted, "a grid without a contour shows nothing"
    assert contour(found, axes) == wanted
    assert len(found) == sum(map(len, asked.rounds)) <= share * math.prod(shape)


def needed(x: float, y: float = 0.0) -> float:
    """A break-even α over a load x and a draft length y, both 0 to 1."""
    return 0.05 + 0.65 * x * math.sqrt(x) + 0.2 * y * x


@pytest.mark.parametrize("shape", [(20, 10), (12, 12), (40, 30)])
def test_a_rising_contour(shape: tuple[int, int]) -> None:
    assert_whole_contour(shape, lambda at: at[0] / shape[0] > needed(at[1] / (shape[1] - 1)))


def test_a_surface_over_load_and_draft_length() -> None:
    assert_whole_contour((20, 8, 10), lambda at: at[0] / 20 > needed(at[2] / 9, at[1] / 7), 0.25)


def test_several_branches_open_and_closed() -> None:
    def several(at: Index) -> bool:
        return math.sin(at[0] / 6) + math.cos(at[1] / 5) > 0.2

    assert_whole_contour((60, 60), several, 0.25)


def test_one_acceptance_crossed_several_times_as_the_batch_grows() -> None:
    """Graph steps: with every 8th request padding starts anew."""

    def pays(at: Index) -> bool:
        batch = at[1] + 1
        return at[0] / 40 > 0.1 + 0.004 * batch + 0.2 * (-batch % 8) / 8

    columns = [pays((12, batch)) for batch in range(60)]
    assert sum(a != b for a, b in pairwise(columns)) >= 5
    assert_whole_contour((40, 60), pays)


def test_three_labels_have_all_their_borders() -> None:
    def verdict(at: Index) -> str:
        margin = at[0] / 30 - needed(at[1] / 29)
        return "pays" if margin > 0.05 else "loses" if margin < -0.05 else "undecided"

    assert_whole_contour((30, 30), verdict, 0.5)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(-1, 1), st.floats(-0.25, 0.25), st.floats(-0.25, 0.25), st.floats(0, 6)),
        min_size=1,
        max_size=3,
    )
)
def test_what_is_found_is_of_the_dense_contour_and_branches_are_whole(
    waves: list[tuple[float, float, float, float]],
) -> None:
    """On any smooth surface: only real changes, and of a branch that is entered every change."""
    shape = (24, 24)

    def above(at: Index) -> bool:
        return sum(size * math.sin(a * at[0] + b * at[1] + c) for size, a, b, c in waves) > 0.1

    found = contour(refined(shape, Asked(above)), (0, 1))
    wanted = contour(dense(shape, above), (0, 1))
    assert found <= wanted
    for change in wanted - found:
        assert found.isdisjoint(_next_to(change, wanted)), "a branch was entered and not followed"


def _next_to(change: tuple[Index, Index], changes: set[tuple[Index, Index]]) -> set[tuple[Index, Index]]:
    """The changes that share a unit square with this one, where the square has no others."""
    (low, high), found = change, set()
    axis = 0 if low[0] != high[0] else 1
    for side in (-1, 1):
        shift = (0, side) if axis == 0 else (side, 0)
        corners = [low, high, *((cell[0] + shift[0], cell[1] + shift[1]) for cell in (low, high))]
        here = {one for one in changes if one[0] in corners and one[1] in corners} - {change}
        found |= here if len(here) == 1 else set()
    return found


def test_an_island_between_coarse_cells_is_what_can_be_missed() -> None:
    def island(at: Index) -> bool:
        return at[0] in (5, 6) and at[1] in (5, 6)

    assert contour(refined((17, 17), Asked(island), every=4), (0, 1)) == set()
    assert len(contour(refined((17, 17), Asked(island), every=2), (0, 1))) == 8


def test_axes_without_order_make_grids_of_their_own() -> None:
    def pays(at: Index) -> bool:
        return at[1] / 20 > needed(at[2] / 9) + (0.0, 0.2, -0.3)[at[0]]

    together = refined((3, 20, 10), Asked(pays), along=(1, 2))
    for model in range(3):
        alone = refined((20, 10), Asked(lambda at, model=model: pays((model, *at))))  # type: ignore[misc]
        assert {at[1:]: label for at, label in together.items() if at[0] == model} == alone


def test_cells_that_are_not_there_are_not_asked_and_have_no_contour() -> None:
    absent = {(i, j) for i, j in product(range(20), range(20)) if i + j > 26}
    asked = Asked(lambda at: at[0] > 4 + at[1] // 3)
    found = refined((20, 20), asked, absent=absent)
    assert absent.isdisjoint(found)
    there = {at: label for at, label in dense((20, 20), asked.function).items() if at not in absent}
    assert contour(found, (0, 1)) == contour(there, (0, 1))


def test_an_interrupted_refinement_goes_on_where_it_was() -> None:
    def pays(at: Index) -> bool:
        return at[0] / 20 > needed(at[1] / 9)

    whole = Asked(pays)
    wanted = refined((20, 10), whole)
    known = {cell: pays(cell) for cell in [*whole.rounds[0], *whole.rounds[1][::2]]}
    run: list[Index] = []

    def ask(cells: Sequence[Index]) -> Mapping[Index, Label]:
        run.extend(cell for cell in cells if cell not in known)
        return {cell: known.get(cell, pays(cell)) for cell in cells}

    assert refined((20, 10), ask) == wanted
    assert set(run) == wanted.keys() - known.keys()
    assert len(run) == len(set(run))


@pytest.mark.parametrize(("size", "every"), [(1, 4), (2, 4), (7, 4), (9, 4), (10, 4), (20, 4), (5, 1)])
def test_coarse_places_hold_both_ends_and_are_close_enough(size: int, every: int) -> None:
    places = coarse_places(size, every)
    assert places[0] == 0
    assert places[-1] == size - 1
    assert all(1 <= b - a <= every for a, b in pairwise(places))


def test_break_even_over_every_batch_at_real_prices() -> None:
    """α against the batch, 1 to 128, from the price of uniform steps: the contour has teeth."""
    scenario = load_scenario(EXAMPLE)
    plain = CompiledArm.compile(scenario, None)
    spec = CompiledArm.compile(scenario, scenario.speculation[0], 5)
    cost = [
        spec.step_times(batch, 1000)["total"] / plain.step_times(batch, 1000)["total"]
        for batch in range(1, 129)
    ]
    assert any(b < a for a, b in pairwise(cost)), "the price has steps"
    assert_whole_contour((50, 128), lambda at: tokens_per_verify(at[0] / 50, 5) > cost[at[1]], 0.15)


def test_speedup_over_acceptance_and_load_in_real_runs() -> None:
    """Two hundred simulated cells, each one run of both arms on common luck."""
    loads = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
    scenario = load_scenario(EXAMPLE, ["workload.requests=160", "engine.max_num_seqs=32"])
    arm = scenario.speculation[0]
    benches = [SimulatedBench(scenario, arm, {"concurrency": load}) for load in loads]

    def speedup(at: Index) -> float:
        bench = benches[at[1]]
        run = bench.speculative(7, 0.05 * at[0], 0, 1.0)["throughput_tokens_per_s"]
        return run / bench.plain(0)["throughput_tokens_per_s"]

    everywhere = dense((20, len(loads)), lambda at: speedup(at) > 1)
    assert_whole_contour((20, len(loads)), everywhere.__getitem__)
