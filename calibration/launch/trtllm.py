"""TensorRT-LLM: the YAML of `trtllm-serve MODEL --config FILE`.

Keys: TensorRT-LLM 1.2 `llmapi/llm_args.py`. `draft_len_schedule` maps the largest batch of a row to its draft
length, and nothing is drafted above the last.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from calibration.launch.command import fixed_drafting, other_weights
from calibration.launch.launch import Artefact, Unstated
from calibration.launch.names import served_name
from calibration.launch.schedule import draft_length_text, max_num_seqs, rows_of, single_length
from simulator.scenario import Scenario, Variant, engine_preset
from simulator.speculation import methods

ENGINE = "trtllm"
NEWEST = "1.2"
CONFIG_FILE = "trtllm.yaml"
METHODS: Mapping[str, str] = {
    "eagle3": "Eagle3",
    "mtp": "MTP",
    "draft_model": "Draft_Target",
    "ngram": "NGram",
}
"""Method of a scenario → `decoding_type`. `Eagle` is an alias of Eagle3, so EAGLE-1 heads have none."""


def write(scenario: Scenario, variant: Variant | None, version: str) -> Artefact:
    """The configuration file of TensorRT-LLM, below the command that takes it as a comment."""
    unstated: list[Unstated] = []
    config = _config(scenario, unstated)
    if variant is not None:
        if variant.method not in METHODS:
            reason = Unstated("method", f"no options of TensorRT-LLM are written for {variant.method}")
            return Artefact(ENGINE, version, "", unstated=(reason,))
        config["speculative_config"] = _speculation(scenario, variant, unstated)
    command = f"# trtllm-serve {served_name(scenario.target.model)} --config {CONFIG_FILE}\n"
    return Artefact(ENGINE, version, command + _yaml(config), unstated=tuple(unstated))


def _yaml(data: Mapping[str, Any]) -> str:
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # keeps the order of keys
    stream = io.StringIO()
    yaml.dump(dict(data), stream)
    return stream.getvalue()


def _config(scenario: Scenario, unstated: list[Unstated]) -> dict[str, Any]:
    hardware, engine, target = scenario.hardware, scenario.engine, scenario.target
    config: dict[str, Any] = {"tensor_parallel_size": hardware.tensor_parallel}
    if hardware.expert_parallel > 1:
        config["moe_expert_parallel_size"] = hardware.expert_parallel
    if hardware.attention_dp == hardware.tensor_parallel > 1:
        config["enable_attention_dp"] = True
    elif hardware.attention_dp > 1:
        unstated.append(
            Unstated("hardware.attention_dp", "TensorRT-LLM has one group for each GPU, or one in all")
        )
    unstated += other_weights(scenario)
    if engine.max_num_seqs is not None:
        config["max_batch_size"] = engine.max_num_seqs
        config["cuda_graph_config"] = {"enable_padding": True, "max_batch_size": engine.max_num_seqs}
    if engine.max_num_batched_tokens is not None:
        config["max_num_tokens"] = engine.max_num_batched_tokens
    config["enable_chunked_prefill"] = engine.chunked_prefill
    cache: dict[str, Any] = {"enable_block_reuse": engine.prefix_caching}
    if target.kv_cache == "fp8":
        cache["dtype"] = "fp8"
    if engine_preset(scenario)[0].engine == "TensorRT-LLM" and engine.gpu_memory_utilization is not None:
        cache["free_gpu_memory_fraction"] = engine.gpu_memory_utilization
    return config | {"kv_cache_config": cache}


def _speculation(scenario: Scenario, variant: Variant, unstated: list[Unstated]) -> dict[str, Any]:
    """`speculative_config` of a variant; settings without an option join `unstated`."""
    method = methods()[variant.method]
    config: dict[str, Any] = {
        "decoding_type": METHODS[variant.method],
        "max_draft_len": variant.chain_length,
    }
    if variant.draft is not None and not method.draft_from_target:
        config["speculative_model"] = served_name(variant.draft)
    rows = rows_of(scenario, variant)
    if rows is not None:
        most = max_num_seqs(scenario)
        ends = {most if high is None else high: k for low, high, k in rows if high is not None or k}
        config["draft_len_schedule"] = ends
    elif not variant.has_fixed_length:
        length = single_length(scenario, variant)
        text = f"{draft_length_text(variant)}: TensorRT-LLM has no such policy; {length} is written"
        unstated.append(Unstated("draft_length", text))
        config["max_draft_len"] = length
    tree = variant.tree
    if tree is not None and tree.parents is None and tree.dynamic and variant.method == "eagle3":
        assert tree.nodes is not None
        config |= {
            "max_draft_len": tree.depth,
            "use_dynamic_tree": True,
            "dynamic_tree_max_topK": tree.top_k,
            "max_total_draft_tokens": tree.nodes - 1,
        }
    elif tree is not None:
        unstated.append(Unstated("tree", "TensorRT-LLM grows trees anew each round, for EAGLE-3 only"))
    unstated += fixed_drafting(scenario, variant, "TensorRT-LLM")
    return config
