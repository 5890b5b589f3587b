"""vLLM: `vllm serve … --speculative-config '{…}'`.

Fields and their versions: vLLM 0.33 `config/speculative.py`, `engine/arg_utils.py`. The K schedule by batch
is a list of triples (first batch, last batch, K). A gap and what lies above the last triple keep the K before
them (`v1/spec_decode/dynamic/utils.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from calibration.launch.command import command_line, quantises_on_load
from calibration.launch.launch import Artefact, Unstated
from calibration.launch.names import served_name
from calibration.launch.schedule import draft_length_text, max_num_seqs, rows_of, single_length
from simulator.engines.presets import dotted, release_of
from simulator.scenario import Scenario, Variant, engine_preset
from simulator.speculation import methods

ENGINE = "vllm"
NEWEST = "0.33"
SCHEDULE_SINCE = (0, 22)
"""The first version with `num_speculative_tokens_per_batch_size` (vllm-project/vllm#32374)."""
PROBABILISTIC_SINCE = (0, 27)
"""The first version in which `draft_sample_method` is known to be there."""
MTP_SINCE = (0, 12)
"""The first version with the one name `mtp` for all prediction modules."""
DRAFT_MODEL_SINCE = (0, 12)
"""The first version of the V1 engine that runs draft models (vllm-project/vllm#24322)."""

METHODS: Mapping[str, str] = {
    "eagle": "eagle",
    "eagle3": "eagle3",
    "mtp": "mtp",
    "draft_model": "draft_model",
    "ngram": "ngram",
}
"""Method of a scenario → that of vLLM."""
LOOKUP_MAX, LOOKUP_MIN = 5, 2
"""Tokens that prompt lookup matches, written out: vLLM's own default is to match exactly 5."""


def write(scenario: Scenario, variant: Variant | None, version: str) -> Artefact:
    """The command that starts vLLM as the scenario states it, plain or with a speculative variant."""
    unstated: list[Unstated] = []
    words = ["vllm", "serve", served_name(scenario.target.model)]
    options = dict(_options(scenario, unstated))
    if variant is not None:
        if variant.method not in METHODS:
            reason = Unstated("method", f"no options of vLLM are written for {variant.method}")
            return Artefact(ENGINE, version, "", unstated=(reason,))
        config = speculative_config(scenario, variant, version, unstated)
        options["--speculative-config"] = json.dumps(config)
    return Artefact(ENGINE, version, command_line(words, options), unstated=tuple(unstated))


def _options(scenario: Scenario, unstated: list[Unstated]) -> Iterator[tuple[str, str | None]]:
    """All options but that of speculation. What the scenario leaves to the preset is vLLM's own default."""
    hardware, engine, target = scenario.hardware, scenario.engine, scenario.target
    groups = hardware.attention_dp
    yield "--tensor-parallel-size", str(hardware.tensor_parallel // groups)
    if groups > 1:
        yield "--data-parallel-size", str(groups)
    if hardware.expert_parallel == hardware.tensor_parallel > 1:
        yield "--enable-expert-parallel", None
    elif hardware.expert_parallel > 1:
        text = f"vLLM shares experts over all {hardware.tensor_parallel} GPUs or none"
        unstated.append(Unstated("hardware.expert_parallel", text))
    if quantises_on_load(scenario, unstated):
        yield "--quantization", "fp8"
    if target.kv_cache == "fp8":
        yield "--kv-cache-dtype", "fp8"
    if engine.max_num_seqs is not None:
        yield "--max-num-seqs", str(engine.max_num_seqs)
    if engine.max_num_batched_tokens is not None:
        yield "--max-num-batched-tokens", str(engine.max_num_batched_tokens)
    if not engine.chunked_prefill:
        yield "--no-enable-chunked-prefill", None
    if not engine.prefix_caching:
        yield "--no-enable-prefix-caching", None
    preset = engine_preset(scenario)[0]
    if preset.engine == "vLLM":
        if engine.gpu_memory_utilization is not None:
            yield "--gpu-memory-utilization", f"{engine.gpu_memory_utilization:g}"
        if preset.name.endswith("-sync"):
            yield "--no-async-scheduling", None


def speculative_config(
    scenario: Scenario, variant: Variant, version: str, unstated: list[Unstated]
) -> dict[str, Any]:
    """The value of `--speculative-config` for a variant; settings without an option join `unstated`."""
    release = release_of(version)
    method = methods()[variant.method]
    config: dict[str, Any] = {"method": METHODS[variant.method]}
    if variant.method == "ngram" and engine_preset(scenario)[0].drafts_asynchronously:
        config["method"] = "ngram_gpu"  # the one that asynchronous scheduling runs
    if variant.method == "mtp" and release < MTP_SINCE:
        text = f"vLLM before {dotted(MTP_SINCE)} has a name for each family, such as deepseek_mtp"
        unstated.append(Unstated("method", text))
    if variant.draft is not None and not _is_own_module(scenario, variant):
        config["model"] = served_name(variant.draft)
    config["num_speculative_tokens"] = variant.chain_length
    if variant.method == "ngram":
        config |= {"prompt_lookup_max": LOOKUP_MAX, "prompt_lookup_min": LOOKUP_MIN}
    if method.drafter is not None and variant.draft_tensor_parallel is not None:
        config["draft_tensor_parallel_size"] = variant.draft_tensor_parallel
    if variant.max_context_tokens is not None:
        config["max_model_len"] = variant.max_context_tokens
    if variant.draft_sampling == "sampled" and method.drafter is not None:
        if release >= PROBABILISTIC_SINCE:
            config["draft_sample_method"] = "probabilistic"
        else:
            text = f"vLLM before {dotted(PROBABILISTIC_SINCE)} drafts greedily"
            unstated.append(Unstated("draft_sampling", text))
    if variant.tree is not None:
        unstated.append(Unstated("tree", f"vLLM {version} drafts chains only"))
    return config | _schedule(scenario, variant, release, unstated)


def _schedule(
    scenario: Scenario, variant: Variant, release: tuple[int, ...], unstated: list[Unstated]
) -> dict[str, Any]:
    """The keys on the draft length where it is not one number."""
    if variant.has_fixed_length:
        return {}
    rows = rows_of(scenario, variant)
    if rows is None:
        reason = f"vLLM has no policy that chooses K; {variant.chain_length} is written"
    elif release < SCHEDULE_SINCE:
        reason = f"vLLM before {dotted(SCHEDULE_SINCE)} has no K by batch"
    elif scenario.hardware.attention_dp > 1:
        reason = "vLLM ignores a K by batch under data parallelism"
    else:
        last_batch = max_num_seqs(scenario)
        triples = [[low, last_batch if high is None else high, length] for low, high, length in rows]
        return {"num_speculative_tokens_per_batch_size": triples}
    length = single_length(scenario, variant)
    unstated.append(Unstated("draft_length", f"{draft_length_text(variant)}: {reason}"))
    return {"num_speculative_tokens": length}


def _is_own_module(scenario: Scenario, variant: Variant) -> bool:
    """Whether the drafter lies in the target's own checkpoint."""
    own = methods()[variant.method].draft_from_target
    return own and served_name(variant.draft or "") == served_name(scenario.target.model)
