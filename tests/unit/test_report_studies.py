"""Results and studies that reports are made of: found, kept, used again; the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from click.testing import Result as Answer

import dashboards.study
from dashboards.report import write_report
from dashboards.study import STUDY_FILE, LoadStudy, load_study_of
from dashboards.subject import reported_result, reported_results_at
from experiments.cli import decodesim
from simulator.errors import InputError
from simulator.scenario import load_scenario
from simulator.simulation import simulate
from tests.subjects import (
    EXAMPLE,
    SMALL,
    VARIANT,
    small_result,
    small_subject,
    without_scripts,
)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often a study was simulated; the simulation itself is left out."""
    calls: list[int] = []
    study = small_subject().study

    def simulate_study(*_: Any) -> LoadStudy:
        calls.append(1)
        return study

    monkeypatch.setattr(dashboards.study, "_simulate", simulate_study)
    return calls


def test_a_study_is_kept_and_used_again(tmp_path: Path, counted: list[int]) -> None:
    scenario = load_scenario(EXAMPLE, SMALL)
    first = load_study_of(small_result(), scenario, tmp_path)
    second = load_study_of(small_result(), scenario, tmp_path)
    assert first == second
    assert len(counted) == 1
    assert [file.name for file in tmp_path.iterdir()] == [STUDY_FILE]


def test_a_study_of_another_result_or_a_damaged_one_is_not_used(tmp_path: Path, counted: list[int]) -> None:
    scenario = load_scenario(EXAMPLE, SMALL)
    load_study_of(small_result(), scenario, tmp_path)
    load_study_of(replace(small_result(), notes=("another",)), scenario, tmp_path)
    assert len(counted) == 2
    for damaged in ("{", "[]", '{"schema": "decodesim/study-9"}', ""):
        (tmp_path / STUDY_FILE).write_text(damaged)
        load_study_of(small_result(), scenario, tmp_path)
    assert len(counted) == 6


def test_a_study_that_cannot_be_kept_is_made_all_the_same(tmp_path: Path, counted: list[int]) -> None:
    (tmp_path / "file").write_text("")
    assert (
        load_study_of(small_result(), load_scenario(EXAMPLE, SMALL), tmp_path / "file")
        == small_subject().study
    )
    assert len(counted) == 1


def test_progress_counts_to_its_total() -> None:
    calls: list[tuple[int, int]] = []
    scenario = load_scenario(EXAMPLE, [*SMALL, "engine.max_num_seqs=1", "workload.arrivals.concurrency=1"])
    result = load_study_of(small_result(), scenario, None, lambda done, total, _: calls.append((done, total)))
    assert calls == [(1, 2), (2, 2)]
    assert result.speedup[VARIANT].concurrency == (1,)
    assert result.notes == ()


def test_results_are_found_as_files_folders_and_folders_of_folders(
    tmp_path: Path, counted: list[int]
) -> None:
    small_result().write(tmp_path / "b")
    small_result().write(tmp_path / "a")
    assert len(reported_results_at(tmp_path / "a")) == 1
    assert len(reported_results_at(tmp_path / "a" / "result.json")) == 1
    assert len(counted) == 1
    assert len(reported_results_at(tmp_path)) == 2
    assert len(counted) == 2
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no result"):
        reported_results_at(tmp_path / "empty")


def test_a_result_file_without_its_requests_says_so(tmp_path: Path, counted: list[int]) -> None:
    small_result().write(tmp_path)
    for file in tmp_path.glob("*.npz"):
        file.unlink()
    (subject,) = reported_results_at(tmp_path)
    shown = without_scripts(write_report([subject], tmp_path / "report.html").read_text("utf-8"))
    assert "The result has no files of its requests" in shown


def test_files_of_the_scenario_are_looked_for_here_and_beside_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: list[int]
) -> None:
    (tmp_path / "trace.txt").write_text("4,3,2,1,3,3,2\n")
    text = EXAMPLE.read_text("utf-8").replace(
        "{model: geometric, alpha: 0.7}", "{model: trace, file: trace.txt}"
    )
    (tmp_path / "scenario.yaml").write_text(text)
    assert "trace.txt" in text
    result = simulate(load_scenario(tmp_path / "scenario.yaml", SMALL))
    result.write(tmp_path / "out")
    (elsewhere,) = reported_results_at(tmp_path / "out")
    assert elsewhere.scenario is None
    assert "run this where its files lie" in str(elsewhere.scenario_problem)
    shown = without_scripts(write_report([elsewhere], tmp_path / "report.html").read_text("utf-8"))
    assert "run this where its files lie" in shown
    monkeypatch.chdir(tmp_path)
    (here,) = reported_results_at(Path("out"))
    assert here.scenario is not None
    (tmp_path / "trace.txt").rename(tmp_path / "out" / "trace.txt")
    (subject,) = reported_results_at(Path("out"))
    assert subject.scenario is not None


def test_a_plain_result_is_studied_on_the_way(tmp_path: Path, counted: list[int]) -> None:
    write_report([small_result()], tmp_path / "report.html")
    assert len(counted) == 1
    assert reported_result(small_result()).study == small_subject().study


def run(*arguments: str | Path) -> Answer:
    return CliRunner().invoke(decodesim, ["report", *map(str, arguments)])


def test_the_command_writes_one_page_and_says_so(tmp_path: Path, counted: list[int]) -> None:
    small_result().write(tmp_path / "result")
    answer = run(tmp_path / "result", "-o", tmp_path / "page.html", "--json")
    assert answer.exit_code == 0, answer.output
    document = json.loads(answer.stdout)
    assert document["results"] == 1
    assert document["bytes"] == (tmp_path / "page.html").stat().st_size
    assert "opens offline" in answer.stderr


def test_the_command_refuses_what_is_no_result(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text("{}")
    for path in (tmp_path, tmp_path / "result.json", tmp_path / "absent"):
        answer = run(path, "-o", tmp_path / "page.html")
        assert answer.exit_code == 2
        assert answer.stdout == ""
        assert "Traceback" not in answer.stderr
    assert not (tmp_path / "page.html").exists()


def test_pictures_need_a_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: list[int]) -> None:
    monkeypatch.delenv("CHROMIUM_PATH", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    small_result().write(tmp_path / "result")
    answer = run(tmp_path / "result", "-o", tmp_path / "page.html", "--png", tmp_path / "png")
    assert answer.exit_code == 2
    assert "no Chromium: set CHROMIUM_PATH" in answer.stderr
