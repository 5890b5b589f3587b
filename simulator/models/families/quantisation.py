"""Which number format each matrix of a checkpoint has,
from `quantization_config` (or modelopt's own file)."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from simulator.models.families.fields import ConfigFields
from simulator.models.model import Experts, LinearLayer


class Format(NamedTuple):
    """A weight format of `model.WEIGHT_FORMATS`; `group` weights share a scale, 0: as many as usual."""

    weights: str
    group: int = 0


BF16 = Format("bf16")
_MXFP4_EXPERTS = Format("mxfp4", 32)
_METHODS = (
    "fp8",
    "fbgemm_fp8",
    "modelopt",
    "modelopt_fp4",
    "compressed-tensors",
    "awq",
    "gptq",
    "mxfp4",
    "bitsandbytes",
)
_MODELOPT = {
    "FP8": Format("fp8"),
    "FP8_PB_WO": Format("fp8_block"),
    "NVFP4": Format("mxfp4", 16),
    "W4A16_AWQ": Format("int4"),
    "W4A8_AWQ": Format("int4"),
    "MXFP4": _MXFP4_EXPERTS,
    "MXFP8": Format("fp8_block"),
}


@dataclass(frozen=True)
class Quantisation:
    """The formats of a checkpoint: `default` for every matrix whose module is not in `kept`, which stay bf16.

    `groups` overrides the default for modules that match a pattern; `experts` for routed experts. Formats
    without a place of their own in the cost model take the nearest in bytes: int8 weights count as fp8,
    NVFP4 as mxfp4 with a scale per 16.
    """

    default: Format = BF16
    unquantised: frozenset[str] = frozenset()
    unquantised_patterns: tuple[re.Pattern[str], ...] = ()
    groups: tuple[tuple[re.Pattern[str], Format], ...] = ()
    experts: Format | None = None
    only_experts: bool = False
    cache: dict[str, Format] = field(default_factory=dict, compare=False, repr=False)

    def of(self, module: str, *, routed: bool = False) -> Format:
        """The format of one module, named as in the checkpoint
        without any wrapper around the language model."""
        if module not in self.cache:
            self.cache[module] = self._find(module, routed)
        return self.cache[module]

    def _find(self, module: str, routed: bool) -> Format:
        if self.default == BF16 and not self.groups and self.experts is None:
            return BF16
        if self._keeps(module):
            return BF16
        if routed and self.experts is not None:
            return self.experts
        if self.only_experts and not routed:
            return BF16
        return next((form for pattern, form in self.groups if pattern.search(module)), self.default)

    def _keeps(self, module: str) -> bool:
        parts = module.split(".")
        ends = range(1, len(parts) + 1)
        if self.unquantised and any(".".join(parts[i:j]) in self.unquantised for j in ends for i in range(j)):
            return True
        return any(pattern.match(module) for pattern in self.unquantised_patterns)


@dataclass(frozen=True)
class Modules:
    """Makes the matrices of one layer, each in the format the checkpoint has it in."""

    quantisation: Quantisation
    prefix: str  # for example "model.layers.3"

    def linear(
        self,
        name: str,
        module: str,
        out_features: int,
        in_features: int,
        shard: str = "column",
        *,
        count: int = 1,
        kv_features: int = 0,
        kv_heads: int = 0,
        bias: bool = False,
    ) -> LinearLayer:
        form = self.quantisation.of(f"{self.prefix}.{module}")
        return LinearLayer(
            name,
            out_features,
            in_features,
            form.weights,
            shard,
            count,
            kv_features,
            kv_heads,
            bias,
            form.group,
        )

    def experts(
        self,
        module: str,
        count: int,
        per_token: int,
        hidden: int,
        intermediate: int,
        matrices: int,
        *,
        bias: bool = False,
    ) -> Experts:
        form = self.quantisation.of(f"{self.prefix}.{module}", routed=True)
        return Experts(count, per_token, hidden, intermediate, matrices, form.weights, bias, form.group)


def read_quantisation(config: ConfigFields) -> Quantisation:
    """The formats a config states; none stated: bf16 (fp16 and fp32 checkpoints are served as bf16)."""
    stated = config.child("quantization_config")
    if stated is None:
        return Quantisation()
    method = stated.word("quant_method") or stated.word("quant_algo")
    if not method:
        producer = stated.child("producer")
        method = producer.word("name") if producer else ""
    unquantised, patterns = _unquantised(stated)
    if method in ("fp8", "fbgemm_fp8"):
        block = stated.entries("weight_block_size")
        experts = (
            _MXFP4_EXPERTS if "fp4" in (config.word("expert_dtype") or stated.word("expert_dtype")) else None
        )
        return Quantisation(Format("fp8_block" if block else "fp8"), unquantised, patterns, experts=experts)
    if method in ("awq", "gptq"):
        bits = stated.count("bits", "w_bit", default=4, high=8)
        if bits not in (4, 8):
            stated.add("bits", bits, "is not supported", "4 or 8 is allowed")
        group = stated.optional_count("group_size", "q_group_size", low=-1, high=65_536) or 0
        return Quantisation(
            Format("int4", max(group, 0)) if bits == 4 else Format("fp8"), unquantised, patterns
        )
    if method == "mxfp4":
        return Quantisation(_MXFP4_EXPERTS, unquantised, patterns, only_experts=True)
    if method == "bitsandbytes":
        return Quantisation(
            Format("int4", 64) if stated.flag("load_in_4bit") else Format("fp8"), unquantised, patterns
        )
    groups = stated.child("config_groups")
    if groups is not None and method in ("compressed-tensors", "modelopt", *_MODELOPT):
        default, special = _config_groups(groups, stated.word("format"))
        return Quantisation(default, unquantised, patterns, special)
    algorithm = stated.word("quant_algo")
    if method in ("modelopt", "modelopt_fp4", *_MODELOPT) and algorithm in _MODELOPT:
        return Quantisation(_MODELOPT[algorithm], unquantised, patterns)
    if method in ("modelopt", "modelopt_fp4"):
        stated.add("quant_algo", algorithm or None, "is unknown or missing", f"known: {', '.join(_MODELOPT)}")
    elif method == "compressed-tensors":
        stated.add(
            "config_groups",
            None,
            "is missing",
            "an object with the groups of equally quantised modules is needed",
        )
    else:
        stated.add("quant_method", method or None, "is unknown or missing", f"known: {', '.join(_METHODS)}")
    return Quantisation()


def _unquantised(stated: ConfigFields) -> tuple[frozenset[str], tuple[re.Pattern[str], ...]]:
    """Modules left in bf16: whole names or parts of them,
    and patterns (`re:` expressions, shell wildcards)."""
    names: set[str] = set()
    patterns = []
    for key in ("modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules"):
        for index, entry in enumerate(stated.entries(key) or []):
            if not isinstance(entry, str):
                stated.add(key, entry, "is not usable", "the name of a module is allowed", index=index)
            elif entry.startswith("re:") or "*" in entry:
                pattern = _pattern(entry)
                if pattern is None:
                    stated.add(key, entry, "is no regular expression", index=index)
                else:
                    patterns.append(pattern)
            else:
                names.add(entry.replace("language_model.", "").removeprefix("model.model."))
    return frozenset(names), tuple(patterns)


@lru_cache(maxsize=256)
def _pattern(entry: str) -> re.Pattern[str] | None:
    try:
        if entry.startswith("re:"):
            return re.compile(entry[3:])
        return re.compile(fnmatch.translate(entry).removesuffix(r"\Z") + r"(\.|\Z)")
    except (re.error, RecursionError, OverflowError):
        return None


def _config_groups(
    groups: ConfigFields, overall_format: str
) -> tuple[Format, tuple[tuple[re.Pattern[str], Format], ...]]:
    """The format of `Linear` modules, and those of modules named by pattern."""
    default = BF16
    special: list[tuple[re.Pattern[str], Format]] = []
    for name in groups.values:
        group = groups.child(str(name))
        weights = group.child("weights") if group else None
        if group is None or weights is None:
            continue
        form = _scheme(weights, group.word("format") or overall_format)
        targets = group.entries("targets") or ["Linear"]
        for index, target in enumerate(targets):
            pattern = _pattern(target) if isinstance(target, str) and target.startswith("re:") else None
            if pattern is not None:
                special.append((pattern, form))
            elif isinstance(target, str):
                default = form
            else:
                group.add("targets", target, "is not usable", "the name of a module is allowed", index=index)
    return default, tuple(special)


def _scheme(weights: ConfigFields, packing: str) -> Format:
    bits = weights.count("num_bits", low=4, high=16)
    group = weights.optional_count("group_size", low=-1, high=65_536) or 0
    if bits == 16:
        return BF16
    if bits == 8:
        return Format("fp8_block" if weights.word("strategy") == "block" else "fp8")
    if bits != 4:
        weights.add("num_bits", bits, "is not supported", "4, 8 or 16 is allowed")
    if weights.word("type") == "float":
        return Format("mxfp4", group if group > 0 else 16 if packing.startswith("nvfp4") else 32)
    return Format("int4", max(group, 0))
