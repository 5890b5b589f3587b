"""What operators reported about memory and capacity.

Each test names the report (repository and number of the issue or pull request) and what was seen there.
Where a report leaves something out (GPU, acceptance, model), the test takes a plausible one, says so, and
asserts only what does not hang on it. Reports of configuration faults (a dead option, a drafter shorter
than the prompts, graphs captured for too few sequences) are for a linter, reports about trees, Medusa and
parallel drafting for the methods that simulate them; neither is here.
"""

from __future__ import annotations

import pytest

from simulator.breakeven.breakeven import breakeven
from simulator.memory.report import gpu_memory
from tests.served import LLAMA_8B, served, speedup


def test_a_draft_model_on_one_rank_binds_the_memory_of_all() -> None:
    """vllm-project/vllm#9995: an 8B draft model on one of four ranks takes 16 GB there, so that rank
    limits the KV cache.
    """

    def kv_tokens(draft_ranks: int) -> int:
        scenario = served(
            "llama-3.1-70b-instruct",
            draft="llama-3.1-8b-instruct",
            method="draft_model",
            hardware__tensor_parallel=4,
            variant__draft_tensor_parallel=draft_ranks,
        )
        return gpu_memory(scenario, scenario.speculation[0]).kv_tokens

    scenario = served(
        "llama-3.1-70b-instruct",
        draft="llama-3.1-8b-instruct",
        method="draft_model",
        hardware__tensor_parallel=4,
        variant__draft_tensor_parallel=1,
    )
    assert gpu_memory(scenario, scenario.speculation[0]).drafter_bytes == pytest.approx(16.06e9, rel=0.01)
    assert kv_tokens(1) < 0.8 * kv_tokens(4)


def test_target_and_drafter_share_the_kv_budget_by_their_bytes() -> None:
    """NVIDIA/TensorRT-LLM#12188: KV tokens = budget ÷ (target + draft bytes per token)."""
    scenario = served("llama-3.3-70b-instruct", draft="eagle3-llama-3.3-70b", hardware__tensor_parallel=4)
    plain, spec = gpu_memory(scenario, None), gpu_memory(scenario, scenario.speculation[0])
    budget = plain.kv_bytes - spec.drafter_bytes
    ratio = 327_680 / (327_680 + 4096)
    assert spec.kv_tokens / plain.kv_tokens == pytest.approx(budget / plain.kv_bytes * ratio, rel=0.01)


def test_prefill_caps_what_accepted_tokens_can_give() -> None:
    """ai-dynamo/dynamo#10435: a planner scales decode capacity with the acceptance length, prefill
    capacity not.
    """

    def gain(prompt: int, output: int, alpha: float) -> float:
        acceptance = {"model": "geometric", "alpha": alpha}
        scenario = served(
            **LLAMA_8B,
            acceptance=acceptance,
            clients=64,
            prompt_tokens=prompt,
            output_tokens=output,
            variant__max_context_tokens=131_072,
        )
        return speedup(scenario)

    decode_bound = gain(100, 1000, 0.8) / gain(100, 1000, 0.3)
    prefill_bound = gain(4000, 30, 0.8) / gain(4000, 30, 0.3)
    assert decode_bound > 1.7
    assert 1 < prefill_bound < 1.35


def test_needed_acceptance_rises_with_the_number_of_clients() -> None:
    """vllm-project/vllm#16258 (a maintainer): not many drafts with many parallel requests, as batching
    already fills the GPU.
    """
    answer = breakeven(
        served(**LLAMA_8B, workload__requests=2000), loads=[{"concurrency": n} for n in (32, 128, 256)]
    )
    needed = [row.simulated_alpha.value for row in answer.rows if row.simulated_alpha is not None]
    assert len(needed) == 3
    assert needed == sorted(needed)
    assert needed[-1] > needed[0] + 0.2
