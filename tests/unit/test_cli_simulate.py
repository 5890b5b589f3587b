"""`decodesim simulate` and `breakeven`: what they print, write, and put into JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from experiments.cli import decodesim
from experiments.commands.breakeven import loads_of, print_break_even
from experiments.commands.output import estimate_text, progress_bar
from experiments.commands.simulate import notes_for_people
from simulator.errors import InputError
from simulator.results.result import read_results
from simulator.scenario import load_scenario
from tests.scenario_texts import WITH_VARIANT
from tests.shared_data import ROOT

EXAMPLE = ROOT / "examples" / "llama-3.3-70b-eagle3-h100.yaml"
CHANGES = ("workload.requests=120", "workload.arrivals.concurrency=8", "run.replications=2")
SMALL = tuple(part for change in CHANGES for part in ("--set", change))


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines break as on a wide terminal, whatever the tests run in."""
    monkeypatch.setenv("COLUMNS", "120")


def run(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(decodesim, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result


def test_simulate_prints_variants_ratios_verdict_and_what_it_rests_on() -> None:
    text = run("simulate", EXAMPLE, *SMALL).stdout
    for part in (
        "8 clients, 120 requests",
        "→ If α is 0.70: eagle3-k3: ",
        "throughput, tokens/s",
        "TPOT mean, ms",
        "ITL mean, ms",
        "mean acceptance length, tokens",
        "mean batch",
        "throughput speedup",
        "Rests on",
        "profile h100-sxm",
        "preset vllm-0.33",
    ):
        assert part in text, part


def test_simulate_json_is_one_document_with_the_keys_of_the_contract() -> None:
    result = run("simulate", EXAMPLE, *SMALL, "--json")
    document = json.loads(result.stdout)
    assert document["schema"] == "decodesim/simulate-1"
    assert list(document["arms"]) == ["plain", "eagle3-k3"]
    compared = document["comparison"]["eagle3-k3"]
    assert {
        "throughput_speedup",
        "tpot_mean_speedup",
        "tpot_p99_speedup",
        "itl_p99_ratio",
        "ttft_p99_ratio",
        "e2e_mean_speedup",
        "verdict",
    } <= set(compared)
    assert set(compared["throughput_speedup"]) == {"value", "ci95", "band"}
    provenance = document["provenance"]
    assert provenance["defaults_used"]["engine.host.step_s"] > 0
    assert provenance["scenario_sha256"] == load_scenario(EXAMPLE, CHANGES).scenario_sha256
    assert run("simulate", EXAMPLE, *SMALL, "--json").stdout == result.stdout


def test_a_price_of_the_gpu_hour_gives_the_cost_of_tokens() -> None:
    arguments = ("simulate", EXAMPLE, *SMALL, "--gpu-hour-cost", "2.5")
    arms = json.loads(run(*arguments, "--set", "hardware.replicas=2", "--json").stdout)["arms"]
    for variant in arms.values():
        throughput, cost = variant["throughput_tokens_per_s"], variant["cost_per_million_tokens"]
        assert cost["value"] == pytest.approx(8 * 2.5 / 3600 * 1e6 / throughput["value"])
        assert cost["band"][0] < cost["value"] < cost["band"][1]
    assert "cost per million output tokens" in run(*arguments).stdout
    assert "cost per million" not in run("simulate", EXAMPLE, *SMALL).stdout


def test_a_price_must_be_above_0() -> None:
    (line,) = bad("simulate", EXAMPLE, "--gpu-hour-cost", "-1")
    assert line == "--gpu-hour-cost: is out of range (got -1.0), a number above 0"


def test_simulate_writes_results_and_a_trace(tmp_path: Path) -> None:
    result = run(
        "simulate", EXAMPLE, *SMALL, "--out", tmp_path / "r", "--trace-out", tmp_path / "t.json", "--json"
    )
    (read,) = read_results(tmp_path / "r")
    assert read.to_json() == json.loads(result.stdout)
    assert json.loads((tmp_path / "t.json").read_text("utf-8"))["traceEvents"]
    assert "result.json" in result.stderr
    assert "ui.perfetto.dev" in result.stderr


def test_a_lookup_that_never_misses_is_noted() -> None:
    lookup = ["--set", "speculation=[{method: ngram, acceptance: {model: geometric, alpha: 0.5}}]"]
    text = run("simulate", EXAMPLE, *SMALL, *lookup).stdout
    assert "assumes that every prompt lookup finds a match" in text


def test_what_breakeven_refuses() -> None:
    assert loads_of("1,8", None) == [{"concurrency": 1}, {"concurrency": 8}]
    assert loads_of(None, "0.5") == [{"rate_per_s": 0.5}]
    assert loads_of(None, None) is None
    for concurrency, rate, message in (
        ("1,x", None, "'x' is not a number"),
        ("0", None, "1 to 1,000,000"),
        (None, "nan", "above 0"),
        ("1", "2", "one of the two"),
    ):
        with pytest.raises(InputError, match=message):
            loads_of(concurrency, rate)


def test_breakeven_json_has_the_keys_of_the_contract() -> None:
    asked = ("--concurrency", "4", "--draft-length", "2", "--target-speedup", "1,9")
    document = json.loads(run("breakeven", EXAMPLE, *SMALL, *asked, "--json").stdout)
    assert [(row["load"], row["draft_length"], row["target_speedup"]) for row in document["rows"]] == [
        ({"concurrency": 4}, 2, 1.0),
        ({"concurrency": 4}, 2, 9.0),
    ]
    assert {
        *("load", "concurrency", "draft_length", "target_speedup", "metric", "overhead"),
        *("linear_acceptance_rate", "geometric_alpha", "simulated_alpha", "mean_acceptance_length"),
        *("scenario_alpha", "verdict"),
    } <= set(document["rows"][0])
    assert document["rows"][0]["verdict"] == "pays"
    assert document["rows"][1]["verdict"] == "unreachable"
    assert set(document["best_draft_length"]) == set(document["cost_ratio"]) == {"4"}


def estimate(value: float) -> dict[str, Any]:
    return {"value": value, "ci95": [value - 0.01, value + 0.01], "band": [value - 0.05, value + 0.05]}


def test_breakeven_rows_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    row: dict[str, Any] = {
        "load": {"concurrency": 64},
        "concurrency": 64,
        "draft_length": 3,
        "target_speedup": 1.0,
        "metric": "throughput",
        "overhead": 0.44,
        "linear_acceptance_rate": 0.147,
        "geometric_alpha": 0.31,
        "simulated_alpha": estimate(0.33),
        "mean_acceptance_length": estimate(1.48),
        "scenario_alpha": 0.7,
        "verdict": "pays",
    }
    missing = {
        **row,
        "load": {"rate_per_s": 2.0},
        "simulated_alpha": None,
        "mean_acceptance_length": None,
        "overhead": None,
        "linear_acceptance_rate": None,
        "geometric_alpha": None,
        "verdict": "saturated",
    }
    document = {
        "rows": [row, missing],
        "best_draft_length": {"64": {"0.5": 2, "0.7": 3}},
        "cost_ratio": {"64": 0.147},
        "notes": ["a note"],
    }
    print_break_even(document, load_scenario(EXAMPLE))
    printed = capsys.readouterr().out
    for part in (
        "64 clients",
        "+44%",
        "0.15",
        "0.31",
        "0.33 [0.28, 0.38]",
        "pays",
        "2/s",
        "saturated",
        "0.147",
        "metric throughput, target 1×",
        "a note",
    ):
        assert part in printed, part


def test_notes_that_variants_share_are_said_once() -> None:
    notes = [
        "plain: few",
        "a: few",
        "about the profile",
        "plain: no drafts, so no acceptance: x",
        "a: alone: yes",
    ]
    assert notes_for_people({"arms": {"plain": {}, "a": {}}, "notes": notes}) == [
        "plain, a: few",
        "about the profile",
        "a: alone: yes",
    ]


def test_estimates_with_their_interval() -> None:
    assert estimate_text({"value": 0.01234, "ci95": [0.012, 0.0127]}, 1e3) == "12.3 ± 0.35"
    assert estimate_text({"value": 2095.0, "ci95": [2070.3, 2119.7]}) == "2,095 ± 25"
    assert estimate_text({"value": 5.0, "ci95": None}) == "5.00"
    assert estimate_text({"value": 5.0, "ci95": [5.0, 5.0]}) == "5.00"
    assert estimate_text(None) == "–"


def test_progress_is_silent_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("work") as progress:
        progress(1, 2, "half")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def bad(*arguments: str | Path) -> list[str]:
    """The lines on stderr of an answer to bad input, less the one that says that code is compiled."""
    result = CliRunner().invoke(decodesim, [str(argument) for argument in arguments])
    assert result.exit_code == 2, result.output
    return [line for line in result.stderr.splitlines() if not line.startswith("compiling")]


@pytest.mark.parametrize("command", ["simulate", "breakeven"])
def test_what_is_found_after_reading_is_said_at_its_line(tmp_path: Path, command: str) -> None:
    file = tmp_path / "s.yaml"
    text = "\n".join([*WITH_VARIANT.splitlines()[:-4], "  requests: 30", ""])
    assert "concurrency: 64" in text
    rare = text.replace("kind: closed, concurrency: 64", "kind: poisson, rate_per_s: 1.0e-9")
    file.write_text(rare, "utf-8")
    line = next(number for number, row in enumerate(rare.splitlines(), 1) if "arrivals" in row)
    (message,) = bad(command, file)
    assert message.startswith(f"{file}:{line}:13: workload.arrivals: the last of 30 arrivals comes after")
    (message,) = bad(command, file, "--set", "workload.arrivals.rate_per_s=2e-9")
    assert message.startswith(f"{file}:{line}:13: workload.arrivals: the last")
    if command == "breakeven":
        (message,) = bad(command, file, "--rate", "1e-9")
        assert message.startswith("workload.arrivals: the last")


def test_a_misfit_is_said_at_the_line_of_the_gpus(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(WITH_VARIANT, "utf-8")
    (message,) = bad("simulate", file, "--set", "engine.gpu_memory_utilization=0.01")
    assert message.startswith(f"{file}:5:20: hardware.tensor_parallel: plain: ")


def test_where_nothing_can_be_written_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr("simulator.simulation.simulate", never)
    file = tmp_path / "file"
    file.touch()
    (message,) = bad("simulate", EXAMPLE, "--out", file / "results")
    assert message.startswith(f"{file}/results: cannot be written")
    (message,) = bad("simulate", EXAMPLE, "--trace-out", tmp_path / "none" / "trace.json")
    assert message == f"{tmp_path}/none/trace.json: cannot be written: its folder does not exist"


def test_a_list_where_one_number_is_meant_is_refused() -> None:
    from click.testing import CliRunner

    from experiments.cli import decodesim

    for flags in (["--concurrency", "1,2"], ["--method", "ngram", "--draft-length", "3,5"]):
        document = CliRunner().invoke(decodesim, ["simulate", "--model", "llama-3.1-8b-instruct", *flags])
        assert document.exit_code == 2
        assert "is a list" in document.output
        assert len(document.output.splitlines()) == 1
