"""Fields that change what a model is made of and that nothing here reads: refused, never passed over.

A config with one of them would be read without it, as another model of a plausible size. To read one: take
it out of the table.
"""

from __future__ import annotations

from typing import NamedTuple

from simulator.models.families.fields import ConfigFields


class _Unread(NamedTuple):
    """Fields of one idea, and the form of it that is read. `neutral` changes nothing (a text:
    the value of the field of that name), nor do null, false, 0 and what is empty."""

    names: tuple[str, ...]
    what: str
    known: str = ""
    neutral: int | str = 0


_UNREAD = (
    _Unread(
        ("layer_group_size", "attn_type_list"),
        "softmax attention in some layers, linear or lightning attention in the others",
        "layer_types, linear_attn_config, full_attention_interval",
        neutral=1,
    ),
    _Unread(
        ("attn_layer_period",),
        "recurrent layers among attention",
        "hybrid_override_pattern, layers_block_type, layer_types",
        neutral=1,
    ),
    _Unread(
        (
            "attn_layer_indices",
            "full_attn_idxs",
            "mamba_d_ssm",
            "mb_per_layer",
            "_block_types",
            "mixer_types",
            "block_types",
        ),
        "recurrent or convolution layers among or next to attention",
        "hybrid_override_pattern, layers_block_type, layer_types",
    ),
    _Unread(("hc_count", "hc_lowrank"), "low-rank hyper-connections", "hc_mult"),
    _Unread(("altup_num_inputs", "laurel_rank"), "further residual streams", "hc_mult"),
    _Unread(("ple_layer_ids", "hidden_size_per_layer_input"), "embeddings of their own for single layers"),
    _Unread(("ngram_vocab_size_base", "ngram_vocab_size_ratio", "emb_neighbor_num"), "embeddings of n-grams"),
    _Unread(
        ("indexer_n_heads", "indexer_budget"),
        "attention to blocks that an indexer picks",
        "index_n_heads, sparse_attention_config",
    ),
    _Unread(("index_kpool",), "an index with one entry for several tokens", "index_n_heads"),
    _Unread(("dense_attention_every_n_layers",), "attention to some blocks in some layers", neutral=1),
    _Unread(
        ("num_kv_shared_layers", "kv_source_layers", "use_cla"),
        "layers that reuse the keys and values of others",
    ),
    _Unread(("cross_attention_layers",), "layers that attend to images"),
    _Unread(("share_q_dim",), "queries factored over one shared projection", "kv_lora_rank"),
    _Unread(
        ("num_key_value_heads_per_layer", "ffn_multipliers"), "another shape for every layer", "block_configs"
    ),
    _Unread(("use_double_wide_mlp",), "wider MLPs in some layers", "block_configs"),
    _Unread(("parallel_attn_mlp_res",), "a dense MLP next to the experts", "enable_moe_block, residual_moe"),
    _Unread(
        ("expert_layer_period", "moe_layer_frequency"),
        "experts in some layers only",
        "first_k_dense_replace, decoder_sparse_step, moe_layer_freq, mlp_layer_types",
        neutral=1,
    ),
    _Unread(("total_ut_steps", "loop_num"), "layers that a token passes several times", neutral=1),
    _Unread(("word_embed_proj_dim",), "embeddings of another width than the layers", neutral="hidden_size"),
)


def refuse_unread(config: ConfigFields) -> None:
    """Record a problem for every field of the table that the config gives a value."""
    for row in _UNREAD:
        neutral = config.values.get(row.neutral) if isinstance(row.neutral, str) else row.neutral
        for name in row.names:
            value = config.values.get(name)
            if _has_effect(value, neutral):
                known = f"known: {row.known}" if row.known else "a model without is expected"
                config.add(name, value, f"means {row.what}, which is not read", known)


def _has_effect(value: object, neutral: object) -> bool:
    """Entries of a list are kinds of layers where a kind is neutral, and numbers of layers elsewhere."""
    if isinstance(value, list):
        stated = [entry for entry in value if entry is not None and entry is not False]
        return any(entry != neutral for entry in stated) if neutral else bool(stated)
    return bool(value) and value != neutral
