"""Refinement: the contour of a dense grid from part of its cells, by formulas, real prices and real runs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.cell import Cell
from experiments.contours import Label, Position, coarse_places, contour, labels_along_contour
from experiments.maps.study_map import estimate_in
from experiments.refine import run_refined
from experiments.run_cell import run_cell
from experiments.store.store import Store
from experiments.study.grid import StudyGrid
from experiments.study.load import load_study
from experiments.study.study import Study
from simulator.breakeven.simulated_evaluator import SimulatedEvaluator
from simulator.breakeven.theory import tokens_per_verify
from simulator.errors import InputError
from simulator.runs.variant import CompiledVariant
from simulator.scenario import load_scenario
from tests.shared_data import ROOT
from tests.subjects import EXAMPLE

Function = Callable[[Position], Label]

MOST_SHARE = 0.4
"""Of a grid's cells, for the whole contour."""


class Asked:
    """A function on a grid that remembers its rounds."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.rounds: list[list[Position]] = []

    def __call__(self, cells: Sequence[Position]) -> Mapping[Position, Label]:
        self.rounds.append(list(cells))
        return {cell: self.function(cell) for cell in cells}


def dense(shape: Sequence[int], function: Function) -> dict[Position, Label]:
    return {index: function(index) for index in product(*map(range, shape))}


def assert_whole_contour(shape: Sequence[int], function: Function, share: float = MOST_SHARE) -> None:
    """Refinement finds every change of the dense grid, and asks at most this share of its cells."""
    asked = Asked(function)
    result = labels_along_contour(shape, asked)
    axes = range(len(shape))
    expected = contour(dense(shape, function), axes)
    assert expected, "a grid without a contour shows nothing"
    assert contour(result, axes) == expected
    assert len(result) == sum(map(len, asked.rounds)) <= share * math.prod(shape)


def needed(x: float, y: float = 0.0) -> float:
    """A break-even α over a load x and a draft length y, both 0 to 1."""
    return 0.05 + 0.65 * x * math.sqrt(x) + 0.2 * y * x


@pytest.mark.parametrize("shape", [(20, 10), (12, 12), (40, 30)])
def test_a_rising_contour(shape: tuple[int, int]) -> None:
    assert_whole_contour(shape, lambda at: at[0] / shape[0] > needed(at[1] / (shape[1] - 1)))


def test_a_surface_over_load_and_draft_length() -> None:
    assert_whole_contour((20, 8, 10), lambda at: at[0] / 20 > needed(at[2] / 9, at[1] / 7), 0.25)


def test_several_branches_open_and_closed() -> None:
    def several(at: Position) -> bool:
        return math.sin(at[0] / 6) + math.cos(at[1] / 5) > 0.2

    assert_whole_contour((60, 60), several, 0.25)


def test_one_acceptance_crossed_several_times_as_the_batch_grows() -> None:
    """Graph steps: with every 8th request padding starts anew."""

    def pays(at: Position) -> bool:
        batch = at[1] + 1
        return at[0] / 40 > 0.1 + 0.004 * batch + 0.2 * (-batch % 8) / 8

    columns = [pays((12, batch)) for batch in range(60)]
    assert sum(a != b for a, b in pairwise(columns)) >= 5
    assert_whole_contour((40, 60), pays)


def test_three_labels_have_all_their_borders() -> None:
    def verdict(at: Position) -> str:
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

    def above(at: Position) -> bool:
        return sum(size * math.sin(a * at[0] + b * at[1] + c) for size, a, b, c in waves) > 0.1

    result = contour(labels_along_contour(shape, Asked(above)), (0, 1))
    expected = contour(dense(shape, above), (0, 1))
    assert result <= expected
    for change in expected - result:
        assert result.isdisjoint(_next_to(change, expected)), "a branch was entered and not followed"


def _next_to(
    change: tuple[Position, Position], changes: set[tuple[Position, Position]]
) -> set[tuple[Position, Position]]:
    """The changes that share a unit square with this one, where the square has no others."""
    (low, high), result = change, set()
    axis = 0 if low[0] != high[0] else 1
    for side in (-1, 1):
        shift = (0, side) if axis == 0 else (side, 0)
        corners = [low, high, *((cell[0] + shift[0], cell[1] + shift[1]) for cell in (low, high))]
        here = {
            other_change
            for other_change in changes
            if other_change[0] in corners and other_change[1] in corners
        } - {change}
        result |= here if len(here) == 1 else set()
    return result


def test_an_island_between_coarse_cells_is_what_can_be_missed() -> None:
    def island(at: Position) -> bool:
        return at[0] in (5, 6) and at[1] in (5, 6)

    assert contour(labels_along_contour((17, 17), Asked(island), every=4), (0, 1)) == set()
    assert len(contour(labels_along_contour((17, 17), Asked(island), every=2), (0, 1))) == 8


def test_axes_without_order_make_grids_of_their_own() -> None:
    def pays(at: Position) -> bool:
        return at[1] / 20 > needed(at[2] / 9) + (0.0, 0.2, -0.3)[at[0]]

    together = labels_along_contour((3, 20, 10), Asked(pays), along=(1, 2))
    for model in range(3):
        alone = labels_along_contour((20, 10), Asked(lambda at, model=model: pays((model, *at))))  # type: ignore[misc]
        assert {at[1:]: label for at, label in together.items() if at[0] == model} == alone


def test_cells_that_are_not_there_are_not_asked_and_have_no_contour() -> None:
    absent = {(i, j) for i, j in product(range(20), range(20)) if i + j > 26}
    asked = Asked(lambda at: at[0] > 4 + at[1] // 3)
    result = labels_along_contour((20, 20), asked, absent=absent)
    assert absent.isdisjoint(result)
    present = {at: label for at, label in dense((20, 20), asked.function).items() if at not in absent}
    assert contour(result, (0, 1)) == contour(present, (0, 1))


def test_an_interrupted_refinement_goes_on_where_it_was() -> None:
    def pays(at: Position) -> bool:
        return at[0] / 20 > needed(at[1] / 9)

    dense_asked = Asked(pays)
    expected = labels_along_contour((20, 10), dense_asked)
    known = {cell: pays(cell) for cell in [*dense_asked.rounds[0], *dense_asked.rounds[1][::2]]}
    run: list[Position] = []

    def ask(cells: Sequence[Position]) -> Mapping[Position, Label]:
        run.extend(cell for cell in cells if cell not in known)
        return {cell: known.get(cell, pays(cell)) for cell in cells}

    assert labels_along_contour((20, 10), ask) == expected
    assert set(run) == expected.keys() - known.keys()
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
    plain = CompiledVariant.compile(scenario, None)
    spec = CompiledVariant.compile(scenario, scenario.speculation[0], 5)
    cost = [
        spec.step_times(batch, 1000)["total"] / plain.step_times(batch, 1000)["total"]
        for batch in range(1, 129)
    ]
    assert any(b < a for a, b in pairwise(cost)), "the price has steps"
    assert_whole_contour((50, 128), lambda at: tokens_per_verify(at[0] / 50, 5) > cost[at[1]], 0.15)


def test_speedup_over_acceptance_and_load_in_real_runs() -> None:
    """Two hundred simulated cells, each one run of both variants on common luck."""
    loads = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
    scenario = load_scenario(EXAMPLE, ["workload.requests=160", "engine.max_num_seqs=32"])
    variant = scenario.speculation[0]
    benches = [SimulatedEvaluator(scenario, variant, {"concurrency": load}) for load in loads]

    def speedup(at: Position) -> float:
        bench = benches[at[1]]
        run = bench.speculative(7, 0.05 * at[0], 0, 1.0)["throughput_tokens_per_s"]
        return run / bench.plain(0)["throughput_tokens_per_s"]

    everywhere = dense((20, len(loads)), lambda at: speedup(at) > 1)
    assert_whole_contour((20, len(loads)), everywhere.__getitem__)


STUDY = f"""
scenario: {EXAMPLE}
axes:
  speculation.eagle3-k3.acceptance.alpha: {{from: 0.05, to: 0.95, steps: 10}}
  workload.arrivals.concurrency: [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]
  hardware.tensor_parallel: [2, 4]
where: hardware.tensor_parallel = 4 or concurrency < 20
keep: [throughput_speedup]
refine: {{metric: eagle3-k3.throughput_speedup, level: 1}}
"""


def study_of(folder: Path, text: str = STUDY) -> Study:
    (folder / "study.yaml").write_text(text, encoding="utf-8")
    changes = ("workload.requests=120", "run.replications=1", "engine.max_num_seqs=32")
    return load_study(folder / "study.yaml", [*changes, "speculation.eagle3-k3.draft_length=7"])


class Runner:
    """Runs what a store does not have; stops by an error after so many cells."""

    def __init__(self, store: Store, most: int | None = None) -> None:
        self.store, self.most, self.ran = store, most, 0

    def __call__(self, cells: Sequence[Cell]) -> None:
        for cell in cells:
            if cell.key not in self.store:
                if self.ran == self.most:
                    raise KeyboardInterrupt
                self.store.add(cell, run_cell(cell))
                self.ran += 1


def test_more_points_than_conditions_are_tried_on_are_refused_before_any_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_of(tmp_path)
    monkeypatch.setattr("experiments.study.grid.MAX_POINTS", 199)
    with Store.create_or_open(tmp_path / "s.db", study.document, study.sha256) as store:
        with pytest.raises(InputError, match=r"multiply to 200 points, at most 199"):
            run_refined(study, store, Runner(store, most=0))
        assert store.counts() == {}


def test_a_refined_study_has_the_contour_of_the_dense_one_and_goes_on_after_an_interruption(
    tmp_path: Path,
) -> None:
    study = study_of(tmp_path)
    with Store.create_or_open(tmp_path / "dense.db", study.document, study.sha256) as store:
        Runner(store)(list(StudyGrid(study).cells()))
        dense_rows = list(store.rows())
    with Store.create_or_open(tmp_path / "labels_along_contour.db", study.document, study.sha256) as store:
        with pytest.raises(KeyboardInterrupt):
            run_refined(study, store, Runner(store, most=40))
        rest = Runner(store)
        count = run_refined(study, store, rest)
        assert rest.ran == count - 40
        again = Runner(store)
        assert run_refined(study, store, again) == count
        assert again.ran == 0
        refined_rows = list(store.rows())
    assert len(refined_rows) == count <= MOST_SHARE * len(dense_rows)
    expected, result = changes_in(dense_rows), changes_in(refined_rows)
    assert result == expected
    assert {gpus for gpus, _, _ in expected} == {2, 4}


def changes_in(rows: Sequence[Mapping[str, Any]]) -> set[tuple[int, Position, Position]]:
    """(GPUs, cell, cell) of all changes of the sign of speedup − 1 over α and clients."""
    alpha, clients = "speculation.eagle3-k3.acceptance.alpha", "workload.arrivals.concurrency"
    axes = [sorted({row[name] for row in rows}) for name in (alpha, clients)]
    result: set[tuple[int, Position, Position]] = set()
    for gpus in (2, 4):
        labels: dict[Position, Label] = {
            (axes[0].index(row[alpha]), axes[1].index(row[clients])): row["eagle3-k3.throughput_speedup"] > 1
            for row in rows
            if row["hardware.tensor_parallel"] == gpus
        }
        result |= {(gpus, *change) for change in contour(labels, (0, 1))}
    return result


@pytest.mark.parametrize(
    ("refine", "message"),
    [
        ("{metric: eagle3-k3.throughput_speedup}", "level"),
        ("{metric: throughput_speedup, level: 1}", "of which variant"),
        ("{metric: eagle3-k3.throughput_sped, level: 1}", "metric"),
        ("{metric: eagle3-k3.tpot_s.mean, level: 1}", "not kept"),
        ("{metric: eagle3-k3.throughput_speedup, level: 1, every: 1}", "every"),
        ("{metric: eagle3-k3.throughput_speedup, level: 1, evry: 2}", "did you mean every"),
    ],
)
def test_what_cannot_be_refined_is_said_at_its_line(tmp_path: Path, refine: str, message: str) -> None:
    text = STUDY.replace("{metric: eagle3-k3.throughput_speedup, level: 1}", refine)
    with pytest.raises(InputError, match=rf"study\.yaml:\d+:\d+: refine.*{message}"):
        study_of(tmp_path, text)


def test_words_are_refined_without_a_level_and_samples_not_at_all(tmp_path: Path) -> None:
    by_word = STUDY.replace("eagle3-k3.throughput_speedup, level: 1", "eagle3-k3.verdict")
    assert study_of(tmp_path, by_word.replace("[throughput_speedup]", "[verdict]")).refine is not None
    with pytest.raises(InputError, match="has no meaning for words"):
        study_of(
            tmp_path, by_word.replace("k3.verdict", "k3.verdict, level: 1").replace("[thr", "[verdict, thr")
        )
    ranges = "[1, 2, 3, 4, 6, 8, 12, 16, 24, 32]", "{from: 1, to: 32}"
    sampled = STUDY.replace(", steps: 10", "").replace(*ranges).replace("[2, 4]", "[4]")
    with pytest.raises(InputError, match="refine: needs a grid"):
        study_of(tmp_path, f"{sampled}\nsample: {{kind: sobol, n: 8}}\n")
    short = STUDY.replace("steps: 10", "steps: 3").replace("[1, 2, 3, 4, 6, 8, 12, 16, 24, 32]", "[1, 2]")
    with pytest.raises(InputError, match="no axis to leave cells out of"):
        study_of(tmp_path, short)


def test_acceptance_needed_over_clients_prompts_and_draft_lengths_of_a_whole_study() -> None:
    """The dense map of docs/break-even-map.md: 350 simulated break-evens for each variant and number of GPUs.
    What is missed is a cell in whose sampling error the level lies: an island of noise.
    """
    document = json.loads((ROOT / "docs" / "break-even-map.json").read_text(encoding="utf-8"))
    names = [column["name"] for column in document["columns"]]
    rows = [dict(zip(names, row, strict=True)) for row in document["rows"]]
    axes = (
        "speculation.eagle3.draft_length",
        "workload.prompt_tokens.median",
        "workload.arrivals.concurrency",
    )
    values = [sorted({row[axis] for row in rows}) for axis in axes]
    shape = [len(axis) for axis in values]
    missed = 0
    for variant, gpus, level in product(("eagle3", "draft-1b"), (2, 4), (0.3, 0.4, 0.55, 0.7)):
        needed = {
            tuple(of.index(row[axis]) for axis, of in zip(axes, values, strict=True)): estimate_in(
                row, f"{variant}.break_even_alpha"
            )
            for row in rows
            if row["hardware.tensor_parallel"] == gpus
        }
        labels = {at: root is None or root.value > level for at, root in needed.items()}
        result = labels_along_contour(shape, Asked(labels.__getitem__))
        assert len(result) <= MOST_SHARE * len(labels)
        gone = contour(labels, range(3)) - contour(result, range(3))
        missed += len(gone)
        for change in gone:
            noise = [root.ci95 or (0.0, 0.0) for at in change if (root := needed[at]) is not None]
            assert any(low <= level <= high for low, high in noise), (variant, gpus, level, change)
    assert missed <= 10
