"""The smallest token budget of a step: below it a request could wait for ever, so it is refused."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.errors import InputError
from tests.runs import drafting_variant, run, small_scenario

SAME_PROMPTS = {
    "workload.requests": 6,
    "workload.prompt_tokens": {"kind": "fixed", "tokens": 17},
    "workload.output_tokens": {"kind": "fixed", "tokens": 12},
    "workload.sessions": {"turns": 3, "gap_s": 0.1, "shared_prefix_tokens": 16},
}
"""A prompt of one block that others have computed, and one more token."""


def changes(preset: str, budget: int, **more: Any) -> dict[str, Any]:
    engine = {"preset": preset, "max_num_batched_tokens": budget, "max_num_seqs": 4}
    return {**SAME_PROMPTS, **{f"engine.{name}": value for name, value in engine.items()}, **more}


@pytest.mark.parametrize("chunked", [True, False])
def test_an_engine_that_fills_up_first_decodes_needs_a_step_for_all_rows(chunked: bool) -> None:
    """EAGLE-3 with K = 3 under vLLM 0.33: four rows."""
    more = {"engine.chunked_prefill": chunked}
    with pytest.raises(InputError, match=r"max_num_batched_tokens.*4 rows.*at least 4"):
        drafting_variant(small_scenario(changes("vllm-0.33", 3, **more)))
    drafting_variant(small_scenario(changes("vllm-0.33", 4, **more)))


def test_the_smallest_step_serves_requests_that_lack_one_token() -> None:
    record = run(drafting_variant(small_scenario(changes("vllm-0.33", 4))))
    assert (record.emitted_tokens == 12).all()


def test_an_engine_that_cuts_drafts_needs_one_token() -> None:
    record = run(drafting_variant(small_scenario(changes("vllm-0.10", 2))))
    assert (record.emitted_tokens == 12).all()
    assert record.totals["cut_drafts"] > 0


def test_the_slots_of_a_drafter_count() -> None:
    """PARD takes K = 3 slots a request besides its four rows."""
    pard = {"speculation.eagle3.method": "pard", "speculation.eagle3.draft": "llama-3.2-1b-instruct"}
    with pytest.raises(InputError, match=r"the 3 slots of its drafter.*at least 7"):
        drafting_variant(small_scenario(changes("vllm-0.33", 6, **pard)))
