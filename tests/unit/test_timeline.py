"""The Chrome trace of the steps."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from simulator.errors import InputError
from simulator.results.timeline import STAGES, chrome_trace, write_chrome_trace


class Row(NamedTuple):
    """A stage as the pipeline notes it."""

    replica: int
    name: str
    start_ns: int
    end_ns: int
    step: int = 0
    requests: int = 64
    tokens: int = 256


ROWS = [
    Row(0, "host", 0, 350_000),
    Row(0, "verify", 350_000, 12_350_000),
    Row(0, "accept", 12_350_000, 12_350_000),
    Row(1, "draft", 12_350_001, 14_000_000),
]


def test_every_stage_has_its_row_and_times_are_microseconds() -> None:
    events = chrome_trace(ROWS)["traceEvents"]
    stages = [event for event in events if event["ph"] == "X"]
    assert [event["name"] for event in stages] == ["host", "verify", "draft"], (
        "stages of no length are left out"
    )
    assert stages[1]["ts"] == 350
    assert stages[1]["dur"] == 12_000
    assert stages[1]["args"] == {"step": 0, "requests": 64, "tokens": 256}
    assert stages[2]["ts"] == 12_350.001
    assert len({event["tid"] for event in stages}) == 3
    names = {(e["pid"], e["args"]["name"]) for e in events if e["name"] == "thread_name"}
    assert names == {(replica, stage) for replica in (0, 1) for stage in STAGES}


def test_processes_can_be_named_after_their_variant() -> None:
    events = chrome_trace(ROWS, "a case", {0: "plain", 1: "eagle3-k3"})["traceEvents"]
    named = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert named == ["a case: plain", "a case: eagle3-k3"]


def test_the_file_is_json_and_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    first = write_chrome_trace(tmp_path / "a.json", ROWS).read_bytes()
    assert first == write_chrome_trace(tmp_path / "b.json", iter(ROWS)).read_bytes()
    assert json.loads(first) == chrome_trace(ROWS)


def test_unknown_stage_and_unwritable_file_are_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown stage 'sleep'; known: host, verify"):
        chrome_trace([Row(0, "sleep", 0, 1)])
    with pytest.raises(InputError, match="cannot be written"):
        write_chrome_trace(tmp_path / "missing" / "a.json", ROWS)
