"""Every vLLM command line that this project writes or documents, for vLLM's own parser.

    python -m tests.engine.parser_cases > cases.jsonl

A case is `{"name", "arguments", "schedule"}`: flags of `vllm serve` after the model, and the batch-size
schedule among them. `MODEL` and `DRAFT` stand for folders, which the parser's side fills in.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from calibration.engine_loop.matrix import MATRICES, EngineVariant
from calibration.engine_loop.server import MAX_MODEL_LEN, MAX_NUM_SEQS
from calibration.launch import vllm
from experiments.capacity.schedule import Schedule, ScheduleRow
from simulator.scenario import Scenario
from simulator.scenario.load import scenario_from_data

MODEL, DRAFT, VERSION = "MODEL", "DRAFT", "0.32"
SERVED = ("--max-model-len", str(MAX_MODEL_LEN), "--max-num-seqs", str(MAX_NUM_SEQS))

Case = dict[str, Any]

SCHEDULES: dict[str, Sequence[ScheduleRow]] = {
    "of the command line's contract": ((1, 15, 5), (16, 63, 3)),
    "of docs/scenario.md, closed": ((1, 15, 5), (16, 63, 3), (64, MAX_NUM_SEQS * 4, 0)),
    "with a gap": ((1, 4, 5), (17, 32, 1)),
    "that ends early": ((1, 8, 3),),
    "with an open end, as in scenarios": ((1, 15, 5), (16, None, 1)),
    "that begins late": ((2, 4, 5),),
    "that overlaps": ((1, 4, 5), (4, 8, 1)),
    "with a K above the longest": ((1, 4, 7), (5, 32, 1)),
}
"""Batch-size schedules in the form that scenarios, `plan` and vLLM share; some that vLLM refuses."""

FLAGS: dict[str, Sequence[str]] = {
    "engine": (
        "--max-num-batched-tokens",
        "4096",
        "--gpu-memory-utilization",
        "0.9",
        "--kv-cache-dtype",
        "auto",
    ),
    "no prefix caching": ("--no-enable-prefix-caching",),
    "synchronous": ("--no-async-scheduling",),
    "whole prompts": ("--no-enable-chunked-prefill", "--max-num-batched-tokens", "2048"),
    "whole prompts in too small a step": ("--no-enable-chunked-prefill", "--max-num-batched-tokens", "1024"),
    "removed before 0.32": ("--num-speculative-tokens", "3"),
}
"""Settings of a scenario's `engine` as flags, and flags of the past."""

CONFIGS: dict[str, dict[str, Any]] = {
    "draft model": {"model": DRAFT, "method": "draft_model", "num_speculative_tokens": 4},
    "draft model without a method": {"model": DRAFT, "num_speculative_tokens": 4},
    "prompt lookup without lengths": {"method": "ngram", "num_speculative_tokens": 4},
    "prompt lookup on the GPU": {"method": "ngram_gpu", "num_speculative_tokens": 4, "prompt_lookup_max": 4},
    "MTP without layers for it": {"method": "mtp", "num_speculative_tokens": 1},
    "no drafts": {"method": "ngram", "num_speculative_tokens": 0},
    "limit of the past": {"method": "ngram", "num_speculative_tokens": 3, "disable_by_batch_size": 8},
}
"""Speculative configurations of the pages, and those that vLLM is known to refuse."""

_DRAFT_MODEL = {"method": "draft_model", "draft": "smollm2-135m-instruct"}
PLANNED: dict[str, dict[str, Any]] = {
    "prompt lookup": {"method": "ngram", "draft_length": 4},
    "a draft model": {**_DRAFT_MODEL, "draft_length": 3},
    "a draft model on one GPU": {**_DRAFT_MODEL, "draft_length": 3, "draft_tensor_parallel": 1},
    "sampled drafts": {**_DRAFT_MODEL, "draft_length": 3, "draft_sampling": "sampled"},
    "a drafter with a limit": {**_DRAFT_MODEL, "draft_length": 3, "max_context_tokens": 1024},
    "K by batch": {**_DRAFT_MODEL, "draft_length": [[1, 8, 5], [9, 16, 2], [17, None, 0]]},
}
"""Variants of a scenario whose launch line `plan` prints."""


def planned_scenario(name: str, **engine: Any) -> Scenario:
    """The scenario of a planned variant."""
    acceptance = {"model": "geometric", "alpha": 0.5}
    return scenario_from_data(
        {
            "target": {"model": "smollm2-135m-instruct"},
            "hardware": {"gpu": "h100-sxm"},
            "engine": {"max_num_seqs": MAX_NUM_SEQS, **engine},
            "speculation": [{**PLANNED[name], "acceptance": acceptance}],
            "workload": {"arrivals": {"kind": "closed", "concurrency": 4}},
        }
    )


def cases() -> Iterator[Case]:
    """All of them, each under a name of its own."""
    for variant in written_variants():
        yield _case(f"loop {variant.name}", _speculative(variant.speculative_config(Path())))
    for name, flags in FLAGS.items():
        yield _case(f"flags: {name}", flags)
    for name, config in CONFIGS.items():
        yield _case(f"config: {name}", _speculative(config))
    for name in PLANNED:
        yield _planned(name)
    for name, rows in SCHEDULES.items():
        schedule = Schedule(tuple(rows)).to_json()
        config = {"model": DRAFT, "method": "draft_model", "num_speculative_tokens": 5}
        flags = _speculative(config | {"num_speculative_tokens_per_batch_size": schedule})
        yield _case(f"schedule {name}", flags) | {"schedule": schedule}


def written_variants() -> list[EngineVariant]:
    """Every variant that `decodesim closure --engine vllm` starts a server for."""
    variants = [variant for matrix in MATRICES.values() for variant in matrix.variants]
    return list({variant.name: variant for variant in variants}.values())


def _planned(name: str) -> Case:
    """The launch line of a planned variant, with settings of the engine, for the version at hand."""
    scenario = planned_scenario(
        name, preset="vllm-0.14-sync", prefix_caching=False, max_num_batched_tokens=4096
    )
    text = vllm.write(scenario, scenario.speculation[0], VERSION).text
    flags = shlex.split(text.replace("\\\n", " "))[3:]
    at = flags.index("--speculative-config") + 1
    config = json.loads(flags[at])
    flags[at - 1 : at + 1] = _speculative(config)
    case = {"name": f"planned {name}", "arguments": [MODEL, *SERVED[:2], *flags]}
    return case | {"schedule": config.get("num_speculative_tokens_per_batch_size")}


def _speculative(config: dict[str, Any] | None) -> list[str]:
    if config is None:
        return []
    model = {"model": DRAFT} if "model" in config else {}
    return ["--speculative-config", json.dumps(config | model)]


def _case(name: str, flags: Sequence[str]) -> Case:
    return {"name": name, "arguments": [MODEL, *SERVED, *flags], "schedule": None}


if __name__ == "__main__":
    for case in cases():
        print(json.dumps(case))
