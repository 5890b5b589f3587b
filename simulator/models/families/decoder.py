"""Decoders whose every layer is a token mixer and an MLP:
which layer has which, and the modules that predict ahead."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from simulator.models.families.fields import MOST_HEADS, MOST_LAYERS, MOST_TOKENS, ConfigFields
from simulator.models.families.latent import read_compressed, read_mla
from simulator.models.families.mixers import Gqa, Mixer, read_gqa
from simulator.models.families.mlps import Mlp, is_longcat, read_mlps
from simulator.models.families.quantisation import Modules, Quantisation
from simulator.models.families.recurrent import read_delta_net, read_kda, read_mamba2
from simulator.models.model import Layer, LinearLayer, MtpModule

FULL, SLIDING, LINEAR, MAMBA = "full_attention", "sliding_attention", "linear_attention", "mamba"
_CHUNKED = "chunked_attention"
# DeepSeek-V4: tokens per stored entry of a layer; 0: a window only.
_RATIOS = {SLIDING: 0, "compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
_MTP_COUNTS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
# Their multi-token-prediction layers are small on purpose: a dense MLP, and a sliding window where the model
# has one (SGLang 0.5.23 `mimo_v2_nextn.py`, `step3p5_mtp.py`, `ernie4_eagle.py`, `longcat_flash_nextn.py`);
# elsewhere such a layer is like the model's last one.
_SMALL_MTP = ("mimo_v2", "step3p5", "step3p7", "ernie4_5_moe", "longcat_flash")
_FOUR_NORMS = ("gemma2", "gemma3", "afmoe")  # and glm4, by its whole name
_LEARNED_POSITIONS = {"gpt2": 0, "gpt_bigcode": 0, "opt": 2}  # and rows before the first position
_OWN_HEAD_MTP = ("step3p5", "step3p7")


class Stack(NamedTuple):
    """What a config describes of a model between its embedding and its head."""

    layers: tuple[Layer, ...]
    mtp: MtpModule | None = None
    other_parameters: int = 0


def collect(layers: Iterable[Layer]) -> tuple[Layer, ...]:
    """Equal layers counted together, in the order of their first appearance."""
    counts: dict[Layer, int] = {}
    for layer in layers:
        single = replace(layer, count=1)
        counts[single] = counts.get(single, 0) + layer.count
    return tuple(replace(layer, count=count) for layer, count in counts.items())


def read_decoder(config: ConfigFields, quantisation: Quantisation, hidden: int) -> Stack:
    """The stack of a decoder; `collect`s equal layers."""
    count = _layer_count(config)
    mlps = read_mlps(config, hidden, count)
    mixer = _mixers(config, hidden, count)
    norms = _norm_parameters(config, hidden)
    hyper = config.optional_count("hc_mult", high=64) or 0

    def layer(mixed: Mixer, mlp: Mlp) -> Layer:
        linears, other = mlp.linears, mixed.other_parameters + mlp.other_parameters + norms
        if hyper:
            rows = (2 + hyper) * hyper
            linears = (
                *linears,
                LinearLayer("hyper_connection", rows, hyper * hidden, shard="replicated", count=2),
            )
            other += 2 * (rows + 3)
        return Layer(1, mixed.attention, linears, mlp.experts, other)

    def modules(index: int) -> Modules:
        return Modules(quantisation, f"model.layers.{index}")

    layers = [layer(mixer(i, modules(i)), mlps.layer(i, modules(i))) for i in range(count)]
    ahead = config.optional_count(*_MTP_COUNTS, low=0, high=64) or 0
    mtp = None
    if ahead:
        small = config.word("model_type").startswith(_SMALL_MTP)
        routed = bool(mlps.experts) and not small
        mlp = (
            mlps.sparse(modules(count))
            if routed
            else mlps.plain(modules(count), width=mlps.dense or mlps.expert)
        )
        fc = LinearLayer("fc", hidden, 2 * hidden, shard="replicated")
        own_head = config.word("model_type").startswith(_OWN_HEAD_MTP)
        mtp = MtpModule((layer(mixer(count, modules(count)), mlp),), fc, ahead, 3 * hidden, own_head)
    other = hidden + (hyper * hyper * hidden + hyper + 1 if hyper else 0) + _positions(config, hidden)
    return Stack(collect(layers), mtp, other)


def _layer_count(config: ConfigFields) -> int:
    """Layers of one mixer and one MLP; LongCat-Flash calls two of them one in its `num_layers`."""
    stated = config.count("num_hidden_layers", high=MOST_LAYERS)
    return 2 * stated if is_longcat(config) and config.values.get("num_hidden_layers") is None else stated


def _positions(config: ConfigFields, hidden: int) -> int:
    """Parameters of positions that are learned."""
    before = _LEARNED_POSITIONS.get(config.word("model_type"))
    if before is None:
        return 0
    return (config.count("max_position_embeddings", high=MOST_TOKENS) + before) * hidden


def _norm_parameters(config: ConfigFields, hidden: int) -> int:
    """Norms of one layer around its mixer and its MLP, and the like."""
    model_type = config.word("model_type")
    if model_type.startswith("gemma4"):
        experts = config.optional_count("num_experts", low=0, high=MOST_HEADS) or 0
        return (8 * hidden + experts) if config.flag("enable_moe_block") else 4 * hidden
    if model_type.startswith(_FOUR_NORMS) or model_type in ("glm4", "glm4v_text"):
        return 4 * hidden
    vectors = 6 if config.has("attn_res_block_size") else 2  # Kimi-K3: two norms, two mixing vectors more
    return vectors * hidden


def _mixers(config: ConfigFields, hidden: int, layers: int) -> Callable[[int, Modules], Mixer]:
    """What makes the mixer of layer i; i = layers is a multi-token-prediction module."""
    if config.has("compress_ratios", "o_lora_rank"):
        return _compressed_mixers(config, hidden, layers)
    kinds = _kinds(config, layers)
    ahead = SLIDING if config.word("model_type").startswith(_SMALL_MTP) else FULL
    kinds.append(ahead if ahead in kinds else FULL)
    makers: dict[str, Callable[[int, Modules], Mixer]] = {}
    if LINEAR in kinds:
        linear = config.child("linear_attn_config")
        recurrent = read_kda(linear) if linear is not None else read_delta_net(config)
        makers[LINEAR] = lambda index, modules: recurrent.mixer(modules, hidden)
    if MAMBA in kinds:
        mamba = read_mamba2(config)
        makers[MAMBA] = lambda index, modules: mamba.mixer(modules, hidden, "mamba")
    if config.has("kv_lora_rank"):
        mla, owners = read_mla(config), config.per_layer("indexer_types", layers, ("full", "shared"))
        owned = [owner == "full" for owner in owners] if owners else [True] * layers
        makers[FULL] = lambda index, modules: mla.mixer(
            modules, hidden, own_index=index >= layers or owned[index]
        )
        makers[SLIDING] = makers[FULL]
    else:
        makers |= _gqa_mixers(config, hidden, layers)
    return lambda index, modules: makers[kinds[index]](index, modules)


def _gqa_mixers(config: ConfigFields, hidden: int, layers: int) -> dict[str, Callable[[int, Modules], Mixer]]:
    base = read_gqa(config, hidden)
    window = config.optional_count(
        "sliding_window", "sliding_window_size", "attention_chunk_size", high=MOST_TOKENS
    )
    full, sliding = base, base
    if config.has("global_head_dim", "num_global_key_value_heads"):
        # Gemma 4 widens the heads of its full layers
        wide = config.count("global_head_dim", default=base.head_dim)
        few = config.count("num_global_key_value_heads", default=base.kv_heads, high=MOST_HEADS)
        full = replace(
            base, kv_heads=few, head_dim=wide, v_head_dim=wide, value_is_key=config.flag("attention_k_eq_v")
        )
    elif config.has("swa_num_attention_heads"):  # MiMo-V2
        head_dim = config.count("swa_head_dim", default=base.head_dim)
        sliding = replace(
            base,
            heads=config.count("swa_num_attention_heads", high=MOST_HEADS),
            head_dim=head_dim,
            kv_heads=config.count("swa_num_key_value_heads", default=base.kv_heads, high=MOST_HEADS),
            v_head_dim=config.count("swa_v_head_dim", default=head_dim),
            sinks=config.flag("add_swa_attention_sink_bias"),
        )
    other = config.child("attention_other_setting")
    if other is not None:  # Step-3.5 and 3.7: sliding layers with more heads
        head_dim = other.count("head_dim", default=base.head_dim)
        sliding = replace(
            base,
            head_dim=head_dim,
            v_head_dim=head_dim,
            heads=other.count("num_attention_heads", default=base.heads, high=MOST_HEADS),
            kv_heads=other.count("num_attention_groups", default=base.kv_heads, high=MOST_HEADS),
        )
    sparse = config.child("sparse_attention_config")
    indexed = sparse.per_layer("sparse_attention_freq", layers, (0, 1)) if sparse is not None else None
    plain: Gqa = replace(full, indexer=None)

    def full_mixer(index: int, modules: Modules) -> Mixer:
        own = indexed is None or index >= layers or indexed[index] == 1
        return (full if own else plain).mixer(modules, hidden, None)

    return {FULL: full_mixer, SLIDING: lambda index, modules: sliding.mixer(modules, hidden, window)}


def _compressed_mixers(config: ConfigFields, hidden: int, layers: int) -> Callable[[int, Modules], Mixer]:
    compressed = read_compressed(config)
    ratios = config.per_layer("compress_ratios", layers, tuple(_RATIOS.values()))
    kinds = config.per_layer("layer_types", layers, tuple(_RATIOS)) if ratios is None else None
    if ratios is None and kinds is None:
        config.add("compress_ratios", None, "is missing", f"a list of {layers} ratios (0, 4, 128) is needed")
    per_layer = [int(str(ratio)) for ratio in ratios or []] or [_RATIOS[str(kind)] for kind in kinds or []]
    per_layer += [0] * (layers + 1 - len(per_layer))  # the multi-token-prediction module: window only

    def mixer(index: int, modules: Modules) -> Mixer:
        return compressed.mixer(modules, hidden, per_layer[index])

    return mixer


def _kinds(config: ConfigFields, layers: int) -> list[str]:
    """full, sliding, linear or mamba for every layer."""
    stated = config.per_layer("layer_types", layers, (FULL, SLIDING, LINEAR, MAMBA, _CHUNKED, "attention"))
    if stated is not None:
        kinds = [
            SLIDING if kind == _CHUNKED else FULL if kind == "attention" else str(kind) for kind in stated
        ]
        if SLIDING in kinds:
            config.count("sliding_window", "sliding_window_size", "attention_chunk_size", high=MOST_TOKENS)
        return kinds
    linear = config.child("linear_attn_config")
    if linear is not None:
        full = {entry for entry in linear.entries("full_attn_layers") or [] if isinstance(entry, int)}
        return [FULL if index + 1 in full else LINEAR for index in range(layers)]
    if config.has("linear_num_value_heads"):
        interval = config.count("full_attention_interval", default=4, high=MOST_LAYERS)
        return [FULL if (index + 1) % interval == 0 else LINEAR for index in range(layers)]
    pattern = config.per_layer("hybrid_layer_pattern", layers, (0, 1))
    if pattern is not None:
        return [SLIDING if entry == 1 else FULL for entry in pattern]
    return _sliding_kinds(config, layers)


def _sliding_kinds(config: ConfigFields, layers: int) -> list[str]:
    if config.has("attention_chunk_size"):
        chunked = config.per_layer("no_rope_layers", layers, (0, 1))  # 1: position-encoded, chunked
        if chunked is not None:
            return [SLIDING if entry == 1 else FULL for entry in chunked]
        interval = config.count("no_rope_layer_interval", default=4, high=MOST_LAYERS)
        return [FULL if (index + 1) % interval == 0 else SLIDING for index in range(layers)]
    window = config.optional_count("sliding_window", high=MOST_TOKENS)
    context = config.optional_count("max_position_embeddings", high=MOST_TOKENS) or MOST_TOKENS
    if window is None or window >= context or not config.flag("use_sliding_window", True):
        return [FULL] * layers
    every = config.optional_count("sliding_window_pattern", "_sliding_window_pattern", high=MOST_LAYERS)
    if every is None and config.word("model_type").startswith("gemma2"):
        every = 2
    if every is not None:
        return [FULL if (index + 1) % every == 0 else SLIDING for index in range(layers)]
    first = 0
    if config.flag("use_sliding_window"):
        first = config.optional_count("max_window_layers", low=0, high=MOST_LAYERS) or 0
    return [SLIDING if index >= first else FULL for index in range(layers)]
