"""Scenario → launch configuration → scenario: the same variants, but for what the engine is said to lack."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.launch import read_sglang
from calibration.launch.launch import Artefact, Launch
from calibration.launch.registry import ENGINES, artefacts
from calibration.launch.scenario import scenario_from_launch
from simulator.scenario import Scenario, Variant, engine_preset, scenario_from_data

TARGETS = {
    "eagle3": ("llama-3.3-70b-instruct", "eagle3-llama-3.3-70b-redhat"),
    "eagle": ("llama-3.1-70b-instruct", "eagle-llama-3.1-70b-instruct"),
    "draft_model": ("llama-3.3-70b-instruct", "llama-3.1-8b-instruct"),
    "mtp": ("deepseek-v3", None),
    "ngram": ("qwen3-32b", None),
}
PRESETS = {
    "vllm": ("vllm-0.33", "vllm-0.33-sync", "vllm-0.12"),
    "sglang": ("sglang-0.5",),
    "trtllm": ("trtllm-1",),
}


@st.composite
def tables(draw: st.DrawFn) -> list[list[int | None]]:
    """A table of draft lengths by batch."""
    steps = draw(st.lists(st.integers(1, 60), min_size=1, max_size=4))
    lengths = draw(st.lists(st.integers(0, 8), min_size=len(steps), max_size=len(steps)))
    lengths[0] = max(lengths[0], 1)
    rows: list[list[int | None]] = []
    low = 1
    for step, length in zip(steps, lengths, strict=True):
        rows.append([low, low + step - 1, length])
        low += step
    if draw(st.booleans()):
        rows[-1][1] = None
    return rows


@st.composite
def scenarios(draw: st.DrawFn, engine: str) -> Scenario:
    """A scenario with one variant that any of the engines may or may not be able to run."""
    method = draw(st.sampled_from(sorted(TARGETS)))
    model, drafter = TARGETS[method]
    ranks = draw(st.sampled_from([4, 8]))
    variant: dict[str, Any] = {"method": method, "draft_length": draw(st.integers(1, 12) | tables())}
    if drafter is not None:
        variant["draft"] = drafter
    if method != "ngram":
        variant["draft_sampling"] = draw(st.sampled_from(["greedy", "sampled"]))
        variant["draft_tensor_parallel"] = draw(st.sampled_from([None, 1, ranks]))
        variant["max_context_tokens"] = draw(st.sampled_from([None, 2048, 8192]))
    if method == "eagle3" and isinstance(variant["draft_length"], int) and draw(st.booleans()):
        nodes = variant["draft_length"] * 2
        variant["tree"] = {"depth": variant["draft_length"], "top_k": 4, "nodes": nodes, "dynamic": True}
    options = {
        "preset": draw(st.sampled_from(PRESETS[engine])),
        "max_num_seqs": draw(st.sampled_from([None, 32, 256])),
        "max_num_batched_tokens": draw(st.sampled_from([None, 4096])),
        "prefix_caching": draw(st.booleans()),
        "gpu_memory_utilization": draw(st.sampled_from([None, 0.85])),
    }
    return scenario_from_data(
        {
            "target": {"model": model, "kv_cache": draw(st.sampled_from(["bf16", "fp8"]))},
            "hardware": {"gpu": "h200-sxm", "tensor_parallel": ranks},
            "engine": options,
            "speculation": [variant],
            "workload": {"arrivals": {"kind": "closed", "concurrency": draw(st.integers(1, 64))}},
        }
    )


def reread(engine: str, artefact: Artefact, folder: Path) -> Launch:
    """The artefact, read back with the files that it names."""
    for name, content in artefact.files.items():
        (folder / name).write_text(content, encoding="utf-8")
    if engine == "sglang":
        return read_sglang.read(artefact.text, "line", folder)
    return ENGINES[engine].read(artefact.text, "line")


def by_batch(variant: Variant, most: int) -> list[int]:
    """K at every number of running requests."""
    length = variant.draft_length
    if isinstance(length, int):
        return [length] * most
    assert isinstance(length, tuple)
    return [
        next((k for low, high, k in length if low <= batch and (high is None or batch <= high)), 0)
        for batch in range(1, most + 1)
    ]


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_a_variant_survives_the_engines_options(
    engine: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp(engine)

    @settings(max_examples=40, deadline=None)
    @given(scenarios(engine))
    def check(scenario: Scenario) -> None:
        variant = scenario.speculation[0]
        artefact = artefacts(scenario, variant)[engine]
        unstated = {option.field for option in artefact.unstated}
        if not artefact.text:
            assert unstated == {"method"}
            return
        read = reread(engine, artefact, folder)
        assert not read.notes
        again, _ = scenario_from_launch(read, {"gpu": "h200-sxm", "concurrency": "8"})
        (copy,) = again.speculation
        same = ["method", "draft", "draft_sampling", "tree", "max_context_tokens"]
        for name in [name for name in same if name not in unstated]:
            assert getattr(copy, name) == getattr(variant, name), name
        if "draft_tensor_parallel" not in unstated:
            ranks = again.draft_tensor_parallel(copy), scenario.draft_tensor_parallel(variant)
            assert ranks[0] == ranks[1]
        if "draft_length" not in unstated:
            most = engine_preset(scenario)[0].max_num_seqs
            assert by_batch(copy, most) == by_batch(variant, most)
        for name in ("max_num_seqs", "max_num_batched_tokens", "prefix_caching", "gpu_memory_utilization"):
            assert getattr(again.engine, name) == getattr(scenario.engine, name), name
        assert (again.target.model, again.target.kv_cache) == (
            scenario.target.model,
            scenario.target.kv_cache,
        )
        assert again.hardware.tensor_parallel == scenario.hardware.tensor_parallel

    check()


def test_the_schedule_is_vllms_list_of_triples_and_covers_max_num_seqs() -> None:
    scenario = scenario_from_data(
        {
            "target": {"model": "llama-3.3-70b-instruct"},
            "hardware": {"gpu": "h100-sxm", "tensor_parallel": 4},
            "engine": {"max_num_seqs": 128},
            "speculation": [{"method": "eagle3", "draft_length": [[1, 15, 5], [16, 63, 3]]}],
            "workload": {"arrivals": {"kind": "closed", "concurrency": 8}},
        }
    )
    written = artefacts(scenario, scenario.speculation[0])
    config = ENGINES["vllm"].read(written["vllm"].text, "line").speculation
    assert config["num_speculative_tokens"] == 5
    assert config["num_speculative_tokens_per_batch_size"] == [[1, 15, 5], [16, 63, 3], [64, 128, 0]]
    (adaptive,) = (json.loads(text) for text in written["sglang"].files.values())
    assert {bound: entry["candidate_steps"] for bound, entry in adaptive.items()} == {
        "1": [5],
        "16": [3],
        "64": [0],
    }
    assert ENGINES["trtllm"].read(written["trtllm"].text, "file").speculation["draft_len_schedule"] == {
        "15": 5,
        "63": 3,
    }


def test_plain_decoding_has_no_option_of_speculation() -> None:
    scenario = scenario_from_data(
        {
            "target": {"model": "qwen3-32b"},
            "hardware": {"gpu": "h100-sxm"},
            "workload": {"arrivals": {"kind": "closed", "concurrency": 8}},
        }
    )
    for engine, artefact in artefacts(scenario, None).items():
        assert "specul" not in artefact.text, engine
        assert not artefact.unstated
