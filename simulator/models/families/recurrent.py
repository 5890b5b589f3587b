"""Token mixers with a constant state in place of a cache: gated delta net, Kimi delta attention, Mamba-2.

Sources of the shapes: transformers 5.24 `modeling_qwen3_5.py`, `modeling_kimi_linear.py`,
`modeling_nemotron_h.py`, SGLang 0.5.23 `kimi_k3.py`. The recurrent state is kept in fp32 unless the config
says otherwise, the convolution's last inputs in bf16.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.models.families.fields import MOST_HEADS, ConfigFields
from simulator.models.families.mixers import Mixer
from simulator.models.families.quantisation import Modules
from simulator.models.model import Attention

_STATE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class DeltaNet:
    """Gated delta net (Qwen3-Next, Qwen3.5): a key x value matrix of state per value head."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int
    state_bytes_each: int

    def mixer(self, modules: Modules, hidden: int, root: str = "linear_attn") -> Mixer:
        keys, values = self.key_heads * self.key_dim, self.value_heads * self.value_dim
        channels = 2 * keys + values
        linears = (
            modules.linear("qkvz", f"{root}.in_proj_qkv", channels + values, hidden),
            modules.linear("ba", f"{root}.in_proj_ba", 2 * self.value_heads, hidden),
            modules.linear("o", f"{root}.out_proj", hidden, values, "row"),
        )
        state = (
            self.value_heads * self.key_dim * self.value_dim * self.state_bytes_each
            + 2 * (self.kernel - 1) * channels
        )
        attention = Attention(
            "linear",
            self.value_heads,
            self.key_heads,
            self.key_dim,
            self.value_dim,
            linears,
            state_bytes=state,
            state_heads=self.value_heads,
        )
        return Mixer(attention, channels * self.kernel + 2 * self.value_heads + self.value_dim)


@dataclass(frozen=True)
class Kda:
    """Kimi delta attention: as a gated delta net, with a decay per channel from a low-rank projection."""

    heads: int
    head_dim: int
    kernel: int
    full_rank_gate: bool

    def mixer(self, modules: Modules, hidden: int, root: str = "self_attn") -> Mixer:
        width = self.heads * self.head_dim
        linears = [
            modules.linear("qkv", f"{root}.q_proj", 3 * width, hidden),
            modules.linear("decay_down", f"{root}.f_a_proj", self.head_dim, hidden, "replicated"),
            modules.linear("decay_up", f"{root}.f_b_proj", width, self.head_dim),
            modules.linear("beta", f"{root}.b_proj", self.heads, hidden),
            modules.linear("o", f"{root}.o_proj", hidden, width, "row"),
        ]
        if self.full_rank_gate:
            linears.append(modules.linear("gate", f"{root}.g_proj", width, hidden))
        else:
            linears.append(
                modules.linear("gate_down", f"{root}.g_a_proj", self.head_dim, hidden, "replicated")
            )
            linears.append(modules.linear("gate_up", f"{root}.g_b_proj", width, self.head_dim))
        state = 4 * width * self.head_dim + 2 * (self.kernel - 1) * 3 * width
        attention = Attention(
            "linear",
            self.heads,
            self.heads,
            self.head_dim,
            self.head_dim,
            tuple(linears),
            state_bytes=state,
            state_heads=self.heads,
        )
        return Mixer(attention, 3 * width * self.kernel + width + self.heads + self.head_dim)


@dataclass(frozen=True)
class Mamba2:
    """Mamba-2: a head_dim x state matrix per head."""

    heads: int
    head_dim: int
    groups: int
    state: int
    kernel: int
    state_bytes_each: int
    conv_bias: bool
    bias: bool

    def mixer(self, modules: Modules, hidden: int, root: str = "mixer") -> Mixer:
        inner = self.heads * self.head_dim
        channels = inner + 2 * self.groups * self.state
        linears = (
            modules.linear("in", f"{root}.in_proj", inner + channels + self.heads, hidden, bias=self.bias),
            modules.linear("o", f"{root}.out_proj", hidden, inner, "row", bias=self.bias),
        )
        state = inner * self.state * self.state_bytes_each + 2 * (self.kernel - 1) * channels
        attention = Attention(
            "mamba2",
            self.heads,
            self.groups,
            self.head_dim,
            self.state,
            linears,
            state_bytes=state,
            state_heads=self.heads,
        )
        return Mixer(attention, channels * (self.kernel + int(self.conv_bias)) + 3 * self.heads + inner)


def read_delta_net(config: ConfigFields) -> DeltaNet:
    return DeltaNet(
        config.count("linear_num_key_heads", high=MOST_HEADS),
        config.count("linear_num_value_heads", high=MOST_HEADS),
        config.count("linear_key_head_dim"),
        config.count("linear_value_head_dim"),
        config.count("linear_conv_kernel_dim", default=4, high=1024),
        _state_bytes(config, "mamba_ssm_dtype", "float32"),
    )


def read_kda(linear: ConfigFields) -> Kda:
    """From the object `linear_attn_config`."""
    return Kda(
        linear.count("num_heads", high=MOST_HEADS),
        linear.count("head_dim"),
        linear.count("short_conv_kernel_size", default=4, high=1024),
        linear.flag("use_full_rank_gate"),
    )


def read_mamba2(config: ConfigFields) -> Mamba2:
    return Mamba2(
        config.count("mamba_num_heads", "mamba_n_heads", high=MOST_HEADS),
        config.count("mamba_head_dim", "mamba_d_head"),
        config.count("n_groups", "mamba_n_groups", default=1, high=MOST_HEADS),
        config.count("ssm_state_size", "mamba_d_state"),
        config.count("conv_kernel", "mamba_d_conv", default=4, high=1024),
        _state_bytes(config, "mamba_ssm_cache_dtype", "bfloat16"),
        config.flag("use_conv_bias", config.flag("mamba_conv_bias", True)),
        config.flag("use_bias", config.flag("mamba_proj_bias")),
    )


def _state_bytes(config: ConfigFields, name: str, default: str) -> int:
    stated = config.word(name) or default
    if stated not in _STATE_BYTES:
        config.add(name, stated, "is unknown", f"known: {', '.join(_STATE_BYTES)}")
    return _STATE_BYTES.get(stated, 4)
