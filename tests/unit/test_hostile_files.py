"""Files made to break a reader end in one line: too deep, too long, too large, damaged."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from experiments.cli import decodesim
from simulator.errors import InputError
from simulator.files import read_json
from simulator.results.result import read_results
from simulator.scenario import parse_scenario
from simulator.simulation import simulate
from simulator.traces.files import csv_rows, json_lines, whole_text
from tests.plans import tiny

SCENARIO = """
target: {{model: smollm2-135m-instruct}}
hardware: {{gpu: h100-sxm}}
speculation:
  - {{name: "{name}", method: ngram, acceptance: {{model: geometric, alpha: 0.5}}}}
workload: {{arrivals: {{kind: closed, concurrency: 2}}, requests: 40}}
"""


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(decodesim, [str(argument) for argument in arguments])


def refused(done: Result, *words: str) -> None:
    assert done.exit_code == 2, done.output
    assert "Traceback" not in done.output
    assert all(word in done.output for word in words), done.output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"x": ' + "9" * 5000 + "}", "not usable"),
        ("[" * 3000 + "]" * 3000, "nested"),
        ("{", "is not JSON"),
        ("", "is not JSON"),
    ],
)
def test_result_files_that_break_a_parser(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "result.json"
    file.write_text(text, encoding="utf-8")
    refused(run("report", file), "result.json", message)


def test_a_file_without_end_is_read_up_to_a_size(tmp_path: Path) -> None:
    pipe = tmp_path / "endless"
    os.mkfifo(pipe)

    def fill() -> None:
        with suppress(BrokenPipeError), pipe.open("wb") as stream:
            while True:
                stream.write(b"0" * 65_536)

    writer = threading.Thread(target=fill)
    writer.start()
    with pytest.raises(InputError, match="larger than 1 MB"):
        read_json(pipe, 1_000_000)
    writer.join()


@pytest.mark.parametrize("rows", [json_lines, lambda path: csv_rows(path, ())])
def test_a_small_file_may_not_unpack_to_one_endless_line(tmp_path: Path, rows: Any) -> None:
    bomb = tmp_path / "bomb.gz"
    with gzip.open(bomb, "wb") as stream:
        stream.write(b"a\n" + b"a" * (1 << 25))
    with pytest.raises(InputError, match=r"line is too long|not CSV"):
        list(rows(bomb))


def test_a_document_is_read_up_to_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.traces.files._DOCUMENT_CHARACTERS", 100)
    file = tmp_path / "long.json"
    file.write_text("1\n" * 51, encoding="utf-8")
    with pytest.raises(InputError, match="too large"):
        whole_text(file)


@pytest.mark.parametrize("name", ["a\\0b", "a\\nb", "\\u0007"])
def test_names_that_no_table_can_show_are_refused_before_the_run(name: str) -> None:
    with pytest.raises(InputError, match="cannot be printed"):
        parse_scenario(SCENARIO.format(name=name))


@pytest.mark.parametrize("value", ['!!int ""', '!!float ""', "!!bool maybe"])
def test_empty_yaml_numbers_are_refused(value: str, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(SCENARIO.format(name="a"), encoding="utf-8")
    refused(run("simulate", file, "--set", f"workload.requests={value}"), "workload.requests")


def test_variants_whose_names_differ_by_a_sign_keep_their_own_requests(tmp_path: Path) -> None:
    base = tiny({"workload.requests": 40, "run.replications": 1})
    first = base.speculation[0]
    variants = tuple(first.model_copy(update={"name": name}) for name in ("a/b", "a_b", "a%2Fb"))
    result = simulate(base.model_copy(update={"speculation": variants}))
    result.write(tmp_path)
    (again,) = read_results(tmp_path)
    assert again.records.keys() == result.records.keys()
    assert len(list(tmp_path.glob("requests-*.npz"))) == 4


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    study = folder / "a.study.yaml"
    body = SCENARIO.format(name="a").strip().replace("\n", "\n  ")
    study.write_text(
        f"scenario:\n  {body}\naxes:\n  workload.arrivals.concurrency: [1, 2]\n", encoding="utf-8"
    )
    done = run("sweep", study, "--out", folder / "a.db", "--workers", "1", "--yes")
    assert done.exit_code == 0, done.output
    return folder / "a.db"


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE columns SET kind = 'nonsense'",
        "UPDATE cells SET \"a.throughput_tokens_per_s\" = 'fast'",
        'UPDATE cells SET "a.throughput_tokens_per_s" = 9e999',
        "UPDATE cells SET \"a.throughput_tokens_per_s\" = CAST(x'ff' AS TEXT)",
        "UPDATE about SET value = '[]' WHERE name = 'study'",
    ],
)
def test_damaged_stores_end_in_one_line(store: Path, tmp_path: Path, damage: str) -> None:
    broken = tmp_path / "broken.db"
    shutil.copy(store, broken)
    with sqlite3.connect(broken) as connection:
        connection.execute(damage)
    for command in (("results", broken, "--json"), ("report", broken, "-o", tmp_path / "r.html")):
        done = run(*command)
        assert done.exit_code in (0, 2), f"{command}: {done.output}\n{done.exception!r}"
        assert "Traceback" not in done.output


def test_counts_and_rows_of_a_store_are_of_one_moment(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process deletes a cell between the count and the rows."""
    from experiments.store.reader import StoreReader

    with StoreReader(store, one_state=True) as cells:
        counts = cells.counts()
        with sqlite3.connect(store) as writer:
            writer.execute("CREATE TEMP TABLE one AS SELECT key FROM cells LIMIT 1")
            saved = writer.execute("SELECT * FROM cells WHERE key IN one").fetchall()
            writer.execute("DELETE FROM cells WHERE key IN one")
        rows = list(cells.rows())
    assert len(rows) == sum(counts.values()) == 2
    with sqlite3.connect(store) as writer:
        marks = ",".join("?" * len(saved[0]))
        writer.executemany(f"INSERT INTO cells VALUES ({marks})", saved)
    assert json.loads(run("results", store, "--json").stdout)["cells"] == 2
