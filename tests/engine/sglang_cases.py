"""Every SGLang command line that this project writes, for SGLang's own parser.

    python -m tests.engine.sglang_cases > cases.jsonl

A case is `{"name", "arguments", "files"}`: flags of the server with `MODEL` and `DRAFT` in the places of
folders, and the files that they name.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

from calibration.launch import sglang
from simulator.scenario import Scenario
from simulator.scenario.load import scenario_from_data

MAX_NUM_SEQS = 32
_PATHS = {"--model-path": "MODEL", "--speculative-draft-model-path": "DRAFT"}

_EAGLE3 = {"method": "eagle3", "draft": "eagle3-llama-3.1-8b"}
_BY_BATCH = [[1, 8, 5], [9, 16, 2], [17, None, 0]]
PLANNED: dict[str, dict[str, Any] | None] = {
    "plain": None,
    "prompt lookup": {"method": "ngram", "draft_length": 4},
    "a draft model": {"method": "draft_model", "draft": "llama-3.2-1b-instruct", "draft_length": 3},
    "EAGLE-3": {**_EAGLE3, "draft_length": 3},
    "EAGLE-3, K by batch": {**_EAGLE3, "draft_length": _BY_BATCH},
    "EAGLE-3, a dynamic tree": {**_EAGLE3, "tree": {"depth": 5, "top_k": 4, "nodes": 16, "dynamic": True}},
    "K by batch of a draft model": {
        "method": "draft_model",
        "draft": "llama-3.2-1b-instruct",
        "draft_length": _BY_BATCH,
    },
}
"""Variants of a scenario whose launch line `plan` prints."""

ENGINES: dict[str, dict[str, Any]] = {
    "": {},
    ", other settings": {
        "max_num_batched_tokens": 4096,
        "prefix_caching": False,
        "gpu_memory_utilization": 0.8,
    },
    ", whole prompts": {"chunked_prefill": False},
}


def planned_scenario(variant: str, engine: str) -> Scenario:
    """The scenario of a planned variant."""
    entry, acceptance = PLANNED[variant], {"model": "geometric", "alpha": 0.5}
    return scenario_from_data(
        {
            "target": {"model": "llama-3.1-8b-instruct"},
            "hardware": {"gpu": "h100-sxm"},
            "engine": {"preset": "sglang-0.5", "max_num_seqs": MAX_NUM_SEQS, **ENGINES[engine]},
            "speculation": [{**entry, "acceptance": acceptance}] if entry else [],
            "workload": {"arrivals": {"kind": "closed", "concurrency": 4}},
        }
    )


def cases() -> Iterator[dict[str, Any]]:
    """All of them, each under a name of its own."""
    for variant in PLANNED:
        for engine in ENGINES:
            scenario = planned_scenario(variant, engine)
            speculation = scenario.speculation[0] if scenario.speculation else None
            artefact = sglang.write(scenario, speculation, sglang.NEWEST)
            words = shlex.split(artefact.text.replace("\\\n", " "))[3:]
            for flag, folder in _PATHS.items():
                if flag in words:
                    words[words.index(flag) + 1] = folder
            yield {"name": variant + engine, "arguments": words, "files": dict(artefact.files)}


if __name__ == "__main__":
    for case in cases():
        print(json.dumps(case))
