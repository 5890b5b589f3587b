"""A run that the simulator itself made is fitted with the host times that it had."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from experiments.cli import decodesim
from experiments.replay.baseline import Baseline, baselines
from experiments.replay.fit import replay
from simulator.errors import InputError
from simulator.scenario import Scenario, load_scenario, scenario_yaml
from simulator.simulation import simulate
from tests.plans import tiny
from tests.shared_data import SHARED, needs_shared

REAL = SHARED / "formats" / "real-vllm-0.32"
TRUE = {"step_s": 0.004, "per_sequence_s": 5e-05, "request_latency_s": 0.02}


def deployment() -> Scenario:
    return tiny(
        {"workload.arrivals": {"kind": "closed", "concurrency": 8}, "engine.preset": "vllm-0.14-sync"}
    )


def made_run(scenario: Scenario, clients: int) -> Baseline:
    """A baseline with the figures of a simulated run."""
    load = {"concurrency": clients, "prompt_tokens_mean": 50.0, "output_tokens_mean": 40.0}
    empty: dict[str, Any] = {"load": load, "mean_acceptance_length": None}
    values = simulate(Baseline("a", empty, clients).scenario(scenario)).variants["plain"].values()
    reading = empty | {
        name: {part: values.get(f"{name}.{part}") for part in ("mean", "p99")}
        for name in ("tpot_s", "itl_s", "ttft_s", "e2e_s")
    }
    reading["throughput_tokens_per_s"] = values["throughput_tokens_per_s"]
    return Baseline(f"c{clients}", reading, clients)


def test_the_host_times_of_a_simulated_run_are_found_again() -> None:
    host = deployment().engine.host.model_copy(update=TRUE)
    engine = deployment().engine.model_copy(update={"host": host})
    truth = deployment().model_copy(update={"engine": engine})
    answer = replay(deployment(), [made_run(truth, clients) for clients in (1, 8)])
    assert answer.fitted["engine.host.step_s"] == pytest.approx(TRUE["step_s"], rel=0.03)
    assert answer.fitted["engine.host.request_latency_s"] == pytest.approx(0.02, rel=0.1)
    errors = {m: row["mean_abs_log_error"] for m, row in answer.to_json()["residual"].items()}
    assert errors["tpot_mean"] < 0.01
    assert errors["throughput"] < 0.05
    assert errors.keys() >= {"tpot_mean", "ttft_mean", "e2e_mean", "throughput"}


def test_a_device_faster_than_its_profile_is_noted() -> None:
    run = made_run(deployment(), 4)
    fast = Baseline("fast", {**run.reading, "tpot_s": {"mean": 1e-6}}, 4)
    answer = replay(deployment(), [fast])
    assert answer.fitted["engine.host.step_s"] == 0.0
    assert "slower device" in answer.notes[0]


@needs_shared
def test_the_command_writes_a_scenario_for_what_ifs(tmp_path: Path) -> None:
    file, output = tmp_path / "small.yaml", tmp_path / "fitted.yaml"
    file.write_text(scenario_yaml(deployment()), encoding="utf-8")
    bench = [str(REAL / f"plain-c{clients}.bench.json") for clients in (1, 16)]
    done = CliRunner().invoke(
        decodesim, ["replay", *bench, "--scenario", str(file), "-o", str(output), "--json"]
    )
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["residual"]["tpot_mean"]["mean_abs_log_error"] < 0.15
    assert len(document["runs"]) == 2
    fitted = load_scenario(output)
    assert fitted.engine.host.step_s == pytest.approx(document["fitted"]["engine.host.step_s"])


@needs_shared
def test_a_speculative_run_is_no_baseline() -> None:
    with pytest.raises(InputError, match="of a run with speculation"):
        baselines([str(REAL / "ngram-c16.bench.json")])


@needs_shared
def test_a_log_without_latencies_is_no_baseline() -> None:
    with pytest.raises(InputError, match=r"has no mean TPOT|does not tell"):
        baselines([str(REAL / "plain.server.log")])
