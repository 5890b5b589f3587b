"""What an engine keeps of a GPU besides weights and KV, against what vLLM logs when it starts.

A start names what loading took and what is left for KV; the rest of its share of the memory is the reserve.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pytest

from simulator.gpu import GPUS
from simulator.memory.report import gpu_memory, memory
from simulator.scenario import engine_preset, scenario_from_flags

LRZ = "github.com/tomasruizt/vllm-scripts fccb861, results/logs-2026-01-23, main of 2026-01"
RED_HAT = "github.com/ashishkamra/vllm-memory-estimator 8b0e21d, test_data/validation_db.json, vLLM "
OWN = {"schema": "decodesim/engine-1", "name": "own", "inherits": "sglang-0.5"}
OWN_SHARE = {**OWN, "gpu_memory_utilization": 0.7}
GIB = 2.0**30


class Start(NamedTuple):
    """`loaded_gib` and `kv_gib` are per GPU, as logged; `share` is gpu_memory_utilization."""

    source: str
    preset: str
    gpu: str
    model: str
    ranks: int
    share: float
    loaded_gib: float
    kv_gib: float
    speculates: bool = False


STARTS = (
    Start(LRZ + ", plain", "vllm-0.14", "h100-sxm-94gb", "qwen3-32b", 1, 0.9, 61.03, 16.91),
    Start(LRZ + ", EAGLE-3", "vllm-0.14", "h100-sxm-94gb", "qwen3-32b", 1, 0.9, 63.94, 11.72, True),
    Start(LRZ + ", draft model", "vllm-0.14", "h100-sxm-94gb", "qwen3-32b", 1, 0.9, 64.24, 11.42, True),
    Start(RED_HAT + "0.16.0", "vllm-0.14", "h200-sxm", "llama-3.3-70b-instruct", 4, 0.92, 32.89, 90.32),
    Start(RED_HAT + "0.11.0", "vllm-0.10", "h200-sxm", "llama-3.3-70b-instruct", 4, 0.92, 16.96, 109.09),
    Start(RED_HAT + "0.11.0", "vllm-0.10", "h200-sxm", "deepseek-r1", 8, 0.92, 79.58, 46.23),
    Start(RED_HAT + "0.11.0", "vllm-0.10", "h200-sxm", "qwen3-235b-a22b", 4, 0.92, 55.20, 69.62),
)


def reserve_gib(start: Start) -> float:
    """What is simulated."""
    flags = {"model": start.model, "gpu": start.gpu, "tensor_parallel": start.ranks}
    variants = "speculation=[{name: drafts, method: ngram, draft_length: 4}]"
    scenario = scenario_from_flags(flags, (f"engine.preset={start.preset}", variants))
    return gpu_memory(scenario, scenario.speculation[0] if start.speculates else None).reserve_bytes / GIB


def logged_gib(start: Start) -> float:
    """What the log leaves of the engine's share."""
    return start.share * GPUS[start.gpu].memory_bytes / GIB - start.loaded_gib - start.kv_gib


@pytest.mark.parametrize(
    "start", STARTS, ids=[start.source.rpartition(" ")[2] + start.model for start in STARTS]
)
def test_the_reserve_is_that_of_the_log(start: Start) -> None:
    assert reserve_gib(start) == pytest.approx(logged_gib(start), abs=1.0)


def test_the_reserve_is_close_in_the_median_and_a_flat_one_is_not() -> None:
    errors = [abs(reserve_gib(start) - logged_gib(start)) for start in STARTS]
    flat = [abs(4e9 / GIB - logged_gib(start)) for start in STARTS]
    assert median(errors) < 0.2
    assert median(flat) > 2


def test_speculation_keeps_more_and_fewer_seats_less() -> None:
    """The log has the same 2.28 GiB more with either drafter; the sampler is tried with every seat."""
    plain, head, small = STARTS[:3]
    assert logged_gib(head) - logged_gib(plain) == pytest.approx(2.28, abs=0.005)
    assert logged_gib(small) == pytest.approx(logged_gib(head), abs=0.005)
    assert reserve_gib(head) - reserve_gib(plain) == pytest.approx(2.28, abs=0.1)
    request_limit = scenario_from_flags(
        {"model": "qwen3-32b"}, ("engine.preset=vllm-0.14", "engine.max_num_seqs=256")
    )
    assert gpu_memory(request_limit, None).reserve_bytes / GIB == pytest.approx(
        reserve_gib(plain) - 5.36 * 0.75, abs=0.05
    )


def test_sglang_leaves_the_same_bytes_of_large_gpus_unless_it_is_told_a_share(tmp_path: Path) -> None:
    """mem_fraction_static of server_args, one GPU: .835 of an H100, .907 of an H200, .833 of a 40 GB A100."""
    for gpu, share in (("h100-sxm", 0.835), ("h200-sxm", 0.907), ("a100-sxm-40gb", 0.833)):
        flags = {"model": "llama-3.1-8b-instruct", "gpu": gpu}
        preset, _ = engine_preset(scenario_from_flags(flags, ("engine.preset=sglang-0.5",)))
        assert preset.gpu_memory_utilization == pytest.approx(share, abs=0.005)
        overrides = ("engine.preset=sglang-0.5", "engine.gpu_memory_utilization=0.7")
        assert engine_preset(scenario_from_flags(flags, overrides))[0].gpu_memory_utilization == 0.7
        own = tmp_path / "own.json"
        own.write_text(json.dumps(OWN_SHARE), "utf-8")
        own_preset = engine_preset(scenario_from_flags(flags, (f"engine.preset={own}",)))[0]
        assert (own_preset.gpu_memory_utilization, own_preset.headroom_bytes) == (0.7, 0)
        assert "gpu_memory_utilization" not in own_preset.sources


def test_what_an_engine_leaves_of_a_gpu_is_said_where_its_rule_decides() -> None:
    for engine, gpu, share, message in (
        ("sglang-0.5", "h100-sxm", "null", ["not usable: 13.1 GiB"]),
        ("sglang-0.5", "h100-sxm", "0.7", []),
        ("sglang-0.5", "a100-sxm-40gb", "null", []),
        ("vllm-0.33", "h100-sxm", "1.0", []),
    ):
        overrides = (f"engine.preset={engine}", f"engine.gpu_memory_utilization={share}")
        notes = memory(scenario_from_flags({"model": "qwen3-8b", "gpu": gpu}, overrides)).notes
        assert [note.partition(";")[0] for note in notes if note.startswith("not usable")] == message


def test_an_engine_without_drafts_tries_one_sampler() -> None:
    for length, more in ((0, 0), (4, 16 * 1024 * 151_936)):
        variant = f"speculation=[{{name: a, method: ngram, draft_length: {length}}}]"
        scenario = scenario_from_flags({"model": "qwen3-32b"}, ("engine.preset=vllm-0.14", variant))
        plain, drafts = gpu_memory(scenario, None), gpu_memory(scenario, scenario.speculation[0])
        assert drafts.reserve_bytes - plain.reserve_bytes == more


def test_sglang_sets_memory_aside_for_the_states_of_recurrent_layers(tmp_path: Path) -> None:
    """A start of SGLang 0.5.18 with Qwen3.8-27B-FP8 on one H100, --mem-fraction-static 0.85: 28.47 GiB are
    loaded (a part for images among them, 1 GiB), 146.81 MiB are a state, 124 of them and 330,323 tokens are
    left room for, and "max_running_requests is capped to 24 by the mamba state cache": five slots a request.
    Without the images there is room for 130 slots, 26 requests and 2.7 % more tokens.
    """
    own = tmp_path / "sglang-0.5.18.json"
    own.write_text(json.dumps({**OWN, "state_slots": 5}), "utf-8")
    overrides = (f"engine.preset={own}", "engine.gpu_memory_utilization=0.85", "target.weights=fp8")
    memory = gpu_memory(scenario_from_flags({"model": "qwen3.5-27b", "gpu": "h100-sxm"}, overrides), None)
    state_bytes = memory.state_bytes / 5
    assert state_bytes / 2**20 == pytest.approx(146.81, abs=0.005)
    assert memory.state_pool_bytes is not None
    assert memory.state_pool_bytes // state_bytes == 130
    assert memory.state_request_limit == 26
    assert memory.kv_tokens == pytest.approx(330_323 * 1.027, rel=0.001)
    images = 0.4737 * 1.05 * GIB  # of the GiB that it loads more, the pool's part
    assert (memory.state_pool_bytes - images) / state_bytes == pytest.approx(124, abs=3)
