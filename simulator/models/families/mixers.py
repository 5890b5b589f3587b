"""Token mixers by softmax attention: GQA and MHA, sliding windows, MLA, sparse and compressed attention.

Sources of the shapes: the published modelling code of each family, as in transformers 5.24 (`modeling_*.py`)
and SGLang 0.5.23 (`sglang/srt/models`), where engines fuse projections.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.models.families.fields import MOST_HEADS, ConfigFields
from simulator.models.families.quantisation import Modules
from simulator.models.model import Attention, LinearLayer


@dataclass(frozen=True)
class Mixer:
    """A layer's attention with its small parameters (norms, sinks, convolutions)."""

    attention: Attention
    other_parameters: int = 0


@dataclass(frozen=True)
class Indexer:
    """What picks the cache entries a query reads."""

    heads: int
    head_dim: int
    topk_tokens: int


@dataclass(frozen=True)
class Gqa:
    """Grouped-query attention, full or sliding."""

    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    qkv_bias: bool = False
    o_bias: bool = False
    gate: int = 0  # output gates per head: 0 none, 1 one, head_dim one per channel
    norm: str = ""  # "": no query and key norm | "head": over a head | "all": over all heads
    sinks: bool = False
    value_is_key: bool = False
    indexer: Indexer | None = None

    def mixer(
        self,
        modules: Modules,
        hidden: int,
        window_tokens: int | None,
        root: str = "self_attn",
        *,
        input_width: int = 0,
    ) -> Mixer:
        """`input_width`: width of what q, k and v read when it is not `hidden` (EAGLE-3: 2 x hidden)."""
        key, value = self.kv_heads * self.head_dim, self.kv_heads * self.v_head_dim
        kv = key + (0 if self.value_is_key else value)
        query = self.heads * self.head_dim + self.heads * self.gate
        wide = input_width or hidden
        linears: tuple[LinearLayer, ...] = (
            modules.linear(
                "qkv",
                f"{root}.q_proj",
                query + kv,
                wide,
                kv_features=kv,
                kv_heads=self.kv_heads,
                bias=self.qkv_bias,
            ),
            modules.linear(
                "o", f"{root}.o_proj", hidden, self.heads * self.v_head_dim, "row", bias=self.o_bias
            ),
        )
        other = self.heads * int(self.sinks)
        if self.norm == "head":
            other += 2 * self.head_dim
        elif self.norm == "all":
            other += (self.heads + self.kv_heads) * self.head_dim
        index_bytes = 0
        if self.indexer is not None:
            query_and_key = (self.indexer.heads + 1) * self.indexer.head_dim
            linears += (
                modules.linear("index_qk", f"{root}.index_q_proj", query_and_key, hidden, "replicated"),
            )
            other += 2 * self.indexer.head_dim
            index_bytes = 2 * self.indexer.head_dim
        kind = "sparse" if self.indexer else "full" if window_tokens is None else "sliding"
        return Mixer(
            Attention(
                kind,
                self.heads,
                self.kv_heads,
                self.head_dim,
                self.v_head_dim,
                linears,
                window_tokens=window_tokens,
                topk_tokens=self.indexer.topk_tokens if self.indexer else None,
                index_bytes_per_token=index_bytes,
                index_heads=self.indexer.heads if self.indexer else 0,
                index_head_dim=self.indexer.head_dim if self.indexer else 0,
            ),
            other,
        )


def read_gqa(config: ConfigFields, hidden: int) -> Gqa:
    """The attention of most decoders; sliding layers may differ, see `decoder.py`."""
    heads = config.count("num_attention_heads", high=MOST_HEADS)
    kv_heads = _kv_heads(config, heads)
    if kv_heads > heads or heads % kv_heads:
        config.disagree(
            "num_key_value_heads",
            kv_heads,
            "does not fit num_attention_heads",
            f"a divisor of {heads} is allowed",
        )
    head_dim = _head_dim(config, hidden, heads)
    model_type = config.word("model_type")
    gpt_oss, qwen2 = model_type == "gpt_oss", model_type.startswith("qwen2") or model_type == "mimo"
    gate = 0
    gated = config.flag("attn_output_gate", model_type in ("qwen3_next", "afmoe"))
    if gated or config.flag("attention_output_gate"):
        gate = head_dim
    elif config.flag("use_head_wise_attn_gate", model_type.startswith(("step3p5", "step3p7"))):
        gate = 1
    bias = config.flag("attention_bias", gpt_oss or qwen2)
    bias = bias or config.flag("qkv_bias") or config.flag("add_qkv_bias")
    return Gqa(
        heads,
        kv_heads,
        head_dim,
        config.count("v_head_dim", default=head_dim),
        qkv_bias=bias,
        o_bias=config.flag("attention_out_bias", bias and not (qwen2 or "glm" in model_type)),
        gate=gate,
        norm=_norm(config, model_type),
        sinks=gpt_oss or config.flag("add_full_attention_sink_bias"),
        indexer=_block_indexer(config),
    )


def _kv_heads(config: ConfigFields, heads: int) -> int:
    """One where all heads share it (Falcon, StarCoder), as many as there are heads where nothing is
    stated.
    """
    older = config.word("model_type") in ("falcon", "gpt_bigcode")
    if config.flag("multi_query", older) and not config.flag("new_decoder_architecture"):
        return 1
    names = ("num_key_value_heads", "num_attention_groups")
    inner = None if config.has(*names) else config.child("attn_config")  # DBRX
    return (inner or config).count(*names, default=heads, high=MOST_HEADS)


def _head_dim(config: ConfigFields, hidden: int, heads: int) -> int:
    head_dim = config.optional_count("head_dim", "attention_head_dim")
    if head_dim is None:
        if hidden % heads:
            config.disagree(
                "num_attention_heads",
                heads,
                "does not divide hidden_size and there is no head_dim",
                f"a divisor of {hidden} is allowed",
            )
        head_dim = max(hidden // heads, 1)
    return head_dim


def _norm(config: ConfigFields, model_type: str) -> str:
    if config.word("qk_norm_type") == "per_layer":
        return "all"
    named = model_type.startswith(("qwen3", "gemma3", "gemma4", "step3p5", "step3p7", "dots1", "afmoe"))
    stated = config.flag("use_qk_norm") or config.values.get("qk_norm") is True
    return "head" if named or (stated and not model_type.startswith("llama4")) else ""


def _block_indexer(config: ConfigFields) -> Indexer | None:
    """Block-sparse attention as MiniMax-M3 states it: top blocks of keys, chosen with small index heads."""
    sparse = config.child("sparse_attention_config")
    if sparse is None or not sparse.flag("use_sparse_attention", True):
        return None
    blocks = sparse.count("sparse_topk_blocks") + sparse.count("sparse_local_block", default=0, low=0)
    return Indexer(
        sparse.count("sparse_num_index_heads", high=MOST_HEADS),
        sparse.count("sparse_index_dim"),
        blocks * sparse.count("sparse_block_size"),
    )
