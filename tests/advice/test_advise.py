"""From files and a launch line to a verdict: the real server's files, and what is wrong or missing."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from experiments.advice.runs import run_name
from experiments.advice.traffic import measured_clients, traffic_overrides
from experiments.cli import decodesim
from tests.shared_data import SHARED, needs_shared

REAL = SHARED / "formats" / "real-vllm-0.32"
LINE = (
    "vllm serve HuggingFaceTB/SmolLM2-135M-Instruct --speculative-config "
    '\'{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}\''
)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(decodesim, ["advise", *map(str, arguments)])


def answer(*arguments: str | Path) -> dict[str, Any]:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def files(run_of: str) -> list[Path]:
    return [*sorted(REAL.glob(f"{run_of}.*.metrics.txt")), REAL / f"{run_of}.bench.json"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("x/a.before.metrics.txt", "x/a.after.metrics.txt", "x/a.bench.json"), {"x/a"}),
        (("before.txt", "after.txt"), {"run"}),
        (("run_1.txt", "run_2.txt"), {"run"}),
        (("plain-c16.bench.json", "spec-c16.bench.json"), {"plain-c16", "spec-c16"}),
        (("server.log",), {"server"}),
    ],
)
def test_files_of_one_run_belong_together(names: tuple[str, ...], expected: set[str]) -> None:
    assert {run_name(name) for name in names} == expected


def test_traffic_comes_from_what_the_files_show() -> None:
    reading = {"load": {"mean_batch": 13.6, "prompt_tokens_mean": 100.0, "output_tokens_mean": 1.0}}
    assert measured_clients(reading) == 14
    assert traffic_overrides(reading) == (
        "workload.prompt_tokens={kind: uniform, low: 50, high: 150}",
        "workload.output_tokens={kind: uniform, low: 1, high: 2}",
    )
    assert measured_clients({"load": {"running_requests": 0.0}}) is None


@needs_shared
def test_the_whole_path_on_files_of_a_real_server(tmp_path: Path) -> None:
    page = tmp_path / "advice.html"
    both = (*files("plain-c16"), *files("ngram-c16"))
    document = answer(*both, "--from-vllm", LINE, "--html", page)
    assert document["verdict"] == "ENABLE"
    assert "but worse: tpot mean" in document["reason"]
    assert document["measured"]["throughput"]["value"] == pytest.approx(395.26 / 377.35, rel=1e-3)
    assert document["scenario"]["workload"]["arrivals"]["concurrency"] == 16
    assert document["expected"]["ngram-k3"]["acceptance_basis"] == "measured"
    assert "step-growth" in [cause["code"] for cause in document["causes"]]
    assert "ngram-synchronous" in [cause["code"] for cause in document["causes"]]
    assert document["engine"]["vllm"].startswith("vllm serve HuggingFaceTB/SmolLM2-135M-Instruct")
    text = page.read_text("utf-8")
    assert "What was measured" in text
    assert "ENABLE" in text


@needs_shared
def test_a_measured_loss_leaves_speculation_off() -> None:
    draft = LINE.replace('"ngram"', '"draft_model", "model": "HuggingFaceTB/SmolLM2-135M-Instruct"')
    document = answer(
        *files("plain-c16"),
        *files("draft-24-c16"),
        "--from-vllm",
        draft.replace(', "prompt_lookup_max": 4', ""),
    )
    assert document["verdict"] == "DO NOT"
    assert "--speculative-config" not in document["engine"]["vllm"]


@needs_shared
def test_files_alone_compare_what_was_measured() -> None:
    document = answer(REAL / "plain-c16.bench.json", REAL / "draft-24-c16.bench.json")
    assert document["verdict"] == "DO NOT"
    assert document["scenario"] is None
    assert document["next"]


def test_a_launch_line_alone_is_measured_first_and_its_next_step_runs(tmp_path: Path) -> None:
    document = answer("--from-vllm", LINE, "--concurrency", "8")
    assert document["verdict"] == "MEASURE FIRST"
    first = shlex.split(document["next"][0])
    assert first[:2] == ["decodesim", "init"]
    output = tmp_path / "scenario.yaml"
    done = CliRunner().invoke(decodesim, [*first[1:-1], str(output)])
    assert done.exit_code == 0, done.output
    assert "ngram" in output.read_text("utf-8")


def test_a_plain_launch_is_told_what_to_try() -> None:
    document = answer("--from-vllm", "vllm serve HuggingFaceTB/SmolLM2-135M-Instruct")
    assert document["verdict"] == "MEASURE FIRST"
    assert "decodesim methods" in document["next"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "nothing to advise on"),
        (("no-such-file",), "no-such-file"),
        (("--from-vllm", LINE, "--scenario", "x.yaml"), "cannot be combined"),
        (("--model", "no-such-model"), "unknown model"),
    ],
)
def test_what_is_wrong_is_one_line(arguments: tuple[str, ...], message: str) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert message in done.output
    assert "Traceback" not in done.output
