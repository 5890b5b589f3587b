"""SGLang: `python -m sglang.launch_server … --speculative-algorithm …`, and its adaptive configuration.

Flags: SGLang 0.5.23 `server_args.py`. `--speculative-num-draft-tokens` counts the root, so a chain of K
drafts has K + 1. The adaptive configuration is keyed by the lower bound of the batch. With one candidate for
each, it is a table of K by batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from calibration.launch.command import command_line, fixed_drafting, quantises_on_load
from calibration.launch.launch import Artefact, Unstated
from calibration.launch.names import served_name
from calibration.launch.schedule import draft_length_text, rows_of, single_length
from simulator.scenario import Scenario, Variant, engine_preset
from simulator.speculation import methods

ENGINE = "sglang"
NEWEST = "0.5.23"
ADAPTIVE_FILE = "sglang-adaptive.json"
METHODS: Mapping[str, str] = {
    "eagle": "EAGLE",
    "eagle3": "EAGLE3",
    "mtp": "NEXTN",
    "draft_model": "STANDALONE",
    "ngram": "NGRAM",
}
"""Method of a scenario → `--speculative-algorithm`."""
ADAPTIVE_METHODS = ("eagle", "eagle3")
"""Methods whose K may depend on the batch, and only as chains."""


def write(scenario: Scenario, variant: Variant | None, version: str) -> Artefact:
    """The command that starts SGLang as the scenario states it, plain or with a speculative variant."""
    unstated: list[Unstated] = []
    words = ["python", "-m", "sglang.launch_server", "--model-path", served_name(scenario.target.model)]
    options = dict(_options(scenario, unstated))
    files: dict[str, str] = {}
    if variant is not None:
        if variant.method not in METHODS:
            reason = Unstated("method", f"no options of SGLang are written for {variant.method}")
            return Artefact(ENGINE, version, "", unstated=(reason,))
        options |= _speculation(scenario, variant, unstated, files)
    return Artefact(ENGINE, version, command_line(words, options), files, tuple(unstated))


def _options(scenario: Scenario, unstated: list[Unstated]) -> Iterator[tuple[str, str | None]]:
    hardware, engine, target = scenario.hardware, scenario.engine, scenario.target
    yield "--tp-size", str(hardware.tensor_parallel)
    if hardware.attention_dp > 1:
        yield "--dp-size", str(hardware.attention_dp)
        yield "--enable-dp-attention", None
    if hardware.expert_parallel > 1:
        yield "--ep-size", str(hardware.expert_parallel)
    if quantises_on_load(scenario, unstated):
        yield "--quantization", "fp8"
    if target.kv_cache == "fp8":
        yield "--kv-cache-dtype", "fp8_e4m3"
    if engine.max_num_seqs is not None:
        yield "--max-running-requests", str(engine.max_num_seqs)
    if not engine.chunked_prefill:
        yield "--chunked-prefill-size", "-1"
    elif engine.max_num_batched_tokens is not None:
        yield "--chunked-prefill-size", str(engine.max_num_batched_tokens)
    if not engine.prefix_caching:
        yield "--disable-radix-cache", None
    if engine_preset(scenario)[0].engine == "SGLang" and engine.gpu_memory_utilization is not None:
        yield "--mem-fraction-static", f"{engine.gpu_memory_utilization:g}"


def _speculation(
    scenario: Scenario, variant: Variant, unstated: list[Unstated], files: dict[str, str]
) -> dict[str, str | None]:
    """The speculative options of a variant; settings without an option join `unstated`."""
    method = methods()[variant.method]
    options: dict[str, str | None] = {"--speculative-algorithm": METHODS[variant.method]}
    if variant.draft is not None:
        drafter = served_name(variant.draft)
        if not (method.draft_from_target and drafter == served_name(scenario.target.model)):
            options["--speculative-draft-model-path"] = drafter
    length = variant.chain_length
    rows = rows_of(scenario, variant)
    if rows is not None and variant.method in ADAPTIVE_METHODS and variant.tree is None:
        options |= {"--speculative-adaptive": None, "--speculative-adaptive-config": ADAPTIVE_FILE}
        files[ADAPTIVE_FILE] = json.dumps({str(low): _candidates(k) for low, _, k in rows}, indent=2) + "\n"
    elif variant.policy is not None and isinstance(variant.draft_length, int):
        length = variant.draft_length
        options |= {"--speculative-adaptive": None, "--speculative-adaptive-config": ADAPTIVE_FILE}
        rows_by_batch = variant.policy.policy(length).to_sglang()
        files[ADAPTIVE_FILE] = json.dumps(rows_by_batch, indent=2) + "\n"
    elif not isinstance(variant.draft_length, int):
        length = single_length(scenario, variant)
        reason = f"SGLang chooses K by batch for {' and '.join(ADAPTIVE_METHODS)} chains only"
        text = f"{draft_length_text(variant)}: {reason}; {length} is written"
        unstated.append(Unstated("draft_length", text))
    if method.drafter is not None:
        options |= _shape(variant, length, unstated)
    else:
        options["--speculative-num-draft-tokens"] = str(length + 1)
    unstated += fixed_drafting(scenario, variant, "SGLang")
    return options


def _shape(variant: Variant, length: int, unstated: list[Unstated]) -> dict[str, str | None]:
    """Depth, branching and verified tokens: of a chain, or of a tree that SGLang grows."""
    tree = variant.tree
    depth, top_k, nodes = length, 1, length + 1
    if tree is not None and tree.parents is None and tree.dynamic:
        assert tree.depth is not None
        assert tree.top_k is not None
        assert tree.nodes is not None
        depth, top_k, nodes = tree.depth, tree.top_k, tree.nodes
    elif tree is not None:
        unstated.append(Unstated("tree", "SGLang grows trees anew each round; a fixed one becomes a chain"))
    return {
        "--speculative-num-steps": str(depth),
        "--speculative-eagle-topk": str(top_k),
        "--speculative-num-draft-tokens": str(nodes),
    }


def _candidates(length: int) -> dict[str, Any]:
    """An entry of the adaptive configuration that always drafts `length`."""
    return {"candidate_steps": [length], "up_hysteresis": 0.0, "down_hysteresis": 0.0, "ceiling_coeff": 0}
