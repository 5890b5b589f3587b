"""`decodesim gate`: the decision against the band, the sample size that decides, exit codes and JUnit."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from experiments.cli import decodesim
from experiments.gate import FEWEST_ROUNDS, decide, rounds_needed
from experiments.junit import junit_xml
from simulator.breakeven.answer import BreakEvenRow
from simulator.results.estimate import Estimate
from tests.deployments import small_deployment
from tests.telemetry import vllm_files
from tests.telemetry.known_run import drawn

SCENARIO = small_deployment(draft_length=3)


def gate(folder: Path, alpha: float, *arguments: object, rounds: int = 3000) -> Result:
    """The command on a benchmark with independent drafts of this α."""
    scenario, bench = folder / "s.yaml", folder / "bench.json"
    scenario.write_text(SCENARIO, encoding="utf-8")
    bench.write_text(vllm_files.bench_json(drawn(3, alpha, rounds, requests=200)), encoding="utf-8")
    command = ["gate", str(bench), "--scenario", str(scenario), *map(str, arguments)]
    return CliRunner().invoke(decodesim, command, env={"COLUMNS": "100"})


def reading(mean: float, half: float | None, rounds: int | None = 1000, **more: Any) -> dict[str, Any]:
    """The part of a `read` document that decides."""
    interval = None if half is None else [mean - half, mean + half]
    length = {"value": mean, "ci95": interval}
    return {"mean_acceptance_length": length, "draft_rounds": rounds, "health": [], **more}


def row(low: float, high: float, **more: Any) -> BreakEvenRow:
    """A break-even with this band of the mean acceptance length."""
    middle = (low + high) / 2
    length = Estimate(middle, (middle, middle), (low, high))
    fields = {"verdict": "pays", "mean_acceptance_length": length} | more
    return BreakEvenRow({"concurrency": 8}, 3, 1.0, "throughput", **fields)


def test_only_intervals_apart_decide() -> None:
    band = row(1.8, 2.2)
    assert decide(band, reading(2.5, 0.2))[0] == "pass"
    assert decide(band, reading(1.5, 0.2))[0] == "fail"
    verdict, reason, samples = decide(band, reading(2.3, 0.2))
    assert verdict == "undecided"
    assert samples == pytest.approx(4001, abs=1)
    assert "draft rounds would decide, 4.0 times" in reason
    assert decide(band, reading(2.0, 0.01))[::2] == ("undecided", None)
    assert decide(band, reading(2.5, None))[::2] == ("undecided", None)
    assert decide(band, reading(2.5, 0.1, FEWEST_ROUNDS - 1))[::2] == ("undecided", FEWEST_ROUNDS)


def test_a_measurement_with_errors_does_not_pass_and_may_fail() -> None:
    wrong = [{"code": "acceptance-perfect", "severity": "error", "text": "every draft is accepted"}]
    verdict, reason, _ = decide(row(1.8, 2.2), reading(4.0, 0.0, health=wrong))
    assert verdict == "undecided"
    assert "every draft is accepted" in reason
    assert decide(row(1.8, 2.2), reading(1.0, 0.0, health=wrong))[0] == "fail"


def test_without_a_break_even_the_simulation_says_why() -> None:
    unreachable = row(1, 1, verdict="unreachable", mean_acceptance_length=None, note="the target is missed")
    assert decide(unreachable, reading(3.9, 0.01)) == ("fail", "the target is missed", None)
    for_nothing = row(1, 1, mean_acceptance_length=None, simulated_alpha=Estimate(0.0, (0, 0), (0, 0)))
    assert decide(for_nothing, reading(1.5, 0.1))[0] == "pass"
    saturated = row(1, 1, verdict="saturated", mean_acceptance_length=None, note="cannot serve this rate")
    assert decide(saturated, reading(2.0, 0.1))[::2] == ("undecided", None)


@given(st.floats(1.0, 4.0), st.floats(0.01, 0.5), st.floats(1.2, 3.0), st.integers(50, 10**6))
def test_the_rounds_asked_for_do_decide(mean: float, half: float, low: float, rounds: int) -> None:
    needed = (low, low + 0.1)
    samples = rounds_needed(mean, (mean - half, mean + half), needed, rounds)
    if samples is None:
        assert needed[0] <= mean <= needed[1]
        return
    narrower = half * math.sqrt(rounds / samples)
    assert mean - narrower > needed[1] - 1e-9 or mean + narrower < needed[0] + 1e-9


def test_a_lower_acceptance_turns_the_gate(tmp_path: Path) -> None:
    report = tmp_path / "gate.xml"
    passed = gate(tmp_path, 0.95, "--json", "--junit", report)
    assert passed.exit_code == 0, passed.output
    document = json.loads(passed.stdout)
    assert document["verdict"] == "pass"
    assert document.keys() >= {"verdict", "measured", "break_even", "samples_needed"}
    assert ElementTree.parse(report).getroot().get("failures") == "0"
    failed = gate(tmp_path, 0.1, "--junit", report)
    assert failed.exit_code == 1, failed.output
    assert "→ FAIL" in failed.stdout
    assert ElementTree.parse(report).getroot().find(".//failure") is not None


@pytest.mark.parametrize(
    ("verdict", "element"), [("pass", None), ("fail", "failure"), ("undecided", "error")]
)
def test_the_report_marks_what_has_not_passed(verdict: str, element: str | None) -> None:
    reason = 'a < b & "c" \x1b[0m'
    document = {"verdict": verdict, "reason": reason, "arm": "a<b", "measured": {}, "samples_needed": None}
    root = ElementTree.fromstring(junit_xml({**document, "break_even": {"load": {"concurrency": 8}}}))
    (case,) = root.iter("testcase")
    marks = [child for child in case if child.tag != "system-out"]
    assert [mark.tag for mark in marks] == ([element] if element else [])
    assert all("a < b & " in str(mark.get("message")) for mark in marks)


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    scenario = tmp_path / "s.yaml"
    scenario.write_text(SCENARIO, encoding="utf-8")
    plain = tmp_path / "plain.json"
    plain.write_text('{"duration": 1.0, "completed": 3, "total_output_tokens": 9}', encoding="utf-8")
    for arguments in (
        (plain, "--scenario", scenario),
        (tmp_path / "none", "--scenario", scenario),
        (plain, "--scenario", scenario, "--arm", "other"),
        (plain, "--scenario", tmp_path / "none.yaml"),
        (plain, "--scenario", scenario, "--junit", tmp_path / "none" / "gate.xml"),
    ):
        done = CliRunner().invoke(decodesim, ["gate", *map(str, arguments)])
        assert done.exit_code == 2, arguments
        assert len(done.stderr.splitlines()) == 1, done.stderr
