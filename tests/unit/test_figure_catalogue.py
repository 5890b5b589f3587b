"""The catalogue of figures is the only table of them, and what it declares fits what is measured."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from simulator.results.catalogue import (
    CATALOGUE,
    COMPARED,
    COMPARED_BY_WORD,
    LIMITED,
    all_paths,
    label_of,
    metric_of,
    paths_shown,
    title_of,
)
from simulator.results.measure import measure
from simulator.results.metric import Detail, Kind
from tests.records import closed_loop_record
from tests.shared_data import ROOT

FOLDERS = ("simulator", "calibration", "experiments", "dashboards")
MEASUREMENTS = (
    "simulator/results/catalogue.py",
    "simulator/results/measure.py",
    "calibration/acceptance/rows.py",
    "calibration/telemetry/answer.py",
    "calibration/engine_loop/raw.py",
)
"""The catalogue, and where figures are measured: on a run, on real models, in telemetry, on a real server."""
FORMATS = "calibration/telemetry/readers/"
"""A reader knows what its format calls a figure."""
MOST_NAMES = 2
"""A literal with more names of figures is a table."""
NAMES = frozenset((*CATALOGUE, *COMPARED, *all_paths()))


def held(literal: ast.expr) -> Iterator[str]:
    """The texts of a literal and of the literals in it."""
    for part in ast.iter_child_nodes(literal):
        if isinstance(part, ast.Dict | ast.List | ast.Tuple | ast.Set):
            yield from held(part)
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def tables_in(source: str) -> Iterator[tuple[int, list[str]]]:
    """(line, names) of every literal that is a table of figures."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Dict | ast.List | ast.Tuple | ast.Set):
            names = sorted(NAMES.intersection(held(node)))
            if len(names) > MOST_NAMES:
                yield node.lineno, names


def test_there_is_no_second_table_of_figures() -> None:
    result = {
        f"{name}:{line}": names
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (name := path.relative_to(ROOT).as_posix()) not in MEASUREMENTS and not name.startswith(FORMATS)
        for line, names in tables_in(path.read_text("utf-8"))
    }
    assert result == {}


@pytest.mark.parametrize(
    "table",
    [
        'ROWS = ("tpot_s.mean", "tpot_s.p99", "mean_batch")',
        'UNITS = {"ttft_s": "s", "steps": "1", "preemptions": "1"}',
        'ROWS = [("TTFT", "ttft_s"), ("TPOT", "tpot_s"), ("ITL", "itl_s")]',
        'RATIOS = {"throughput_speedup", "itl_p99_ratio", "tpot_mean_speedup"}',
    ],
)
def test_a_second_table_would_be_noticed(table: str) -> None:
    assert [line for line, _ in tables_in(table)] == [1]


def test_every_figure_that_is_measured_is_declared_and_the_other_way_round() -> None:
    measured = measure(closed_loop_record(1, 400, 9, 10), limits={"ttft_p99_s": 1.0})
    by_position = {path for path in measured if metric_of(path).by_position}
    assert set(measured) - by_position == set(all_paths())
    assert {path.partition(".")[0] for path in by_position} == {
        name for name, metric in CATALOGUE.items() if metric.by_position
    }


def test_figures_of_traffic_classes_belong_to_the_same_metrics() -> None:
    for path in all_paths():
        assert metric_of(f"classes.chat.{path}") is metric_of(path)
        assert title_of(f"classes.chat.{path}") == f"chat: {title_of(path)}"


def test_titles_are_the_industrys_and_labels_have_the_unit_people_read() -> None:
    assert label_of("tpot_s.p999") == "TPOT P99.9, ms"
    assert label_of("throughput_tokens_per_s") == "throughput, tokens/s"
    assert label_of("kv_peak_fraction") == "peak KV use, %"
    assert label_of("steps") == "steps"
    assert metric_of("ttft_s.mean").scale == 1e3
    titles = [title_of(path) for path in all_paths()]
    assert len(set(titles)) == len(titles)


def test_a_comparison_above_1_is_better_exactly_when_it_is_called_a_speedup() -> None:
    for name, ratio in COMPARED.items():
        grows_when_better = ratio.metric.better * (-1 if ratio.inverted else 1) > 0
        assert name.endswith("_speedup" if grows_when_better else "_ratio")
        assert COMPARED_BY_WORD[name.rpartition("_")[0]] is ratio
        assert ratio.path in all_paths()


def test_what_a_table_shows_exists_and_larger_tables_hold_the_smaller_ones() -> None:
    summary, table, page = (paths_shown(detail) for detail in Detail)
    assert set(summary) < set(table) < set(page) < set(all_paths())
    for metric in CATALOGUE.values():
        assert set(metric.shown) <= {*(metric.parts or ("",))}, metric.name


def test_limits_are_held_against_latencies_of_single_requests() -> None:
    assert LIMITED["itl"] == "worst_gap_s"
    assert all(CATALOGUE[name].kind is Kind.REQUEST_LATENCY for name in LIMITED.values())
    assert all(metric.is_latency for metric in CATALOGUE.values() if metric.reported_by_clients)
