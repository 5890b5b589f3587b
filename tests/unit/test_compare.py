"""`decodesim compare`: causes multiply to the measured speedup, and a longer tail is explained."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from experiments.cli import decodesim
from experiments.compare.compare import compare
from experiments.compare.measured import MeasuredPair
from tests.deployments import small_deployment
from tests.shared_data import SHARED, needs_shared
from tests.telemetry import vllm_files
from tests.telemetry.known_run import drawn

LATENCIES = ("ttft_s", "tpot_s", "itl_s", "itl_token_s", "e2e_s")
REAL = SHARED / "formats" / "real-vllm-0.32"
SCENARIO = small_deployment(draft_length=4)


def reading(acceptance: tuple[float, float] | None = None, **figures: Any) -> dict[str, Any]:
    """A document of `read`: mean acceptance length and coverage, latencies as `tpot_s={…}`, `load={…}`."""
    length, coverage = acceptance or (None, None)
    document: dict[str, Any] = {name: figures.get(name, {}) for name in LATENCIES}
    return document | {
        "mean_acceptance_length": None if length is None else {"value": length},
        "draft_coverage": coverage,
        "tokens_per_step": None if length is None or coverage is None else 1 + (length - 1) * coverage,
        "throughput_tokens_per_s": figures.get("throughput"),
        "load": figures.get("load", {}),
    }


def cli(*arguments: object) -> Result:
    """The command in this process."""
    return CliRunner().invoke(decodesim, ["compare", *map(str, arguments)], env={"COLUMNS": "100"})


@pytest.mark.parametrize("coverage", [1.0, 0.3])
def test_acceptance_coverage_and_steps_multiply_to_the_speedup(coverage: float) -> None:
    base = reading(tpot_s={"mean": 0.010})
    spec = reading((2.5, coverage), tpot_s={"mean": 0.008})
    answer = compare(base, spec)
    effects = {cause.code: cause.effect for cause in answer.causes}
    assert effects.keys() == {"acceptance", "step-growth"} | ({"coverage"} if coverage < 1 else set())
    assert math.prod(effect or math.nan for effect in effects.values()) == pytest.approx(1.25)
    assert answer.to_json()["speedup"]["tpot_mean"]["value"] == pytest.approx(1.25)
    strengths = [abs(math.log(cause.effect)) for cause in answer.causes if cause.effect]
    assert strengths == sorted(strengths, reverse=True)


def test_gaps_by_chunk_become_gaps_by_token() -> None:
    base = reading(itl_s={"mean": 0.010})
    spec = reading((2.0, 1.0), itl_s={"mean": 0.012})
    pair = MeasuredPair(base, spec)
    assert pair.latency("itl_s", "mean") == (0.010, 0.012)
    assert pair.latency("itl_token_s", "mean") == (0.010, pytest.approx(0.006))
    stated = spec | {"itl_token_s": {"mean": 0.0061}}
    assert MeasuredPair(base, stated).latency("itl_token_s", "mean") == (0.010, 0.0061)


def test_a_lower_mean_and_a_higher_p99_are_explained() -> None:
    base = reading(
        tpot_s={"mean": 0.010, "p50": 0.010, "p99": 0.012}, itl_s={"mean": 0.01, "p50": 0.01, "p99": 0.014}
    )
    lower = reading(
        (2.0, 1.0),
        tpot_s={"mean": 0.0075, "p50": 0.0074, "p99": 0.0138},
        itl_s={"mean": 0.015, "p50": 0.015, "p99": 0.0161},
    )
    answer = compare(base, lower).to_json()
    assert answer["trap"] == ["tpot_s", "itl_s"]
    assert [cause["code"] for cause in answer["tail"]] == ["bunches", "requests-without-gain"]
    better = reading((2.0, 1.0), tpot_s={"mean": 0.0075, "p50": 0.0074, "p99": 0.009})
    assert compare(base, better).to_json()["trap"] == []


@pytest.mark.parametrize(
    ("base_load", "spec_load", "code"),
    [
        ({}, {"preemptions": 5.0}, "kv-loss"),
        ({"waiting_requests": 0.0}, {"waiting_requests": 9.0}, "queueing"),
        ({"concurrency": 8.0}, {"concurrency": 16.0}, "load-differs"),
        ({"output_tokens_mean": 100.0}, {"output_tokens_mean": 200.0}, "load-differs"),
    ],
)
def test_what_the_load_tells(base_load: dict[str, float], spec_load: dict[str, float], code: str) -> None:
    before, after = reading(load=base_load), reading((2.0, 1.0), load=spec_load)
    assert code in {cause.code for cause in compare(before, after).causes}
    same = reading((2.0, 1.0), load=base_load)
    assert code not in {cause.code for cause in compare(before, same).causes}


def test_with_a_scenario_the_simulator_stands_next_to_the_measurement(tmp_path: Path) -> None:
    scenario, base, spec = (tmp_path / name for name in ("s.yaml", "base.json", "spec.json"))
    scenario.write_text(SCENARIO, encoding="utf-8")
    run = json.loads(vllm_files.bench_json(drawn(4, 0.8, 2000, requests=200)))
    run |= {"mean_tpot_ms": 4.0, "median_tpot_ms": 3.8, "p99_tpot_ms": 9.0}
    spec.write_text(json.dumps(run), encoding="utf-8")
    plain = {key: value for key, value in run.items() if "spec_decode" not in key}
    plain |= {"mean_tpot_ms": 6.0, "median_tpot_ms": 6.0, "p99_tpot_ms": 7.0}
    base.write_text(json.dumps(plain), encoding="utf-8")
    done = cli(base, spec, "--scenario", scenario, "--json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document.keys() >= {"speedup", "causes", "expected", "notes"}
    assert document["expected"]["tpot_mean_speedup"]["value"] > 0
    tail = {cause["code"]: cause for cause in document["tail"]}
    assert tail["requests-without-gain"]["settings"] == ["speculation.small.draft_length=2"]
    assert tail["requests-without-gain"]["predicted"]["tpot_s.p99"] > 0
    (steps,) = [cause for cause in document["causes"] if cause["code"] == "step-growth"]
    assert "simulated: " in steps["evidence"]


@needs_shared
def test_a_real_run_that_got_slower_has_its_causes() -> None:
    done = cli(REAL / "plain-c16.bench.json", REAL / "ngram-c16.bench.json")
    assert done.exit_code == 0, done.output
    text = " ".join(done.stdout.split())
    assert "TPOT mean 30.3 34.2 0.89 ×" in text
    assert "32% of the decode steps had a draft" in text
    assert "[client-bursts]" in text


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    base = tmp_path / "base.json"
    base.write_text('{"duration": 1.0, "completed": 3, "total_output_tokens": 9}', encoding="utf-8")
    for arguments in ((base, tmp_path / "none"), (base, base, "--scenario", tmp_path / "none"), (base, ",")):
        done = cli(*arguments)
        assert done.exit_code == 2, done.output
        assert len(done.stderr.splitlines()) == 1, done.stderr
