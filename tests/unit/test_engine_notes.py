"""What a run says of its serving engine: the preset that was taken, and what the engine does beyond it."""

from __future__ import annotations

import pytest

from experiments.sensitivity.tornado import tornado
from simulator.breakeven.breakeven import breakeven
from simulator.memory.report import memory
from simulator.simulation import simulate
from tests.runs import small_scenario

LOOKUP = {"speculation": [{"name": "lookup", "method": "ngram"}], "workload.requests": 40}


@pytest.mark.parametrize(
    ("preset", "message"),
    [
        ("vllm-0.33", "looked up on the GPU, as vLLM's ngram_gpu does"),
        ("vllm-0.14", "looked up on the GPU, as vLLM's ngram_gpu does"),
        ("vllm-0.14-sync", "compare with plain decoding under vllm-0.14 or vllm-0.33"),
    ],
)
def test_where_look_ups_are_made_is_said(preset: str, message: str) -> None:
    notes = simulate(small_scenario({**LOOKUP, "engine.preset": preset})).notes
    assert [note for note in notes if note.startswith("lookup: ") and message in note]
    silent = simulate(small_scenario({"workload.requests": 40, "engine.preset": preset})).notes
    assert not [note for note in silent if message in note]


@pytest.mark.parametrize(
    ("preset", "clients", "max_num_seqs", "is_noted"),
    [
        ("sglang-0.5", 64, None, True),
        ("sglang-0.5", 48, None, False),
        ("sglang-0.5", 64, 64, False),
        ("vllm-0.33", 64, None, False),
    ],
)
def test_a_limit_of_running_requests_while_an_engine_speculates_is_noted(
    preset: str, clients: int, max_num_seqs: int | None, is_noted: bool
) -> None:
    changes = {
        "engine.preset": preset,
        "workload.arrivals.concurrency": clients,
        "workload.requests": 128,
        "engine.max_num_seqs": max_num_seqs,
    }
    notes = [note for note in simulate(small_scenario(changes)).notes if "runs at most 48 requests" in note]
    assert bool(notes) is is_noted
    assert all(note.startswith("eagle3: ") for note in notes)


def test_every_answer_says_which_preset_was_taken() -> None:
    scenario = small_scenario({"engine.preset": "vllm-0.20", "workload.requests": 60})
    message = "no preset for 'vllm-0.20': the nearest known, vllm-0.15, is taken"
    assert message in simulate(scenario).notes
    assert message in breakeven(scenario).notes
    assert message in memory(scenario).notes
    assert message in tornado(scenario).notes
    known = small_scenario({"engine.preset": "vllm-0.33", "workload.requests": 60})
    assert not [note for note in (*simulate(known).notes, *memory(known).notes) if "preset" in note]
