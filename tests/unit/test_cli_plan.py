"""`decodesim plan` as a stranger meets it: one page, one JSON document, one line for what is wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from experiments.cli import decodesim
from experiments.commands.plan import print_plan
from simulator.results.estimate import Estimate
from simulator.scenario import scenario_yaml
from tests.plans import tiny, tiny_plan


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    file = tmp_path / "tiny.yaml"
    file.write_text(scenario_yaml(tiny()), encoding="utf-8")
    return file


def run(*arguments: str | Path) -> Result:
    where = {"COLUMNS": "120"}
    return CliRunner().invoke(decodesim, ["plan", *(str(argument) for argument in arguments)], env=where)


def page(capsys: pytest.CaptureFixture[str], **changes: object) -> str:
    """What is printed for the tiny plan with figures changed."""
    print_plan({**tiny_plan().to_json(), **changes}, tiny())
    return capsys.readouterr().out


def test_the_json_is_the_plan_and_nothing_else_is_on_stdout(scenario: Path) -> None:
    result = run(scenario, "--json", "--slo", "tpot_p99=1.7ms", "--gpu-hour-cost", "3")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    expected = json.loads(json.dumps(tiny_plan().to_json()))
    assert document | {"provenance": None} == expected | {"provenance": None}


def test_the_page_says_the_verdict_first_and_both_ways_side_by_side(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = page(capsys)
    document = tiny_plan().to_json()
    first, second, *_ = text.splitlines()
    assert first == "smollm2-135m-instruct: 100 requests/s within TPOT P99 ≤ 1.70 ms"
    assert second.startswith(f"→ {document['verdict']}: ")
    rows = {line.strip().split("  ")[0]: line.split() for line in text.splitlines() if line.startswith(" ")}
    for name, key in (("replicas", "replicas"), ("GPUs", "gpus")):
        assert rows[name][-2:] == [str(document[key][way]) for way in ("plain", "speculative")]
    assert "cost per million output tokens" in rows
    assert "TPOT P99, ms" in rows
    assert "With speculation, at the peak: " in text
    assert "Crossover: " in text
    assert "Break-even α at this load: " in text
    assert "A drafter with α 0.60: K " in text


def test_a_schedule_is_printed_where_it_has_several_rows(capsys: pytest.CaptureFixture[str]) -> None:
    shorter = Estimate(1.04, (1.02, 1.06), (1.02, 1.06)).to_json()
    rows = [[1, 8, 3], [9, None, 1]]
    text = " ".join(page(capsys, schedule=rows, schedule_speedup=shorter).split())
    assert "K schedule by requests in the step: draft_length: [[1, 8, 3], [9, null, 1]]" in text
    assert "mean TPOT at the peak 4% shorter than with K" in text
    assert "K schedule" not in page(capsys, schedule=[[1, None, 3]])


def test_the_gains_name_gpus_latency_and_capacity(capsys: pytest.CaptureFixture[str]) -> None:
    gains = {
        "e2e_mean_speedup": {"value": 1.5625},
        **dict.fromkeys(("tpot_mean_speedup", "tpot_p99_speedup", "itl_mean_ratio", "itl_p99_ratio")),
        "ttft_p99_ratio": {"value": 1.02},
        "tokens_within_slo_ratio": {"value": 0.96},
    }
    for count, words in ((8, "the same GPUs"), (4, "-4 GPUs")):
        text = page(capsys, gains=gains, gpus={"plain": 8, "speculative": count})
        expected = (
            f"at the peak: {words}, TTFT P99 +2%, end to end mean -36%, tokens of a GPU within the SLO -4%"
        )
        assert expected in " ".join(text.split())
    assert "at the peak: " not in page(capsys, gains={})


def test_a_load_where_the_variants_tie_is_told_with_its_band(capsys: pytest.CaptureFixture[str]) -> None:
    load = Estimate(30.0, (28.0, 32.0), (20.0, 40.0)).to_json()
    crossing = {**(tiny_plan().to_json()["crossover"] or {}), "outcome": "pays-below", "per_replica": load}
    text = " ".join(page(capsys, crossover=crossing).split())  # lines wrap at the width of the terminal
    assert "Crossover: speculation pays up to 30 requests/s per replica (20.0 to 40.0) on TP 1" in text
    for outcome, message in (
        ("pays-at-all-loads", "none: speculation pays at every load up to"),
        ("pays-at-no-load", "none: speculation pays at no load"),
        ("unclear", "not clear"),
    ):
        none = {**crossing, "outcome": outcome, "per_replica": None}
        assert f"Crossover: {message}" in " ".join(page(capsys, crossover=none).split())


def test_a_way_that_does_not_keep_the_slo_has_no_figures(capsys: pytest.CaptureFixture[str]) -> None:
    document = replace(tiny_plan(), plain=None, crossover=None, better_drafter=None).to_json()
    text = page(capsys, **document)
    row = next(line for line in text.splitlines() if line.strip().startswith("replicas"))
    assert row.split()[1] == "–"
    assert "Crossover" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--slo", "ttft_p99=1"], "--slo: has no unit (got 'ttft_p99=1'), ms or s: 1ms, 1s"),
        (["--slo", "ttft_p99=1s,tpot=2ms"], "--slo: does not state for which requests tpot holds"),
        (["--rate", "0"], "--rate: is out of range (got 0.0), above 0, to 1,000,000"),
        (["--rate", "nan"], "--rate: is out of range (got nan)"),
        (["--gpu-hour-cost", "0"], "--gpu-hour-cost: is out of range (got 0.0), a number above 0"),
        (["--set", "speculation=[]"], "--set speculation: speculation: is empty"),
        (["--set", "slo=null"], "--set slo: slo: is missing, so nothing limits the load"),
        (
            ["--set", "workload.arrivals={kind: burst}"],
            "--set workload.arrivals: workload.arrivals: arrives all at once",
        ),
    ],
)
def test_bad_input_is_one_line(scenario: Path, arguments: list[str], message: str) -> None:
    result = run(scenario, *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith(message)


def test_an_option_that_is_no_number_is_refused(scenario: Path) -> None:
    assert "'many' is not a valid float" in run(scenario, "--rate", "many").stderr
