"""Weight matrices and routed experts: what they hold,
in which number format, and what one rank keeps of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

WEIGHT_FORMATS = ("bf16", "fp8", "fp8_block", "int4", "mxfp4")
_WEIGHT_BYTES = {"bf16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "int4": 0.5, "mxfp4": 0.5}
# One scale per this many weights, and its bytes: fp8_block one fp32 per 128 x 128 tile, int4 one bf16 per
# group of 128 (GPTQ and AWQ defaults), mxfp4 one shared exponent byte per 32 (OCP MX specification 1.0). fp8
# per tensor: nothing to count.
_SCALES = {"bf16": (1, 0), "fp8": (1, 0), "fp8_block": (128 * 128, 4), "int4": (128, 2), "mxfp4": (32, 1)}


def weight_bytes_each(weights: str, group: int = 0) -> float:
    """Bytes of one weight in this format, its share of the scales included;
    `group` overrides weights per scale."""
    usual_group, scale_bytes = _SCALES[weights]
    return _WEIGHT_BYTES[weights] + scale_bytes / (group or usual_group)


def share(size: int, ranks: int) -> int:
    """The largest part one of `ranks` ranks holds of `size` equal pieces."""
    return -(-size // ranks)


@dataclass(frozen=True)
class LinearLayer:
    """One weight matrix (out_features x in_features),
    or `count` alike within a layer, as the engine multiplies it.

    Projections that engines fuse are one `Linear` (qkv, gate_up). `kv_features` of the outputs belong
    to K and V of `kv_heads` heads: they are cut over at most that many ranks and repeated
    beyond. `bias` outputs carry a bias.
    """

    name: str
    out_features: int
    in_features: int
    weights: str = "bf16"
    shard: str = "column"  # column: outputs are cut over the ranks | row: inputs | replicated
    count: int = 1
    kv_features: int = 0
    kv_heads: int = 0
    bias: bool = False
    group: int = 0  # weights per scale; 0: the format's usual

    @property
    def parameters(self) -> int:
        return self.count * self.out_features * (self.in_features + int(self.bias))

    @property
    def weight_bytes(self) -> float:
        """Bytes, scales included; biases stay bf16."""
        matrix = self.out_features * self.in_features * weight_bytes_each(self.weights, self.group)
        return self.count * (matrix + 2 * self.out_features * int(self.bias))

    def per_rank(self, tensor_parallel: int) -> LinearLayer:
        """The piece one rank holds."""
        if tensor_parallel == 1 or self.shard == "replicated":
            return self
        if self.shard == "row":
            return replace(self, in_features=share(self.in_features, tensor_parallel))
        if not self.kv_features:
            return replace(self, out_features=share(self.out_features, tensor_parallel))
        kv = self.kv_features // self.kv_heads * share(self.kv_heads, tensor_parallel)
        own = share(self.out_features - self.kv_features, tensor_parallel)
        return replace(
            self, out_features=own + kv, kv_features=kv, kv_heads=share(self.kv_heads, tensor_parallel)
        )


@dataclass(frozen=True)
class Experts:
    """The routed experts of one layer: `count` MLPs
    of hidden -> intermediate -> hidden, `per_token` of them used.

    `matrices` is 3 for gated activations and 2 otherwise. `hidden` is the latent width where tokens are
    projected down before routing (latent MoE).
    """

    count: int
    per_token: int
    hidden: int
    intermediate: int
    matrices: int = 3
    weights: str = "bf16"
    bias: bool = False
    group: int = 0

    @property
    def parameters_each(self) -> int:
        biases = ((self.matrices - 1) * self.intermediate + self.hidden) * int(self.bias)
        return self.matrices * self.hidden * self.intermediate + biases

    @property
    def parameters(self) -> int:
        return self.count * self.parameters_each

    @property
    def weight_bytes_each(self) -> float:
        """Bytes of one expert, scales included; biases stay bf16."""
        matrices = self.matrices * self.hidden * self.intermediate
        return matrices * weight_bytes_each(self.weights, self.group) + 2 * (self.parameters_each - matrices)

    @property
    def weight_bytes(self) -> float:
        return self.count * self.weight_bytes_each

    def per_rank(self, tensor_parallel: int, expert_parallel: int = 1) -> Experts:
        """What one rank holds: whole experts over `expert_parallel` groups,
        each cut over the ranks of its group."""
        cut = max(1, tensor_parallel // expert_parallel)
        return replace(
            self, count=share(self.count, expert_parallel), intermediate=share(self.intermediate, cut)
        )
