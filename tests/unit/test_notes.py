"""What a result says about itself when it cannot give what was asked for."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.simulation import simulate
from tests.runs import small_scenario


def notes_of(changes: dict[str, Any]) -> list[str]:
    few = {"workload.requests": 10, "run.replications": 2}
    return list(simulate(small_scenario({**few, **changes})).notes)


LONG = "requests a run are left out, as they are longer than the model's context (131,072 tokens)"
UP_TO_300K = {"workload.prompt_tokens": {"kind": "uniform", "low": 100, "high": 300_000}}
UP_TO_6K = {"workload.prompt_tokens": {"kind": "uniform", "low": 100, "high": 6_000}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (UP_TO_300K, f"{LONG} or the KV memory ("),
        ({**UP_TO_300K, "run.mechanisms.kv_limit": False}, LONG),
        ({**UP_TO_6K, "engine.chunked_prefill": False}, "or a step that holds a whole prompt (2,048)"),
        ({"hardware.tensor_parallel": 16}, "all-reduces of 16 GPUs are priced as those of 8, the most"),
        (
            {"run.precision": 1e-9, "workload.arrivals": {"kind": "burst"}},  # which is not made longer
            "the precision asked for, 1e-09 of throughput, is not reached: ± 0.0",
        ),
        (
            {"run.precision": 0.1, "run.precision_metric": "tpot_mean", "workload.timeout_s": 1e-9},
            "the precision asked for, 0.1 of tpot_mean, is not reached: no interval at 10 replications",
        ),
    ],
)
def test_the_note(changes: dict[str, Any], message: str) -> None:
    assert any(message in note for note in notes_of(changes)), notes_of(changes)


def test_nothing_is_said_without_reason() -> None:
    enough = {"workload.requests": 200, "run.precision": 0.5}
    notes = notes_of({"hardware.tensor_parallel": 8, **enough})
    assert not any("left out" in note or "all-reduces" in note or "precision" in note for note in notes)


def test_a_memory_without_limit_has_no_peak_fraction() -> None:
    summary = simulate(small_scenario({"run.mechanisms.kv_limit": False})).variants["plain"]
    assert summary["kv_peak_fraction"] is None
