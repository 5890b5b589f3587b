"""Token mixers that keep less than a key and a value per head:
MLA, sparse attention over it, compressed attention.

Sources of the shapes as in `mixers.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.models.families.fields import MOST_HEADS, MOST_TOKENS, ConfigFields
from simulator.models.families.mixers import Indexer, Mixer
from simulator.models.families.quantisation import Modules
from simulator.models.model import Attention, LinearLayer

# One index key is stored as fp8 with one fp32 scale (DeepSeek-V3.2 reference and vLLM's indexer cache).
_FP8_SCALE_BYTES = 4


@dataclass(frozen=True)
class Mla:
    """Multi-head latent attention, with DeepSeek sparse attention when there is an indexer."""

    heads: int
    q_lora: int  # 0: the query is projected in one step
    kv_lora: int
    nope: int
    rope: int
    value: int
    output_gate: bool = False
    indexer: Indexer | None = None

    def mixer(
        self,
        modules: Modules,
        hidden: int,
        root: str = "self_attn",
        *,
        own_index: bool = True,
        input_width: int = 0,
    ) -> Mixer:
        """`own_index` False: the layer reuses the entries that an earlier layer's indexer chose (GLM-5.2).

        `input_width` as in `Gqa.mixer`.
        """
        query, down = self.heads * (self.nope + self.rope), self.kv_lora + self.rope
        wide = input_width or hidden
        linears = [
            modules.linear("qkv_down", f"{root}.kv_a_proj_with_mqa", self.q_lora + down, wide, "replicated"),
            modules.linear("q_up", f"{root}.q_b_proj", query, self.q_lora or wide),
            modules.linear("kv_up", f"{root}.kv_b_proj", self.heads * (self.nope + self.value), self.kv_lora),
            modules.linear("o", f"{root}.o_proj", hidden, self.heads * self.value, "row"),
        ]
        other = self.q_lora + self.kv_lora
        if self.output_gate:
            linears.append(modules.linear("gate", f"{root}.g_proj", self.heads * self.value, hidden))
        index = self.indexer
        if index is not None and own_index:
            linears += [
                modules.linear(
                    "index_q",
                    f"{root}.indexer.wq_b",
                    index.heads * index.head_dim,
                    self.q_lora or hidden,
                    "replicated",
                ),
                modules.linear("index_k", f"{root}.indexer.wk", index.head_dim, hidden, "replicated"),
                LinearLayer("index_weights", index.heads, hidden, shard="replicated"),
            ]
            other += 2 * index.head_dim
        return Mixer(
            Attention(
                "sparse" if index else "mla",
                self.heads,
                1,
                self.nope + self.rope,
                self.value,
                tuple(linears),
                kv_lora_rank=self.kv_lora,
                rope_head_dim=self.rope,
                topk_tokens=index.topk_tokens if index else None,
                index_bytes_per_token=index.head_dim + _FP8_SCALE_BYTES if index and own_index else 0,
                index_heads=index.heads if index and own_index else 0,
                index_head_dim=index.head_dim if index and own_index else 0,
            ),
            other,
        )


@dataclass(frozen=True)
class Compressed:
    """DeepSeek-V4 attention: one shared K/V vector a token in a short window, and compressed entries beyond.

    A layer compresses 4 tokens to an entry and indexes the entries, compresses 128 without an index, or
    keeps the window only (DeepSeek-V4 report, sections 2.3.1 and 2.3.2; transformers 5.24
    `modeling_deepseek_v4.py`).
    """

    heads: int
    head_dim: int
    q_lora: int
    o_lora: int
    o_groups: int
    window_tokens: int
    indexer: Indexer

    def mixer(self, modules: Modules, hidden: int, compression: int, root: str = "self_attn") -> Mixer:
        values, index = self.heads * self.head_dim, self.indexer
        linears = [
            modules.linear("qkv_down", f"{root}.q_a_proj", self.q_lora + self.head_dim, hidden, "replicated"),
            modules.linear("q_up", f"{root}.q_b_proj", values, self.q_lora),
            modules.linear(
                "o_down", f"{root}.o_a_proj", self.o_lora, values // self.o_groups, count=self.o_groups
            ),
            modules.linear("o_up", f"{root}.o_b_proj", hidden, self.o_groups * self.o_lora, "row"),
        ]
        other = self.heads + self.q_lora + self.head_dim
        indexed = compression == 4
        if compression > 1:
            overlap = 2 if indexed else 1  # short groups overlap, so each token feeds two entries
            linears.append(LinearLayer("compress", 2 * overlap * self.head_dim, hidden, shard="replicated"))
            other += compression * overlap * self.head_dim + self.head_dim
        if indexed:
            linears += [
                modules.linear(
                    "index_q", f"{root}.indexer.wq_b", index.heads * index.head_dim, self.q_lora, "replicated"
                ),
                LinearLayer("index_compress", 4 * index.head_dim, hidden, shard="replicated"),
                LinearLayer("index_weights", index.heads, hidden, shard="replicated"),
            ]
            other += compression * 2 * index.head_dim + index.head_dim
        return Mixer(
            Attention(
                "compressed",
                self.heads,
                1,
                self.head_dim,
                self.head_dim,
                tuple(linears),
                window_tokens=self.window_tokens,
                topk_tokens=index.topk_tokens if indexed else None,
                index_bytes_per_token=index.head_dim + _FP8_SCALE_BYTES if indexed else 0,
                index_heads=index.heads if indexed else 0,
                index_head_dim=index.head_dim if indexed else 0,
                compression=max(compression, 1),
                shared_kv=True,
            ),
            other,
        )


def read_mla(config: ConfigFields) -> Mla:
    return Mla(
        config.count("num_attention_heads", high=MOST_HEADS),
        config.optional_count("q_lora_rank") or 0,
        config.count("kv_lora_rank"),
        config.count("qk_nope_head_dim"),
        config.count("qk_rope_head_dim", low=0),
        config.count("v_head_dim"),
        output_gate=config.flag("mla_use_output_gate"),
        indexer=_indexer(config) if config.has("index_topk") else None,
    )


def read_compressed(config: ConfigFields) -> Compressed:
    heads, groups = (
        config.count("num_attention_heads", high=MOST_HEADS),
        config.count("o_groups", high=MOST_HEADS),
    )
    if heads % groups:
        config.disagree(
            "o_groups", groups, "does not fit num_attention_heads", f"a divisor of {heads} is allowed"
        )
    return Compressed(
        heads,
        config.count("head_dim"),
        config.count("q_lora_rank"),
        config.count("o_lora_rank"),
        groups,
        config.count("sliding_window", high=MOST_TOKENS),
        _indexer(config),
    )


def _indexer(config: ConfigFields) -> Indexer:
    return Indexer(
        config.count("index_n_heads", high=MOST_HEADS),
        config.count("index_head_dim"),
        config.count("index_topk", high=MOST_TOKENS),
    )
