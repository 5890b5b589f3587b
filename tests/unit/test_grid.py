"""Grids: every cell once, coarse before fine, dear changes last, and each cell what `--set` would give."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice, pairwise, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.conditions import Filter, condition_sql, short_names
from experiments.study.axis import Axis
from experiments.study.grid import MAX_POINTS, StudyGrid, cell_at, indices_by_level, levels_of
from experiments.study.study import Study
from simulator.errors import InputError
from simulator.scenario import Scenario, parse_scenario, scenario_from_data
from tests.studies import ALPHA, CONCURRENCY, DRAFT_LENGTH, SCENARIO, study

GRID = (
    f"axes:\n  {ALPHA}: {{from: 0.1, to: 0.9, steps: 9}}\n  {DRAFT_LENGTH}: [1, 3, 5]\n"
    f"  {CONCURRENCY}: [1, 4, 16, 64]\n"
)


def settings_of(read: Study) -> list[dict[str, Any]]:
    """The settings of all cells, in their order."""
    return [dict(cell.settings) for cell in StudyGrid(read).cells()]


def scenario_of(cell_scenario: str) -> Scenario:
    """The scenario that a cell's text means."""
    return scenario_from_data(json.loads(cell_scenario))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_every_point_once_and_the_corners_first(shape: list[int]) -> None:
    axes = [Axis("x", ("x",), tuple(range(count)), ()) for count in shape]
    points = list(indices_by_level([levels_of(axis) for axis in axes]))
    assert sorted(points) == list(product(*map(range, shape)))
    corners = set(product(*({0, count - 1} for count in shape)))
    assert set(points[: len(corners)]) == corners


@given(st.integers(2, 400), st.integers(1, 400))
def test_whatever_is_done_covers_the_axis(count: int, done: int) -> None:
    """The widest gap between values that had their turn is at most twice the mean one."""
    axis = Axis("x", ("x",), tuple(range(count)), ())
    levels = levels_of(axis)
    order = sorted(range(count), key=lambda index: levels[index])
    complete = sum(level <= levels[order[min(done, count) - 1]] for level in levels)
    seen = sorted(order[:complete])
    widest = max(after - before for before, after in pairwise(seen))
    assert widest <= 2 * (count - 1) / (len(seen) - 1)


def test_values_without_an_order_all_come_first() -> None:
    assert set(levels_of(Axis("x", ("x",), ("a", "b", "c", "d"), ()))) == {0}
    falling = Axis("x", ("x",), (64, 1, 16, 4, 2), ())
    assert [falling.values[index] for index, level in enumerate(levels_of(falling)) if level == 0] == [64, 1]


def test_what_is_dear_to_change_changes_last(tmp_path: Path) -> None:
    """Within a level, cells that share requests, prices and plain runs are neighbours."""
    result = settings_of(study(tmp_path, GRID))
    assert len(result) == 9 * 3 * 4
    corners = result[:8]
    assert [cell[CONCURRENCY] for cell in corners] == [1] * 4 + [64] * 4
    assert [cell[DRAFT_LENGTH] for cell in corners] == [1, 1, 5, 5] * 2
    assert [cell[ALPHA] for cell in corners] == [0.1, 0.9] * 4


def test_conditions_leave_cells_out(tmp_path: Path) -> None:
    grid = GRID + "seeds: 2\n"
    where = f"where:\n  - alpha * draft_length > 0.5\n  - {CONCURRENCY} IN (1, 64) OR seed = 1\n"
    every, result = settings_of(study(tmp_path, grid)), settings_of(study(tmp_path, grid + where))
    held = [
        cell
        for cell in every
        if cell[ALPHA] * cell[DRAFT_LENGTH] > 0.5 and (cell[CONCURRENCY] in (1, 64) or cell["seed"] == 1)
    ]
    assert result == held
    assert 0 < len(result) < len(every)
    assert StudyGrid(study(tmp_path, grid + where)).count(10**6) == len(result)
    assert StudyGrid(study(tmp_path, grid + where)).count(5) == 5


def test_zipped_axes_go_together(tmp_path: Path) -> None:
    read = study(
        tmp_path,
        f"axes:\n  {CONCURRENCY}: [1, 4, 16]\n  workload.requests: [100, 200, 300]\n"
        f"  {DRAFT_LENGTH}: [1, 2]\nzip: [[workload.requests, {CONCURRENCY}]]\n",
    )
    pairs = {(cell[CONCURRENCY], cell["workload.requests"]) for cell in settings_of(read)}
    assert pairs == {(1, 100), (4, 200), (16, 300)}
    assert len(settings_of(read)) == 6


def test_seeds_repeat_the_grid(tmp_path: Path) -> None:
    read = study(tmp_path, f"axes:\n  {CONCURRENCY}: [1, 4]\nseeds: 3\n", SCENARIO + "  slo: null\n")
    assert [cell["seed"] for cell in settings_of(read)] == [0, 0, 1, 1, 2, 2]
    assert [scenario_of(cell.scenario).run.seed for cell in StudyGrid(read).cells()] == [0, 0, 1, 1, 2, 2]
    assert len({cell.key for cell in StudyGrid(read).cells()}) == 6


SET: dict[str, Any] = {
    ALPHA: 0.25,
    DRAFT_LENGTH: [[1, 15, 5], [16, None, 0]],
    "workload.prompt_tokens": {"kind": "lognormal", "median": 100, "p95": 400},
    "engine.host.step_s": 0.001,
    "slo.tpot_p99_s": 0.05,
    "run.mechanisms.prefill": False,
    "target.kv_cache": "bf16",
}
"""Fields of every sort: deep, structured, left out of the file."""


@pytest.mark.parametrize("path", SET)
def test_a_cell_is_what_set_gives(tmp_path: Path, path: str) -> None:
    text = json.dumps(SET[path])
    (cell,) = StudyGrid(study(tmp_path, f"axes:\n  {path}: [{text}]\n")).cells()
    inner = "".join(line.removeprefix("  ") for line in SCENARIO.splitlines(keepends=True)[1:])
    assert scenario_of(cell.scenario) == parse_scenario(inner, overrides=[f"{path}={text}"])
    assert cell.settings[path] == SET[path]


def test_whole_variants_and_methods_may_vary(tmp_path: Path) -> None:
    variants = [
        [{"method": "eagle3", "draft_length": 3}],
        [{"name": "small", "method": "draft_model", "draft": "llama-3.2-1b-instruct"}],
        [],
    ]
    read = study(tmp_path, f"axes:\n  speculation: {json.dumps(variants)}\nkeep: [small.verdict, verdict]\n")
    names = [
        [variant.name for variant in scenario_of(cell.scenario).speculation]
        for cell in StudyGrid(read).cells()
    ]
    assert names == [["eagle3-k3"], ["small"], []]


def test_followers_take_the_cells_tensor_parallelism(tmp_path: Path) -> None:
    scenario = SCENARIO.replace("draft_length: 3,", "draft_length: 3, draft_tensor_parallel: 4,")
    read = study(tmp_path, "axes:\n  hardware.tensor_parallel: [2, 4, 8]\n", scenario)
    ranks = {
        (read.hardware.tensor_parallel, read.speculation[0].draft_tensor_parallel)
        for read in (scenario_of(cell.scenario) for cell in StudyGrid(read).cells())
    }
    assert ranks == {(2, 2), (4, 4), (8, 8)}


def test_cells_between_the_values(tmp_path: Path) -> None:
    read = study(tmp_path, GRID)
    cell = cell_at(read, {ALPHA: 0.55, DRAFT_LENGTH: 2, CONCURRENCY: 5})
    result = scenario_of(cell.scenario)
    assert (result.speculation[0].draft_length, result.workload.arrivals.concurrency) == (2, 5)  # type: ignore[union-attr]
    assert cell.settings["seed"] == 0


def test_other_files_are_other_cells(tmp_path: Path) -> None:
    lengths = tmp_path / "lengths.csv"
    scenario = SCENARIO.replace("{kind: fixed, tokens: 300}", "{kind: empirical, file: lengths.csv}")

    cells = {}
    for name, tokens in (("a", 10), ("b", 20)):
        lengths.write_text(f"prompt_tokens\n{tokens}\n", encoding="utf-8")
        (cells[name],) = StudyGrid(study(tmp_path, "", scenario)).cells()

    assert cells["a"].scenario == cells["b"].scenario
    assert cells["a"].key != cells["b"].key
    assert json.loads(cells["a"].scenario)["workload"]["prompt_tokens"]["file"] == str(lengths)


def test_samples_fill_the_ranges_evenly_and_repeat(tmp_path: Path) -> None:
    rest = (
        f"sample: {{kind: sobol, n: 64}}\naxes:\n  {ALPHA}: {{from: 0.2, to: 0.6}}\n"
        f"  {CONCURRENCY}: {{from: 1, to: 256, scale: log}}\n  {DRAFT_LENGTH}: [1, 3, 5, 7]\n"
        f"  workload.requests: {{from: 100, to: 900}}\nzip: [[{CONCURRENCY}, workload.requests]]\n"
    )
    result = settings_of(study(tmp_path, rest))
    assert result == settings_of(study(tmp_path, rest))
    assert len(result) == 64
    for low in (0.2, 0.3, 0.4, 0.5):  # a Sobol sequence has a quarter of its points in each quarter
        assert sum(low <= cell[ALPHA] < low + 0.1 for cell in result) == 16
    assert [sum(cell[DRAFT_LENGTH] == k for cell in result) for k in (1, 3, 5, 7)] == [16] * 4
    assert sum(cell[CONCURRENCY] <= 16 for cell in result) == pytest.approx(32, abs=4)
    assert all(isinstance(cell[CONCURRENCY], int) and 1 <= cell[CONCURRENCY] <= 256 for cell in result)
    pairs = sorted((cell[CONCURRENCY], cell["workload.requests"]) for cell in result)
    assert [requests for _, requests in pairs] == sorted(requests for _, requests in pairs)


def test_samples_that_coincide_count_once(tmp_path: Path) -> None:
    read = study(tmp_path, f"sample: {{n: 50}}\naxes:\n  {DRAFT_LENGTH}: {{from: 1, to: 4}}\n")
    assert sorted(cell[DRAFT_LENGTH] for cell in settings_of(read)) == [1, 2, 3, 4]
    assert StudyGrid(read).count(100) == 4


def test_a_grid_of_millions_begins_at_once(tmp_path: Path) -> None:
    many = (
        f"axes:\n  {ALPHA}: {{from: 0, to: 1, steps: 2000}}\n"
        "  workload.requests: {from: 1, to: 4000, steps: 4000}\n"
    )
    read = study(tmp_path, many)
    assert StudyGrid(read).count(10**9) == 8_000_000
    assert len(list(islice(StudyGrid(read).cells(), 10))) == 10
    with pytest.raises(InputError, match=rf"small.study.yaml:12:1: axes: .*at most {MAX_POINTS:,}"):
        StudyGrid(study(tmp_path, many + f"  {CONCURRENCY}: [1, 2]\n")).count(10)


COLUMNS = [
    "workload.arrivals.concurrency",
    "speculation.b-1.acceptance.alpha",
    "speculation.b-1.tree",
    "a.load",
    "load",
]
ROWS = [
    {
        COLUMNS[0]: n,
        COLUMNS[1]: n / 10,
        COLUMNS[2]: None if n % 2 else {"depth": n, "a": [1]},
        COLUMNS[3]: f"x{n}",
        COLUMNS[4]: n % 3 == 0,
    }
    for n in range(2500)
]
CONDITIONS: dict[str, Callable[[int], bool]] = {
    "concurrency < 10": lambda n: n < 10,
    "CONCURRENCY<10 and alpha-0.2>=0.05": lambda n: 3 <= n < 10,
    "speculation.b-1.acceptance.alpha = 0.5": lambda n: n == 5,
    '"workload.arrivals.concurrency" BETWEEN 3 AND 4': lambda n: n in (3, 4),
    "tree IS NULL AND load": lambda n: n % 2 == 1 and n % 3 == 0,
    "json_extract(tree, '$.depth') = 8": lambda n: n == 8,
    "a.load IN ('x7', 'alpha') -- the rest": lambda n: n == 7,
    "workload.arrivals.concurrency % 1000 = 1": lambda n: n in (1, 1001, 2001),
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions_hold_what_they_say(condition: str) -> None:
    chosen = Filter([condition_sql(condition, COLUMNS)], COLUMNS)
    held = [n for n in range(len(ROWS)) if CONDITIONS[condition](n)]
    assert list(chosen.matching(ROWS)) == [ROWS[n] for n in held]


def test_a_short_name_is_an_end_that_one_column_alone_has() -> None:
    result = short_names(COLUMNS)
    assert {name: result[name] for name in ("concurrency", "alpha", "b-1.tree", "tree")} == {
        "concurrency": COLUMNS[0],
        "alpha": COLUMNS[1],
        "b-1.tree": COLUMNS[2],
        "tree": COLUMNS[2],
    }
    assert "load" not in result


def test_an_end_that_two_columns_share_names_neither() -> None:
    columns = ["plain.tpot_s.p99", "eagle3.tpot_s.p99", "eagle3.verdict"]
    assert short_names(columns) == {"verdict": "eagle3.verdict"}
    with pytest.raises(InputError, match="has no column"):
        condition_sql("tpot_s.p99 < 0.02", columns)


@pytest.mark.parametrize(
    "condition",
    [
        "concurrency <",
        "1); DROP TABLE cells; --",
        "'open",
        "sum(alpha) > 1",
        '"alhpa" > 1',
        "x.alpha > 1",
        "",
    ],
)
def test_what_is_no_condition_is_refused(condition: str) -> None:
    with pytest.raises(InputError, match=r"not a condition|has no column"):
        condition_sql(condition, COLUMNS)


def test_a_condition_that_never_ends_is_refused() -> None:
    endless = (
        "EXISTS (WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t) SELECT x FROM t WHERE x < 0)"
    )
    chosen = Filter([condition_sql(endless, ["seed"])], ["seed"])
    with pytest.raises(InputError, match="takes too long"):
        list(chosen.matching([{"seed": 1}]))
