"""vLLM's own parser on what this project writes: recorded verdicts."""

import json
from pathlib import Path
from typing import Any

import pytest

from simulator.runs.variant import CompiledVariant
from simulator.scenario.load import scenario_from_data
from tests.engine.parser_cases import PLANNED, SCHEDULES, cases, planned_scenario

VERDICTS = json.loads((Path(__file__).parent / "parser-verdicts.json").read_text("utf-8"))["verdicts"]
CASES = {case["name"]: case for case in cases()}

REFUSED = {
    "flags: whole prompts in too small a step": "max_num_batched_tokens (1024) is smaller than max_model_len",
    "flags: removed before 0.32": "unrecognized arguments: --num-speculative-tokens",
    "config: MTP without layers for it": "Unsupported speculative method",
    "config: no drafts": "num_speculative_tokens Input should be greater than 0",
    "config: limit of the past": "disable_by_batch_size Unexpected keyword argument",
    "schedule with an open end, as in scenarios": "Input should be a valid integer",
    "schedule that begins late": "must start at 1",
    "schedule that overlaps": "non-overlapping",
}


def test_every_command_line_has_a_verdict() -> None:
    assert list(VERDICTS) == list(CASES)


@pytest.mark.parametrize("name", CASES)
def test_vllm_accepts_what_is_written_and_refuses_what_is_known(name: str) -> None:
    verdict = VERDICTS[name]
    assert verdict["accepted"] == (name not in REFUSED)
    if name in REFUSED:
        assert REFUSED[name] in verdict["why"]


@pytest.mark.parametrize("name", CASES)
def test_vllm_reads_the_flags_as_they_are_meant(name: str) -> None:
    verdict, arguments = VERDICTS[name], CASES[name]["arguments"]
    if not verdict["accepted"]:
        return
    assert verdict["max_num_seqs"] == int(arguments[arguments.index("--max-num-seqs") + 1])
    assert verdict["chunked_prefill"] == ("--no-enable-chunked-prefill" not in arguments)
    assert verdict["prefix_caching"] == ("--no-enable-prefix-caching" not in arguments)
    if "--speculative-config" in arguments:
        config = json.loads(arguments[arguments.index("--speculative-config") + 1])
        assert verdict["draft_length"] == config["num_speculative_tokens"]
        assert verdict["method"] == config.get("method", "draft_model")


@pytest.mark.parametrize("name", [name for name in SCHEDULES if "gap" not in name])  # a scenario has none
def test_a_schedule_means_the_same_k_at_every_batch(name: str) -> None:
    verdict = VERDICTS[f"schedule {name}"]
    if verdict["accepted"]:
        assert verdict["by_batch"] == k_by_batch(SCHEDULES[name], longest=5, max_num_seqs=32)


@pytest.mark.parametrize("name", PLANNED)
def test_a_planned_launch_line_starts_the_variant_that_was_simulated(name: str) -> None:
    scenario = planned_scenario(name)
    verdict, variant = VERDICTS[f"planned {name}"], scenario.speculation[0]
    assert verdict["accepted"], verdict
    assert verdict["max_num_batched_tokens"] == 4096
    assert (verdict["method"], verdict["draft_length"]) == (variant.method, variant.max_draft_length)
    if not isinstance(variant.draft_length, int):
        by_batch = CompiledVariant.compile(scenario, variant).settings.draft_length_by_batch
        assert verdict["by_batch"] == list(by_batch[1:])


def k_by_batch(rows: Any, longest: int, max_num_seqs: int) -> list[int]:
    """K at 1, 2, … requests of a step as the simulator compiles it; vLLM cuts K to the longest."""
    acceptance = {"model": "geometric", "alpha": 0.5}
    draft_length = [[low, high, min(length, longest)] for low, high, length in rows]
    scenario = scenario_from_data(
        {
            "target": {"model": "llama-3.1-8b-instruct"},
            "hardware": {"gpu": "h100-sxm"},
            "engine": {"max_num_seqs": max_num_seqs},
            "speculation": [{"method": "ngram", "draft_length": draft_length, "acceptance": acceptance}],
            "workload": {"arrivals": {"kind": "closed", "concurrency": 4}},
        }
    )
    variant = CompiledVariant.compile(scenario, scenario.speculation[0])
    return list(variant.settings.draft_length_by_batch[1:])
