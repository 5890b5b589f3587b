"""Decoders given block by block: Nemotron-H (each block a mixer or an MLP)
and searched architectures (NAS)."""

from __future__ import annotations

from simulator.models.families.decoder import Stack, collect
from simulator.models.families.fields import MOST_HEADS, MOST_LAYERS, ConfigFields
from simulator.models.families.mixers import Gqa, read_gqa
from simulator.models.families.mlps import MlpPlan, read_pattern_mlps
from simulator.models.families.quantisation import Modules, Quantisation
from simulator.models.families.recurrent import read_mamba2
from simulator.models.model import Layer, LinearLayer, MtpModule

_BLOCKS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}


def read_pattern(config: ConfigFields, quantisation: Quantisation, hidden: int) -> Stack:
    """Nemotron-H: `hybrid_override_pattern` (a letter per block)
    or `layers_block_type` (a word per block)."""
    blocks = _blocks(config, "hybrid_override_pattern", "layers_block_type")
    ahead_blocks = _blocks(config, "mtp_hybrid_override_pattern", "mtp_layers_block_type")
    used = set(blocks) | set(ahead_blocks)
    if not blocks:
        config.add(
            "hybrid_override_pattern", None, "is missing or empty", "a letter for each block is needed"
        )
    stated = config.optional_count("num_hidden_layers", high=MOST_LAYERS)
    if stated is not None and stated != len(blocks):
        config.disagree(
            "num_hidden_layers",
            stated,
            f"differs from the {len(blocks)} blocks listed",
            f"{len(blocks)} is expected",
        )
    attention = read_gqa(config, hidden) if "attention" in used else None
    mamba = read_mamba2(config) if "mamba" in used else None
    mlps = read_pattern_mlps(config, hidden)
    if "mlp" in used:
        config.count("intermediate_size")
    if "moe" in used and not mlps.experts:
        config.add(
            "n_routed_experts",
            None,
            "is missing",
            "a whole number of at least 2 is needed for the moe blocks",
        )

    def layer(index: int, kind: str) -> Layer:
        modules = Modules(quantisation, f"backbone.layers.{index}")
        if kind == "mamba" and mamba is not None:
            mixed = mamba.mixer(modules, hidden)
            return Layer(1, mixed.attention, other_parameters=mixed.other_parameters + hidden)
        if kind == "attention" and attention is not None:
            mixed = attention.mixer(modules, hidden, None, "mixer")
            return Layer(1, mixed.attention, other_parameters=mixed.other_parameters + hidden)
        mlp = (
            mlps.sparse(modules, "mixer") if kind == "moe" and mlps.experts else mlps.plain(modules, "mixer")
        )
        return Layer(1, None, mlp.linears, mlp.experts, mlp.other_parameters + hidden)

    mtp = None
    ahead = config.optional_count("num_nextn_predict_layers", low=0, high=64) or 0
    if ahead and ahead_blocks:
        layers = collect(layer(len(blocks) + index, kind) for index, kind in enumerate(ahead_blocks))
        mtp = MtpModule(layers, LinearLayer("fc", hidden, 2 * hidden, shard="replicated"), ahead, 3 * hidden)
    return Stack(collect(layer(index, kind) for index, kind in enumerate(blocks)), mtp, hidden)


def _blocks(config: ConfigFields, letters: str, words: str) -> list[str]:
    """The kinds of all blocks; empty when neither field is there."""
    pattern = config.word(letters)
    if pattern:
        for index, letter in enumerate(pattern):
            if letter not in _BLOCKS:
                config.add(
                    letters, letter, f"has an unknown letter at {index}", f"known: {' '.join(_BLOCKS)}"
                )
                return []
        return [_BLOCKS[letter] for letter in pattern[:MOST_LAYERS]]
    stated = config.entries(words) or []
    kinds = config.per_layer(words, min(len(stated), MOST_LAYERS), tuple(_BLOCKS.values()))
    return [str(kind) for kind in kinds or []]


def read_nas(config: ConfigFields, quantisation: Quantisation, hidden: int) -> Stack:
    """`block_configs`: attention and MLP of every layer on their own,
    either of them left out or a single matrix."""
    heads = config.count("num_attention_heads", high=MOST_HEADS)
    head_dim = config.count("head_dim", default=max(hidden // heads, 1))
    bias = config.flag("attention_bias")
    layers = []
    blocks = config.entries("block_configs") or []
    if not blocks:
        config.add("block_configs", None, "is empty", "an object for each layer is needed")
    for index, block in enumerate(blocks[:MOST_LAYERS]):
        fields = config.inner(block, "block_configs", index) if isinstance(block, dict) else None
        attention = fields.child("attention") if fields else None
        ffn = fields.child("ffn") if fields else None
        if fields is None or attention is None or ffn is None:
            config.add(
                "block_configs",
                block,
                "is not usable",
                "an object with attention and ffn is allowed",
                index=index,
            )
            break
        modules = Modules(quantisation, f"model.layers.{index}")
        layers.append(
            _nas_layer(attention, ffn, modules, hidden, Gqa(heads, heads, head_dim, head_dim, bias, bias))
        )
    return Stack(collect(layers), None, hidden)


def _nas_layer(attention: ConfigFields, ffn: ConfigFields, modules: Modules, hidden: int, gqa: Gqa) -> Layer:
    linears: tuple[LinearLayer, ...] = ()
    mixed, norms = None, 0
    if attention.flag("replace_with_linear"):
        linears += (modules.linear("attention_linear", "self_attn.linear_attn", hidden, hidden),)
        norms += hidden
    elif not attention.flag("no_op"):
        group = attention.count("n_heads_in_group", high=MOST_HEADS)
        kv_heads = max(gqa.heads // group, 1)
        window = attention.optional_count("window_length")
        shape = Gqa(gqa.heads, kv_heads, gqa.head_dim, gqa.v_head_dim, gqa.qkv_bias, gqa.o_bias)
        mixed, norms = shape.mixer(modules, hidden, window), norms + hidden
    if ffn.flag("replace_with_linear"):
        linears += (modules.linear("mlp_linear", "mlp.linear_mlp", hidden, hidden),)
        norms += hidden
    elif not ffn.flag("no_op"):
        width = ffn.optional_count("intermediate_size") or _ffn_width(
            ffn.number("ffn_mult", 0.0, 0.0, 64.0), hidden
        )
        if width < 1:
            ffn.add("ffn_mult", None, "is missing", "a number above 0 is needed")
        linears += MlpPlan(hidden, 3, max(width, 1)).plain(modules).linears
        norms += hidden
    return Layer(
        1, mixed.attention if mixed else None, linears, None, norms + (mixed.other_parameters if mixed else 0)
    )


def _ffn_width(ffn_mult: float, hidden: int) -> int:
    """Width from the multiplier, rounded up to 256 (`_ffn_mult_to_intermediate_size` of the model's code)."""
    return -(-int(2 * ffn_mult * hidden / 3) // 256) * 256
