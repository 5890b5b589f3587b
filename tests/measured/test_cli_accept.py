"""`decodesim accept`: its JSON, its file in a scenario, bad input in one line."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from experiments.cli import decodesim
from simulator.errors import InputError
from simulator.scenario import load_scenario
from tests.lm import save_tiny

PROMPTS = "\n".join(
    json.dumps({"prompt": f"{word} {number} times", "domain": domain})
    for domain, word in (("tales", "once upon a time"), ("lists", "one, two, three"))
    for number in range(20)
)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny"), "llama")


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    path.write_text(PROMPTS, encoding="utf-8")
    return path


def accept(target: Path, prompts: Path, draft: str, *arguments: str) -> Result:
    arguments_given = [
        "accept",
        "--target",
        str(target),
        "--draft",
        draft,
        "--prompts",
        str(prompts),
        *arguments,
    ]
    return CliRunner().invoke(decodesim, arguments_given)


@pytest.fixture(scope="module")
def measured(target: Path, prompts: Path) -> tuple[dict[str, Any], Path]:
    file = prompts.parent / "acceptance.json"
    settings = ("--temperature", "0,1", "--draft-length", "1..3", "--draft-sampling", "greedy,sampled")
    result = accept(target, prompts, "layer-skip", *settings, "--steps", "24", "-o", str(file), "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout), file


def test_the_document_has_its_keys(measured: tuple[dict[str, Any], Path]) -> None:
    document, file = measured
    assert json.loads(file.read_text()) == document
    assert {"target", "draft", "rows", "fits", "provenance", "notes"} <= set(document)
    assert len(document["rows"]) == 2 * 3 * 3  # domains, lengths, ways of temperature and sampling
    for row in document["rows"]:
        assert {"temperature", "domain", "draft_length", "draft_sampling", "acceptance_rate_at"} <= set(row)
        assert row["verify_steps"] >= 24
        for key in ("mean_acceptance_length", "alpha_from_distributions", "alpha_from_counts"):
            assert set(row[key]) == {"value", "ci95", "band"}
        assert len(row["acceptance_rate_at"]) == row["draft_length"] == len(row["conditional_acceptance"])
        expected = 1 + sum(estimate["value"] for estimate in row["acceptance_rate_at"])
        assert row["mean_acceptance_length"]["value"] == pytest.approx(expected, abs=1e-5)
    fits = {
        (fit_row["domain"], fit_row["temperature"], fit_row["draft_sampling"]) for fit_row in document["fits"]
    }
    assert len(fits) == 6
    assert {fit_row["model"] for fit_row in document["fits"]} == {
        "geometric",
        "positional",
        "decay",
        "hierarchical",
    }
    for fit in document["fits"]:
        assert fit["goodness"]["bic_above_best"] >= 0
        chances = [fit["goodness"][key] for key in ("p_counts", "p_spread")]
        assert all(0.0 <= chance <= 1.0 for chance in chances)
        assert fit["describes"] == (min(chances) >= 0.005)


def test_a_scenario_takes_the_file(measured: tuple[dict[str, Any], Path]) -> None:
    document, file = measured
    text = (
        "target: {model: llama-3.1-8b-instruct}\nhardware: {gpu: h100-sxm}\n"
        "workload: {arrivals: {kind: closed, concurrency: 4}}\n"
        "speculation:\n  - {name: s, method: eagle3, draft: eagle3-llama-3.1-8b, draft_length: 3, "
        "acceptance: {file: acceptance.json, temperature: 1, domain: tales, draft_sampling: sampled}}\n"
    )
    path = file.parent / "scenario.yaml"
    path.write_text(text, encoding="utf-8")
    row = next(
        row
        for row in document["rows"]
        if (row["temperature"], row["domain"], row["draft_sampling"], row["draft_length"])
        == (1, "tales", "sampled", 3)
    )
    acceptance = load_scenario(path).speculation[0].acceptance
    measured_rates = [estimate["value"] for estimate in row["conditional_acceptance"] if estimate is not None]
    assert list(acceptance.conditional) == pytest.approx(measured_rates)


def test_the_two_lines_of_the_front_page(target: Path, tmp_path: Path) -> None:
    """Builtin prompts have two domains; the scenario says which."""
    file = tmp_path / "acceptance.json"
    arguments_given = [
        "accept",
        "--target",
        str(target),
        "--draft",
        "layer-skip",
        "--steps",
        "12",
        "-o",
        str(file),
    ]
    result = CliRunner().invoke(decodesim, arguments_given)
    assert result.exit_code == 0, result.output
    text = (
        "target: {model: llama-3.1-8b-instruct}\nhardware: {gpu: h100-sxm}\n"
        "workload: {arrivals: {kind: closed, concurrency: 4}}\n"
        "speculation:\n  - {name: s, method: eagle3, draft: eagle3-llama-3.1-8b, draft_length: 4, "
        "acceptance: FILE}\n"
    )
    path = tmp_path / "scenario.yaml"
    path.write_text(text.replace("FILE", "{file: acceptance.json, domain: code}"), encoding="utf-8")
    assert load_scenario(path).speculation[0].acceptance.model == "positional"
    path.write_text(text.replace("FILE", "{file: acceptance.json}"), encoding="utf-8")
    with pytest.raises(InputError, match=r"choose with .*domain code.*domain prose"):
        load_scenario(path)


def test_look_ups_have_one_way_of_sampling(target: Path, prompts: Path) -> None:
    settings = ("--temperature", "1", "--draft-sampling", "greedy,sampled", "--steps", "5", "--json")
    rows = json.loads(accept(target, prompts, "ngram", *settings).stdout)["rows"]
    result = [(row["domain"], row["draft_sampling"]) for row in rows]
    assert result == [("tales", "greedy"), ("lists", "greedy")]
    assert all((row["draft_coverage"] < 1.0) == ("gated" in row) for row in rows)


def test_the_table_says_when_prompts_ran_out(target: Path, tmp_path: Path) -> None:
    prompts = tmp_path / "few.jsonl"
    prompts.write_text("\n".join(PROMPTS.splitlines()[:4]), encoding="utf-8")
    result = accept(target, prompts, "suffix", "--steps", "100000")
    assert result.exit_code == 0
    assert "tokens/round" in result.output
    assert "ran out of prompts before 100000 steps" in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--draft", "nope"], "draft: is not a drafter (got 'nope'), layer-skip"),
        (["--draft", "ngram", "--temperature", "-1"], "--temperature: is out of range"),
        (["--draft", "ngram", "--temperature", "hot"], "'hot' is not a number"),
        (["--draft", "ngram", "--draft-length", "3..1"], "--draft-length: is not a range"),
        (["--draft", "ngram", "--draft-length", "0..2"], "--draft-length: is out of range (got 0)"),
        (["--draft", "ngram", "--draft-length", "99"], "1 to 35"),
        (["--draft", "ngram", "--draft-sampling", "best"], "greedy or sampled"),
        (["--draft", "ngram", "--prompts", "nowhere.txt"], "nowhere.txt: cannot be read"),
        (["--draft", "ngram", "-o", "nowhere/a.json"], "the folder nowhere is not there"),
    ],
)
def test_bad_input_is_one_line(target: Path, arguments: list[str], line: str) -> None:
    result = CliRunner().invoke(decodesim, ["accept", "--target", str(target), *arguments])
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert line in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""
