"""Which options the engines have, in which versions, and what replaced those that are gone.

vLLM: `config/speculative.py` of 0.17, 0.27, 0.32 and 0.33, older ones from release notes. SGLang:
`server_args.py` 0.5.23. TensorRT-LLM: `llmapi/llm_args.py` 1.2 to 1.4.0rc4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from calibration.launch.vllm import MTP_SINCE, PROBABILISTIC_SINCE, SCHEDULE_SINCE

Release = tuple[int, ...]

SCHEDULE_KEY = "num_speculative_tokens_per_batch_size"


class Removed(NamedTuple):
    """A key that is gone: without effect since `dead`, refused since `gone`."""

    dead: Release
    gone: Release
    instead: str


REMOVED_KEYS: Mapping[str, Removed] = {
    "disable_by_batch_size": Removed((0, 10), (0, 17), f"{SCHEDULE_KEY}, from 0.22 on"),
    "speculative_token_tree": Removed((0, 27), (0, 27), "a chain: num_speculative_tokens alone"),
}
OLD_FLAGS: Mapping[str, str] = {
    "--speculative-model": "model",
    "--num-speculative-tokens": "num_speculative_tokens",
    "--speculative-draft-tensor-parallel-size": "draft_tensor_parallel_size",
    "--speculative-max-model-len": "max_model_len",
    "--speculative-disable-by-batch-size": SCHEDULE_KEY,
    "--ngram-prompt-lookup-max": "prompt_lookup_max",
    "--ngram-prompt-lookup-min": "prompt_lookup_min",
}
"""vLLM's flags before 0.8 → the key of `--speculative-config` that replaced them."""
NEW_IN: Mapping[str, Release] = {
    SCHEDULE_KEY: SCHEDULE_SINCE,
    "draft_sample_method": PROBABILISTIC_SINCE,
    "rejection_sample_method": PROBABILISTIC_SINCE,
    "synthetic_acceptance_rates": PROBABILISTIC_SINCE,
    "synthetic_acceptance_length": PROBABILISTIC_SINCE,
    "suffix_decoding_max_tree_depth": MTP_SINCE,
    "suffix_decoding_max_cached_requests": MTP_SINCE,
    "suffix_decoding_max_spec_factor": MTP_SINCE,
    "suffix_decoding_min_token_prob": MTP_SINCE,
}
"""Key of vLLM → the first version that is known to have it."""
_VLLM = (
    "method model num_speculative_tokens revision code_revision quantization draft_load_config "
    "draft_tensor_parallel_size max_model_len moe_backend attention_backend kv_cache_dtype enforce_eager "
    "parallel_drafting draft_lm_head_quantization use_local_argmax_reduction use_heterogeneous_vocab "
    "prompt_lookup_min prompt_lookup_max disable_padded_drafter_batch disable_eagle_block_drop "
    "disable_lookahead_block_hashes index_share_for_mtp_iteration enable_adaptive_verification "
    "dspark_draft_topk xpress_topc"
).split()
_SGLANG = (
    "algorithm draft_model_path draft_model draft_model_revision draft_load_format draft_model_quantization "
    "draft_kv_cache_dtype num_steps eagle_topk num_draft_tokens dflash_block_size dspark_block_size "
    "use_rejection_sampling use_block_verification accept_threshold_single accept_threshold_acc token_map "
    "draft_window_size draft_sink_size adaptive adaptive_config attention_mode moe_runner_backend "
    "ngram_min_bfs_breadth ngram_max_bfs_breadth ngram_match_type ngram_max_trie_depth ngram_capacity"
).split()
_TRTLLM = (
    "decoding_type max_draft_len speculative_model speculative_model_dir use_dynamic_tree "
    "dynamic_tree_max_topK max_total_draft_tokens num_nextn_predict_layers "
    "use_relaxed_acceptance_for_thinking relaxed_topk relaxed_delta max_matching_ngram_size "
    "is_public_pool is_keep_all is_use_oldest use_sa_spec sa_spec_threshold sa_config max_concurrency "
    "draft_len_schedule acceptance_rate_window_size acceptance_rate_threshold use_rejection_sampling "
    "allow_advanced_sampling eagle3_one_model eagle3_layers_to_capture"
).split()
KNOWN_KEYS: Mapping[str, frozenset[str]] = {
    "vllm": frozenset((*_VLLM, *NEW_IN)),
    "sglang": frozenset(_SGLANG),
    "trtllm": frozenset(_TRTLLM),
}
"""Engine → the keys of its speculative configuration; SGLang's without `--speculative-`."""
_LEFT_TO_OTHERS = frozenset((*REMOVED_KEYS, "tensor_parallel_size"))
"""Keys that lints of their own report."""
_ALGORITHM = "SGLang: --speculative-algorithm; vLLM: --speculative-config '{\"method\": …}'"
NEVER: Mapping[str, str] = {
    "--speculative_model": "vLLM: --spec-model; SGLang: --speculative-draft-model-path",
    "--spec_decoding_algorithm": _ALGORITHM,
    "--spec-decoding-algorithm": _ALGORITHM,
    "--speculative-decoding": _ALGORITHM,
    "--enable-speculative-decoding": _ALGORITHM,
    "spec_decode_metrics.accepted_tokens_per_request": "1 + vllm:spec_decode_num_accepted_tokens_total ÷ "
    "vllm:spec_decode_num_drafts_total",
}
"""Names that circulate and that no engine has → what to use."""


def known_option(engine: str, key: str) -> bool:
    """Whether an engine has, or had, this key of its speculative configuration."""
    return key in KNOWN_KEYS[engine] or key in _LEFT_TO_OTHERS or key.startswith("fly_")
