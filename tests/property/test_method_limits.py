"""Limits in which two settings are one and the same, to the bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from simulator.engines.presets import presets
from simulator.scenario import Scenario
from simulator.speculation import method, registered
from tests.runs import differences, drafting_variant, run, small_scenario

ALPHA = {"model": "geometric", "alpha": 0.7}


def outcome(method_name: str, draft_length: Any, preset: str = "vllm-0.33") -> Any:
    """The record of a run with this method and draft length."""
    return run(drafting_variant(scenario(method_name, draft_length, preset)))


def scenario(method_name: str, draft_length: Any, preset: str) -> Scenario:
    entry = {"name": "a", "method": method_name, "draft_length": draft_length, "acceptance": ALPHA}
    lengths = {"workload.output_tokens": {"kind": "uniform", "low": 1, "high": 60}}
    return small_scenario({"speculation": [entry], "engine.preset": preset, **lengths})


@pytest.mark.parametrize("preset", list(presets()))
def test_a_table_of_one_row_is_a_fixed_draft_length(preset: str) -> None:
    assert differences(outcome("eagle3", 3, preset), outcome("eagle3", [[1, None, 3]], preset)) == []
    assert differences(outcome("eagle3", 3, preset), outcome("eagle3", [[1, None, 2]], preset)) != []


@pytest.mark.parametrize("preset", list(presets()))
def test_parallel_drafting_of_one_token_is_eagle_of_one_token(preset: str) -> None:
    """One pass over the step's own tokens makes one draft, whichever way further drafts would be made."""
    parallel = replace(method("peagle"), name="parallel", drafter="eagle3")
    with registered(parallel):
        assert differences(outcome("eagle3", 1, preset), outcome("parallel", 1, preset)) == []
        assert differences(outcome("eagle3", 2, preset), outcome("parallel", 2, preset)) != []


@pytest.mark.parametrize("preset", ["vllm-0.33", "sglang-0.5"])
def test_drafts_that_are_never_made_are_plain_decoding_with_a_current_drafter(preset: str) -> None:
    """K = 0 in a table: every round emits one token, and nothing is verified."""
    record = outcome("eagle3", [[1, None, 0]], preset)
    assert record.draft_rounds.sum() == 0
    assert record.totals["rejected_rows"] == 0
