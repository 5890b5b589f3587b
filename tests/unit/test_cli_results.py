"""`decodesim results`: what a person reads, what a program gets, and that a condition cannot write."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from experiments.cell import Cell, CellResult
from experiments.store import reader as store_reader
from experiments.store.store import Store
from simulator.scenario import load_scenario
from tests.shared_data import ROOT
from tests.unit.test_cli import bad, run

ALPHAS, LOADS = (0.5, 0.7, 0.9), (1, 64)


def estimate(value: float) -> Mapping[str, Any]:
    return {"value": value, "ci95": [value - 0.02, value + 0.02], "band": [value - 0.1, value + 0.1]}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six cells, of which one failed and one does not fit."""
    path = tmp_path_factory.mktemp("store") / "study.db"
    scenario = (ROOT / "examples" / "llama-3.3-70b-eagle3-h100.yaml").read_text(encoding="utf-8")
    document = {"name": "Alphas and loads", "zip": [["workload.arrivals.concurrency", "workload.requests"]]}
    with Store.create_or_open(path, document, "sha") as store:
        for number, (alpha, load) in enumerate((alpha, load) for alpha in ALPHAS for load in LOADS):
            settings = {
                "speculation.eagle3-k3.acceptance.alpha": alpha,
                "workload.arrivals.concurrency": load,
                "workload.requests": 10 * load,
                "hardware.tensor_parallel": 4,
                "seed": 0,
            }
            metrics = {
                "plain.throughput_tokens_per_s": estimate(100.0 * load),
                "plain.tpot_s.p99": 0.0123,
                "eagle3-k3.throughput_tokens_per_s": estimate(100.0 * load * (0.5 + alpha)),
                "eagle3-k3.throughput_speedup": estimate(0.5 + alpha),
                "eagle3-k3.verdict": "pays" if alpha > 0.6 else "undecided",
                "eagle3-k3.reason": "a sentence that would take all the room there is",
            }
            status, error = "done", None
            if number == 4:
                status, error, metrics = "failed", "ValueError: odd", {}
            if number == 5:
                status, error, metrics = "does-not-fit", "the weights need 5 GiB more", {}
            content = json.dumps({"text": scenario, "number": number})
            store.add(Cell(settings, content), CellResult(f"{number}a", status, metrics, error))
    return path


def table(store: Path, *arguments: str) -> tuple[list[str], list[list[str]]]:
    """(headings, rows) of the table on a terminal."""
    lines = run("results", store, *arguments).stdout.splitlines()
    rule = next(number for number, line in enumerate(lines) if set(line.strip()) == {"─"})
    split = [re.split(r"\s{2,}", line.strip()) for line in lines]
    below = split[rule + 1 :]
    return split[rule - 1], below[: below.index([""])]


def test_a_person_sees_what_varies_and_the_most_telling_figures(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    text = run("results", store).stdout
    assert text.startswith("Alphas and loads: 6 cells, 1 failed, 1 do not fit the memory\n")
    assert "The same in all: hardware.tensor_parallel 4, seed 0" in text
    assert "Not shown because they vary together with another axis: workload.requests" in text
    assert "- 1 failed: ValueError: odd" in text
    assert "- 1 does-not-fit: the weights need 5 GiB more" in text
    headings, rows = table(store)
    assert headings[:5] == ["alpha", "concurrency", "status", "verdict", "throughput_speedup"]
    assert rows[0][:5] == ["0.5", "1", "done", "undecided", "1.00 ± 0.020"]
    assert [row[:2] for row in rows] == [[f"{alpha:g}", str(load)] for alpha in ALPHAS for load in LOADS]
    assert rows[4][2:] == ["failed"] + ["–"] * (len(headings) - 3)


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_the_table_keeps_to_the_width_of_the_terminal(
    store: Path, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    text = run("results", store).stdout
    assert max(map(len, text.splitlines())) <= width
    headings, _ = table(store)
    assert headings[0] == "alpha"
    assert ("No room here for" in text) == (len(headings) < 8)
    assert "sentence" not in text


def test_the_columns_asked_for_are_shown(store: Path) -> None:
    headings, rows = table(
        store, "--columns", "key,alpha,throughput_speedup.band_low", "--where", "concurrency = 1"
    )
    assert headings == ["key", "alpha", "band_low"], "long names stand on several lines"
    assert rows[0] == ["0a", "0.5", "0.900"]


def document(*arguments: str | Path) -> dict[str, Any]:
    result = run("results", *arguments, "--json")
    assert result.exit_code == 0, result.stderr
    outcome: dict[str, Any] = json.loads(result.stdout)
    return outcome


def test_json_has_every_cell_under_documented_columns(store: Path) -> None:
    full_document = document(store)
    assert (full_document["cells"], full_document["failed"], full_document["does_not_fit"]) == (6, 1, 1)
    names = [column["name"] for column in full_document["columns"]]
    assert all(set(column) == {"name", "unit", "meaning"} for column in full_document["columns"])
    assert [list(row) for row in full_document["rows"]] == [names] * 6
    assert full_document["rows"][0]["eagle3-k3.throughput_speedup.ci95_low"] == 0.98
    some = document(store, "--where", "verdict = 'pays'")
    assert some["cells"] == len(some["rows"]) == 2
    assert document(store, "--where", "concurrency > 1000")["rows"] == []


@pytest.mark.parametrize(
    ("condition", "keys"),
    [
        ("alpha >= 0.7 AND concurrency = 64", {"3a", "5a"}),
        ("speculation.eagle3-k3.acceptance.alpha = 0.5", {"0a", "1a"}),
        ('"workload.arrivals.concurrency" = 1 and eagle3-k3.throughput_speedup > 1.1', {"2a"}),
        ("Verdict IN ('pays', 'loses')", {"2a", "3a"}),
        ("throughput_speedup.band_low > 1.05", {"2a", "3a"}),
        ("error LIKE '%GiB%' -- a comment", {"5a"}),
        ("plain.tpot_s.p99 IS NULL", {"4a", "5a"}),
        ("key IN (SELECT max(key) FROM cells)", {"5a"}),
    ],
)
def test_conditions_choose_cells(store: Path, condition: str, keys: set[str]) -> None:
    assert {row["key"] for row in document(store, "--where", condition)["rows"]} == keys


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("alhpa > 0.5", r"has no column 'alhpa', did you mean 'alpha'\?.*columns: key, status, .*alpha"),
        ('"alhpa" > 0.5', "has no column 'alhpa'"),
        ("throughput_tokens_per_s > 5", "has no column"),  # plain decoding has one, and eagle3-k3
        ("alpha >", "is not a condition"),
        ("", "is not a condition"),
        ("alpha > 0.5; DELETE FROM cells", "is not a condition"),
        ("1) OR (SELECT 1 FROM about", "is not a condition"),
        ("json_extract(verdict, '$')", "is not a condition: malformed JSON"),
        ("EXISTS (SELECT * FROM pragma_writable_schema)", "is not a condition"),
        (
            "key IN (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n)",
            "not a condition",
        ),
        ("load_extension('evil')", "is not a condition"),
        ("1) OR (1", "is not a condition"),
        ("verdict = 'pays", "a quote that nothing closes"),
        ("randomblob(900000000) IS NOT NULL", "too big"),
    ],
)
def test_other_conditions_get_one_line(store: Path, condition: str, message: str) -> None:
    before = store.read_bytes()
    (line,) = bad("results", store, "--where", condition)
    assert line.startswith("--where: ")
    assert re.search(message, line)
    assert store.read_bytes() == before


def test_a_condition_that_takes_too_long_is_given_up(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_reader, "_LONGEST_S", 0.0)
    condition = f"(SELECT count(*) FROM {', '.join(f'cells c{n}' for n in range(20))}) > 0"  # 6^20 rows
    (line,) = bad("results", store, "--where", condition)
    assert line.startswith("--where: takes more than 0 s (got ")


def test_both_files_hold_the_cells_asked_for(store: Path, tmp_path: Path) -> None:
    for ending in ("csv", "parquet"):
        target = tmp_path / f"cells.{ending}"
        result = run("results", store, "--where", "concurrency = 64", "--export", target)
        assert result.stdout == ""
        assert result.stderr == f"wrote {target}: 3 cells, {len(document(store)['columns'])} columns\n"
    with (tmp_path / "cells.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    parquet = pyarrow.parquet.read_table(tmp_path / "cells.parquet").to_pylist()
    expected = document(store, "--where", "concurrency = 64")["rows"]
    assert parquet == expected
    texts = [{name: "" if value is None else str(value) for name, value in row.items()} for row in expected]
    assert [row["key"] for row in rows] == [row["key"] for row in texts] == ["1a", "3a", "5a"]
    assert rows[0]["eagle3-k3.reason"] == texts[0]["eagle3-k3.reason"]


def test_the_scenario_of_a_cell_can_be_simulated(store: Path, tmp_path: Path) -> None:
    printed = json.loads(run("results", store, "--scenario", "3a").stdout)
    assert printed["number"] == 3
    file = tmp_path / "cell.yaml"
    file.write_text(printed["text"], encoding="utf-8")
    assert load_scenario(file).speculation[0].name == "eagle3-k3"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.db"], "nowhere.db: is not there"),
        (["."], "is a folder, STORE is a file that `decodesim sweep` wrote"),
        ([__file__], "is not a store of decodesim"),
        (["STORE", "--columns", "alhpa"], "--columns: unknown column, did you mean 'alpha'?"),
        (["STORE", "--columns", "throughput_tokens_per_s"], "--columns: unknown column"),
        (
            ["STORE", "--export", "cells.xlsx"],
            "--export: has no known ending (got 'cells.xlsx'), .parquet or .csv",
        ),
        (
            ["STORE", "--export", "/no/where.csv"],
            "/no/where.csv: cannot be written: no such file or directory",
        ),
        (["STORE", "--export", "/no/where.parquet"], "cannot be written: no such file or directory"),
        (["STORE", "--export", f"{'x' * 300}.csv"], "cannot be written: file name too long"),
        (["STORE", "--columns", ","], "--columns: names no column, one or more of key, status"),
        (["STORE", "--scenario", "zz"], "key: names no cell (got 'zz')"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_input_gets_one_line(store: Path, arguments: list[str], message: str) -> None:
    (line,) = bad("results", *(str(store) if argument == "STORE" else argument for argument in arguments))
    assert message in line
