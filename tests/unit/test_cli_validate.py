"""`decodesim validate`: what it prints, its JSON, its page, and files that are damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from calibration.validation.quantities import QUANTITIES
from experiments.cli import decodesim
from tests.published_cases import PLAIN, SPEC, write_cases

KEYS = (
    *("case_id", "point", "arm", "source", "gpu", "engine", "method", "batch", "quantity", "published"),
    *("predicted", "ratio", "acceptance_from", "skipped"),
)
ERRORS = (
    *("n", "sources", "skipped", "median_abs_log_error", "p90_abs_log_error", "median_of_sources", "bias"),
    "sign_balanced_accuracy",
)
CURVE = {
    **SPEC,
    "case_id": "curve",
    "points": [
        {"concurrency": batch, "speedup": speedup, "acceptance_length": 1.9, "baseline": {"tpot_mean_ms": 8}}
        for batch, speedup in ((1, 1.4), (64, 1.1), (256, 0.9))
    ],
}
UNSEEN = {
    **PLAIN,
    "case_id": "unseen",
    "target": {"model": "Foo-9B", "params_b": 9.0, "arch": "dense"},
    "framework": {"name": "FooServe", "version": "3"},
    "points": [{"concurrency": 4, "baseline": {"output_tok_per_s": 500.0}}, {"concurrency": None}],
}
ELSEWHERE = {**PLAIN, "case_id": "elsewhere", "hardware": {"gpu": "TPU-v4", "count": 1}}


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Lines break as on a wide terminal; what is written by default stays out of the project."""
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.chdir(tmp_path)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(decodesim, ["validate", *map(str, arguments)])


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Two files of cases that nobody has seen."""
    return [
        write_cases(tmp_path, CURVE, ELSEWHERE, source="one"),
        write_cases(tmp_path, UNSEEN, source="two"),
    ]


def test_json_is_one_document_with_the_keys_of_the_contract(files: list[Path]) -> None:
    result = run(*files, "--json")
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    rows = document["cases"]
    assert len(rows) >= 8
    for row in rows:
        assert set(KEYS) <= set(row)
        assert (row["skipped"] is None) == (row["predicted"] is not None and row["predicted"] > 0)
        assert row["quantity"] in QUANTITIES
        if row["skipped"] is None:
            assert row["ratio"] == pytest.approx(row["predicted"] / row["published"])
    for parts in document["summary"].values():
        assert {"given", "joined", "prior", "all"} <= set(parts)
        assert all(set(ERRORS) <= set(errors) for errors in parts.values())
    speedups = document["summary"]["speedup"]
    assert (speedups["given"]["n"], speedups["prior"]["n"]) == (3, 0)
    assert (speedups["all"]["below"], speedups["all"]["above"]) == (1, 2)
    coverage = document["coverage"]
    assert (coverage["simulated"], coverage["of"], coverage["value"]) == (2, 2, 1.0)
    assert set(coverage["left_out"]) == {"elsewhere"}
    assert sum(coverage["reasons"].values()) == sum(row["skipped"] is not None for row in rows)
    assert not Path("validation.html").exists()


def test_a_curve_that_falls_through_one_has_its_crossing_and_shape(files: list[Path]) -> None:
    document = json.loads(run(files[0], "--json").stdout)
    [crossing] = [row for row in document["cases"] if row["quantity"] == "crossover_batch"]
    assert 64 < crossing["published"] < 256
    assert crossing["point"] == 2
    low, high = crossing["interval"]
    assert low <= crossing["predicted"] <= high
    shape = document["shape"]["cases"]
    assert [(row["quantity"], row["point"]) for row in shape] == [
        ("speedup", 1),
        ("speedup", 2),
        ("crossover_batch", 2),
    ]


def test_people_see_every_figure_of_their_own_file_and_the_summary_last(files: list[Path]) -> None:
    result = run(*files)
    assert result.exit_code == 0, result.output
    for part in (
        "Every figure",
        "curve",
        "× 1.40",
        "Errors by quantity",
        "closed form",
        "GPU not modelled",
    ):
        assert part in result.stdout, part
    assert "elsewhere: GPU not modelled" in result.stdout
    summary = "of 2 cases on H100, H200 and A100 whose source is good enough, 2 are simulated (100%)"
    assert result.stdout.index("Targets") < result.stdout.index(summary)


def test_the_page_holds_every_row_and_loads_nothing(files: list[Path]) -> None:
    assert run(*files, "--html", "page.html").exit_code == 0
    text = Path("page.html").read_text(encoding="utf-8")
    assert "one.json, two.json" in text
    for part in ("Predicted against published speedup", "Largest misses", "What was assumed", "unseen"):
        assert part in text
    assert "src=" not in text.split("<script>")[0]
    run(*files)
    assert Path("validation.html").read_bytes() == Path("page.html").read_bytes()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "broken.json:1:2: is not JSON"),
        ("[]", "a list `cases`"),
        ('{"cases": [{"case_id": "x", "points": 3}]}', "cases[0].points"),
    ],
)
def test_damaged_files_are_refused_with_their_place(content: str, message: str, tmp_path: Path) -> None:
    Path("broken.json").write_text(content, encoding="utf-8")
    result = run("broken.json")
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""


def test_a_file_that_is_not_there_and_a_page_that_cannot_be_written(files: list[Path]) -> None:
    assert run("nowhere.json").exit_code == 2
    result = run(files[1], "--html", Path("two.json") / "page.html")
    assert result.exit_code == 2
    assert "cannot be written" in result.stderr


def test_an_empty_file_of_cases_is_an_answer() -> None:
    Path("empty.json").write_text('{"cases": []}', encoding="utf-8")
    document = json.loads(run("empty.json", "--json").stdout)
    assert (document["cases"], document["summary"], document["coverage"]["value"]) == ([], {}, None)
    assert run("empty.json").exit_code == 0
