"""The store: what is added is there, in columns that say what they are, and nothing else gets in its way."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import random
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from experiments import cell as cells
from experiments.cell import Cell, CellResult
from experiments.store import export as exports
from experiments.store import file as store_file
from experiments.store.export import export
from experiments.store.reader import StoreReader
from experiments.store.store import Store
from experiments.store.tables import create_tables
from simulator.errors import InputError
from tests.tiny_tasks import cell_of, figure, result_of

STUDY = {"name": "tiny", "axes": {"workload.arrivals.concurrency": [1, 2]}}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tiny.db"


def made(path: Path, numbers: Sequence[int] = (), *, fresh: bool = False, sha: str = "study-1") -> Store:
    store = Store.create_or_open(path, STUDY, sha, fresh=fresh)
    store_all(store, numbers)
    return store


def store_all(store: Store, numbers: Iterable[int]) -> None:
    for number in numbers:
        store.add(cell_of(number), result_of(cell_of(number)))


def only(rows: Iterator[dict[str, Any]]) -> dict[str, Any]:
    (row,) = rows
    return row


def test_a_cell_is_there_with_all_that_it_is(path: Path) -> None:
    with made(path, [64]) as store:
        row = only(store.rows())
        assert cell_of(64).key in store
        assert cell_of(65).key not in store
        assert store.scenario(cell_of(64).key[:12]) == cell_of(64).scenario
        assert store.study() == STUDY
    value = figure(64)
    assert row.pop("version") == cells.code_version()
    assert row == {
        "key": cell_of(64).key,
        "status": "done",
        "error": None,
        "seconds_s": 0.0,
        "workload.arrivals.concurrency": 64,
        "seed": 0,
        "eagle3.verdict": "pays",
        "plain.throughput_tokens_per_s": value,
        "plain.throughput_tokens_per_s.ci95_low": value - 1,
        "plain.throughput_tokens_per_s.ci95_high": value + 1,
    }


def test_every_column_has_a_unit_and_a_meaning(path: Path) -> None:
    figures: dict[str, cells.MetricValue] = {
        "a.b-0.5.tpot_s.p99": {"value": 0.01, "ci95": None, "band": [0.0, 0.02]},
        "plain.classes.code.ttft_s.mean": 0.1,
        "plain.mean_batch": 3.0,
        "plain.step_s.host": 1e-4,
        "eagle3.break_even_alpha": 0.4,
    }
    settings = {"hardware.tensor_parallel": 4, "speculation.eagle3.draft_length": [[1, 15, 5]], "seed": 7}
    with made(path) as store:
        store.add(Cell(settings, "{}"), CellResult("k", "done", figures))
        columns = {column.name: column for column in store.columns()}
        assert only(store.rows())["speculation.eagle3.draft_length"] == "[[1,15,5]]"
    assert all(column.meaning for column in columns.values())
    assert all(bool(column.unit) == (column.kind != "text") for column in columns.values())
    units = {name: columns[name].unit for name in (*figures, *settings)}
    assert list(units.values()) == ["s", "s", "requests", "s", "1", "GPUs", "", "1"]
    assert columns["a.b-0.5.tpot_s.p99"].meaning.startswith("a.b-0.5: TPOT: ")
    assert columns["a.b-0.5.tpot_s.p99"].meaning.endswith("P99")
    assert columns["a.b-0.5.tpot_s.p99.band_low"].unit == "s"
    assert "class code" in columns["plain.classes.code.ttft_s.mean"].meaning
    assert "a.b-0.5.tpot_s.p99.ci95_low" not in columns, "an interval that nobody has is no column"


def test_nothing_is_no_column_until_something_is_there(path: Path) -> None:
    """An axis may begin with null, and a figure may be infinite or missing."""
    with made(path) as store:
        for number, limit in enumerate([None, 4096]):
            metrics = {"plain.overhead": math.inf if limit is None else 0.5, "plain.steps": math.nan}
            store.add(Cell({"limit": limit, "seed": 0}, "{}"), CellResult(str(number), "done", metrics))
        rows = [(row["limit"], row["plain.overhead"]) for row in store.rows()]
        assert rows == [(None, None), (4096, 0.5)]
        assert "plain.steps" not in {column.name for column in store.columns()}


def test_a_column_widens_when_a_value_needs_it(path: Path) -> None:
    with made(path) as store:
        for number, value in enumerate([1, 0.5, None, "n/a"]):
            result = CellResult(str(number), "done", {} if value is None else {"plain.x": value})
            store.add(cell_of(number), result)
        assert [row["plain.x"] for row in store.rows()] == [1, 0.5, None, "n/a"]
        assert {column.name: column.kind for column in store.columns()}["plain.x"] == "text"
        export(store, path.with_suffix(".parquet"))
    table = pyarrow.parquet.read_table(path.with_suffix(".parquet"))
    assert table.column("plain.x").to_pylist() == ["1", "0.5", None, "n/a"]


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_the_order_in_which_cells_come_changes_nothing(ending: str, tmp_path: Path) -> None:
    """Bytes of the exports are those of the same cells in any order, some without figures."""
    written = []
    for seed in range(3):
        numbers = list(range(40))
        random.Random(seed).shuffle(numbers)
        with made(tmp_path / f"{seed}.db") as store:
            for number in numbers:
                result = result_of(cell_of(number))
                if number % 5 == 0:
                    result = replace(result, status="does-not-fit", metrics={}, error="too large")
                store.add(cell_of(number), result)
            target = tmp_path / f"{seed}{ending}"
            assert export(store, target) == 40
            written.append(target.read_bytes())
    assert written[0] == written[1] == written[2]
    assert not list(tmp_path.glob("*.part"))


def test_exports_hold_every_digit_with_and_without_pyarrow(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = path.with_suffix(".csv")
    with made(path, range(30)) as store:
        store.add(cell_of(99), CellResult("k", "failed", error='what, "this"\nhere'))
        names = [column.name for column in store.columns()]
        expected = [["" if value is None else value for value in row] for row in store.values(None, names)]
        for result in (True, None):
            monkeypatch.setattr(exports, "find_spec", lambda name, outcome=result: outcome)
            export(store, target)
            header, *rows = csv.reader(io.StringIO(target.read_bytes().decode(), newline=""))
            assert header == names
            typed = [
                [type(expected)(text) for text, expected in zip(row, wanted_row, strict=True)]
                for row, wanted_row in zip(rows, expected, strict=True)
            ]
            assert typed == expected
        with pytest.raises(InputError, match=r"needs pyarrow.*decodesim\[parquet\]"):
            export(store, path.with_suffix(".parquet"))


def test_parquet_carries_units_meanings_and_the_study(path: Path) -> None:
    target = path.with_suffix(".parquet")
    with made(path, range(5)) as store:
        assert export(store, target, "concurrency >= 2", ["concurrency", "throughput_tokens_per_s"]) == 3
    table = pyarrow.parquet.read_table(target)
    assert table.column_names == ["workload.arrivals.concurrency", "plain.throughput_tokens_per_s"]
    assert table.column(1).to_pylist() == [figure(number) for number in (2, 3, 4)]
    field = table.schema.field(1).metadata
    assert field[b"unit"] == b"tokens/s"
    assert field[b"meaning"].startswith(b"plain: throughput: output tokens")
    assert json.loads(table.schema.metadata[b"decodesim.study"]) == STUDY


def test_arrays_have_nan_where_nothing_is(path: Path) -> None:
    with made(path, range(5000)) as store:
        store.add(cell_of(5000), CellResult("k", "failed", error="why"))
        arrays = store.arrays("concurrency >= 4998")
    assert arrays["workload.arrivals.concurrency"].tolist() == [4998, 4999, 5000]
    throughput = arrays["plain.throughput_tokens_per_s"]
    assert throughput[:2].tolist() == [figure(4998), figure(4999)]
    assert math.isnan(throughput[2])
    assert arrays["error"].tolist() == [None, None, "why"]


def test_a_reader_sees_the_store_grow_and_keeps_nobody_waiting(path: Path) -> None:
    with made(path, range(3000)) as store, StoreReader(path) as reader:
        rows = reader.rows()
        next(rows)
        store.add(cell_of(3000), result_of(cell_of(3000)))  # while the reader is at it
        assert sum(1 for _ in rows) == 2999, "a call sees the cells there were when it began"
        assert reader.counts() == {"done": 3001}
        store.add(cell_of(3001), CellResult("k", "failed", {"plain.new": 1.0}, "why"))
        assert reader.counts() == {"done": 3001, "failed": 1}
        assert "plain.new" in {column.name for column in reader.columns()}
        assert reader.reasons() == [("failed", "why", 1)]


def test_a_study_can_be_enlarged_and_leaves_one_file(path: Path) -> None:
    made(path, range(3)).close()
    larger = {**STUDY, "axes": {"workload.arrivals.concurrency": [1, 2, 3]}}
    with Store.create_or_open(path, larger, "study-1") as store:
        store.add(cell_of(3), result_of(cell_of(3)))
        assert store.counts() == {"done": 4}
        assert store.study() == larger
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_store_has_its_log_from_the_start_so_that_no_kill_leaves_a_switch_half_done(path: Path) -> None:
    path.with_name(f"{path.name}-new-wal").write_bytes(b"of a run that was killed while it made its store")
    create_tables(path, {"study": "{}", "study_sha256": "study-1", "version": "1"})
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    with StoreReader(path) as reader:
        assert reader.counts() == {}


def test_a_cell_that_failed_is_replaced(path: Path) -> None:
    cell = cell_of(1)
    with made(path) as store:
        store.add(cell, CellResult(cell.key, "failed", error="killed"))
        store.add(cell, result_of(cell))
        row = only(store.rows())
        assert (row["status"], row["error"]) == ("done", None)


def test_a_full_disk_keeps_what_there_is_and_a_second_run_goes_on(path: Path) -> None:
    with made(path, range(5)) as store:
        (pages,) = store._writer.execute("PRAGMA page_count").fetchone()
        store._writer.execute(f"PRAGMA max_page_count = {pages + 3}")
        numbers = iter(range(5, 10_000))
        with pytest.raises(InputError, match="the disk is full, make room: all finished cells are kept"):
            store_all(store, numbers)
        added = next(numbers) - 1
        assert added > 5
        assert store.counts() == {"done": added}
    with made(path, range(added, added + 50)) as store:
        assert store.counts() == {"done": added + 50}
        (state,) = store._writer.execute("PRAGMA integrity_check").fetchone()
        assert state == "ok"


def refusal(path: Path, *, fresh: bool = False, sha: str = "study-1") -> str:
    with pytest.raises(InputError) as refused:
        made(path, fresh=fresh, sha=sha).close()
    assert "\n" not in str(refused.value)
    return str(refused.value).replace(str(path), "STORE")


def test_another_studys_store_is_refused_until_fresh_is_asked_for(path: Path) -> None:
    made(path, [1]).close()
    message = refusal(path, sha="study-2")
    assert message.startswith("STORE: is the store of another study (tiny), choose another one with --out")
    with made(path, fresh=True, sha="study-2") as store:
        assert store.counts() == {}


def test_cells_of_other_code_are_not_mixed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(path, [1]).close()
    monkeypatch.setattr(cells, "code_version", lambda: "9.0+abc")
    assert "and this is 9.0+abc, its figures may differ: --fresh" in refusal(path)
    with StoreReader(path) as reader:  # reading is no problem
        assert reader.counts() == {"done": 1}


@pytest.mark.parametrize(("schema", "age"), [(0, "older"), (store_file.SCHEMA + 1, "newer")])
def test_other_schemas_are_refused_with_a_way_forward(path: Path, schema: int, age: str) -> None:
    made(path, [1]).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {schema}")
    message = refusal(path)
    assert f"is a store of schema {schema}" in message
    assert f"use the {age} decodesim that wrote it, or sweep anew with --fresh" in message
    with pytest.raises(InputError, match="is a store of schema"):
        StoreReader(path)


@pytest.mark.parametrize("content", [b"scenario: x.yaml\n" * 50, b"\0" * 5000], ids=["text", "zeros"])
def test_other_files_are_refused_and_stay_as_they_are(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    for fresh in (False, True):
        assert refusal(path, fresh=fresh).startswith("STORE: is not a store of decodesim")
    with pytest.raises(InputError, match="is not a store of decodesim"):
        StoreReader(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("change", ["DELETE FROM about", "UPDATE about SET value = '{'"])
def test_a_store_that_has_lost_its_study_is_refused(path: Path, change: str) -> None:
    made(path, [1]).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(change)
        connection.commit()
    assert refusal(path).startswith("STORE: is damaged: it does not name its study")
    with pytest.raises(InputError, match="is damaged"):
        StoreReader(path)


def test_another_programs_database_is_refused_even_with_fresh(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE photos (name)")
    before = path.read_bytes()
    for fresh in (False, True):
        assert refusal(path, fresh=fresh).startswith("STORE: is not a store of decodesim")
    assert path.read_bytes() == before


def test_places_that_cannot_hold_a_store_are_refused(path: Path) -> None:
    assert refusal(path.parent).endswith("is a folder, the name of a file in it")
    assert "its folder is not there" in refusal(path.parent / "no" / "x.db")
    device = path.parent / "device"
    os.mkfifo(device)
    for fresh in (False, True):
        assert "is no plain file" in refusal(device, fresh=fresh)
    assert device.is_fifo()
    path.touch()  # a driver killed before its first page
    with made(path, [1]) as store:
        assert store.counts() == {"done": 1}


def test_a_second_writer_is_refused(path: Path) -> None:
    with made(path, [1]):
        assert refusal(path).startswith("STORE: another run is writing this store, wait for it")
    made(path).close()


MOUNTS = """\
/dev/vda / ext4 rw 0 0
filer:/home /home nfs4 rw 0 0
/dev/vdb /home/local\\040disk xfs rw 0 0
//nas/x /mnt/share cifs rw 0 0
"""


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("/home/me/study.db", "nfs4"),
        ("/home/local disk/study.db", None),
        ("/homework/study.db", None),
        ("/mnt/share/a/study.db", "cifs"),
        ("/tmp/study.db", None),
    ],
)
def test_network_file_systems_are_told_by_their_mount(
    place: str, kind: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mounts"
    monkeypatch.setattr(store_file, "MOUNTS", mounts)
    assert store_file.network_file_system(Path(place)) is None
    mounts.write_text(MOUNTS)
    assert store_file.network_file_system(Path(place)) == kind


def test_a_store_on_a_network_file_system_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(path, [1]).close()
    mounts = path.with_name("mounts")
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\nfiler:/x {path.parent} nfs4 rw 0 0\n")
    monkeypatch.setattr(store_file, "MOUNTS", mounts)
    message = refusal(path)
    assert message.startswith("STORE: is on a network file system (nfs4), which cannot hold a store")
    assert "choose a local disk" in message
    with StoreReader(path) as reader:  # one that is whole can be read there
        assert reader.counts() == {"done": 1}
