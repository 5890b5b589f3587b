"""MLPs: dense, routed experts with shared ones next to them, latent experts; which layer has which."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.models.families.fields import MOST_EXPERTS, MOST_LAYERS, ConfigFields
from simulator.models.families.quantisation import Modules
from simulator.models.model import Experts, LinearLayer

EXPERT_COUNTS = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
_PER_TOKEN = (
    "num_experts_per_tok",
    "top_k_experts",
    "num_experts_per_token",
    "experts_per_token",
    "moe_top_k",
    "moe_topk",
    "moe_k",
)
_SHARED_COUNTS = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert")
_DENSE_WIDTHS = ("dense_intermediate_size", "intermediate_size_mlp", "intermediate_size")
_BY_LAYER = (*EXPERT_COUNTS, *_PER_TOKEN, *_SHARED_COUNTS, "moe_intermediate_size")
_PLAIN_ACTIVATIONS = ("relu", "relu2", "gelu_new", "gelu_fast", "xielu")
_FOURFOLD = ("gpt2", "gptj", "gpt_bigcode", "bloom", "mpt", "falcon")  # 4 x hidden where no width is stated
_PLAIN_MODELS = (*_FOURFOLD, "phi", "gpt_neox", "starcoder2", "opt", "nemotron")
_DENSE, _SPARSE = "dense", "sparse"
_FIRST_SPARSE = (
    "first_k_dense_replace",
    "moe_layer_start_index",
    "moe_layer_num_skipped",
    "num_dense_layers",
)
# every n-th layer routes, layers counted from one; `moe_layer_freq` counts them from zero
_FROM_ONE = ("decoder_sparse_step", "moe_layer_interval")


@dataclass(frozen=True)
class Mlp:
    """What one layer multiplies after attention."""

    linears: tuple[LinearLayer, ...] = ()
    experts: Experts | None = None
    other_parameters: int = 0


@dataclass(frozen=True)
class MlpPlan:
    """The MLP widths of a model and which of its layers are dense."""

    hidden: int
    matrices: int  # 3: gate, up, down; 2: no gate
    dense: int  # width of a dense layer, 0 when there is none
    experts: int = 0
    per_token: int = 0  # with weights, on average
    expert: int = 0
    latent: int = 0  # width the experts work in, 0: hidden
    latent_norm: bool = False
    shared: int = 0  # width of all shared experts together
    shared_gate: bool = False
    router_bias: bool = False
    expert_bias: bool = False
    with_dense: bool = False  # a dense MLP next to the experts of a layer (Gemma 4, Grok-2, LongCat-Flash)
    idle: int = 0  # experts that the router may choose and that hand on what they get: no weights, no work
    sparse_layers: tuple[bool, ...] = ()

    def layer(self, index: int, modules: Modules, root: str = "mlp") -> Mlp:
        return self.sparse(modules, root) if self.sparse_layers[index] else self.plain(modules, root)

    def plain(self, modules: Modules, root: str = "mlp", width: int | None = None) -> Mlp:
        """A dense MLP, as a fused gate_up and a down projection."""
        wide = self.dense if width is None else width
        return Mlp(self._pair(modules, root, "gate_up", "down", wide))

    def sparse(self, modules: Modules, root: str = "mlp") -> Mlp:
        """Router, routed experts, shared experts, latent projections."""
        width = self.latent or self.hidden
        choices = self.experts + self.idle
        router = LinearLayer("router", choices, self.hidden, shard="replicated", bias=self.router_bias)
        linears: list[LinearLayer] = [router]
        if self.latent:
            linears.append(
                modules.linear("latent_down", f"{root}.fc1_latent_proj", width, self.hidden, "replicated")
            )
            linears.append(
                modules.linear("latent_up", f"{root}.fc2_latent_proj", self.hidden, width, "replicated")
            )
        if self.shared:
            linears += self._pair(
                modules, f"{root}.shared_experts", "shared_gate_up", "shared_down", self.shared
            )
        if self.with_dense:
            linears += self._pair(modules, root, "gate_up", "down", self.dense)
        experts = modules.experts(
            f"{root}.experts.0.down_proj",
            self.experts,
            self.per_token,
            width,
            self.expert,
            self.matrices,
            bias=self.expert_bias,
        )
        other = self.hidden * int(self.shared_gate and self.shared > 0) + width * int(self.latent_norm)
        return Mlp(tuple(linears), experts, other)

    def _pair(self, modules: Modules, root: str, up: str, down: str, width: int) -> tuple[LinearLayer, ...]:
        return (
            modules.linear(up, f"{root}.gate_proj", (self.matrices - 1) * width, self.hidden),
            modules.linear(down, f"{root}.down_proj", self.hidden, width, "row"),
        )


def read_mlps(config: ConfigFields, hidden: int, layers: int) -> MlpPlan:
    """The MLP plan of a decoder whose every layer has attention and an MLP."""
    matrices = _matrices(config)
    pool = _pool(config).evened(_BY_LAYER, layers)
    count = pool.optional_count(*EXPERT_COUNTS, low=0, high=MOST_EXPERTS) or 0
    if count <= 1:
        dense = _dense_width(config, hidden)
        return MlpPlan(hidden, matrices, dense, sparse_layers=(False,) * layers)
    idle = pool.optional_count("zero_expert_num", low=0, high=MOST_EXPERTS) or 0
    expert = pool.count("moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size")
    model_type = config.word("model_type")
    llama4, gpt_oss = model_type.startswith("llama4"), model_type == "gpt_oss"
    sparse = _sparse_layers(config, layers)
    with_dense = config.flag("enable_moe_block") or config.flag("residual_moe") or is_longcat(config)
    dense = 0
    if with_dense or not all(sparse):
        dense = config.count(*_DENSE_WIDTHS)
    return MlpPlan(
        hidden,
        matrices,
        dense,
        count,
        _per_token(pool, count, idle),
        expert,
        latent=config.optional_count("routed_expert_hidden_size", "moe_latent_size") or 0,
        latent_norm=config.flag("latent_moe_use_norm"),
        shared=expert if llama4 else _shared_width(pool, expert),
        shared_gate=config.has("shared_expert_intermediate_size") and "qwen" in model_type,
        router_bias=gpt_oss,
        expert_bias=gpt_oss,
        with_dense=with_dense,
        idle=idle,
        sparse_layers=tuple(sparse),
    )


def read_pattern_mlps(config: ConfigFields, hidden: int) -> MlpPlan:
    """The MLP plan of a decoder whose layers are either a mixer or an MLP
    (Nemotron-H): no order is kept here."""
    matrices = _matrices(config)
    dense = config.optional_count("intermediate_size") or 0
    count = config.optional_count(*EXPERT_COUNTS, low=0, high=MOST_EXPERTS) or 0
    if count <= 1:
        return MlpPlan(hidden, matrices, dense)
    return MlpPlan(
        hidden,
        matrices,
        dense,
        count,
        _per_token(config, count),
        config.count("moe_intermediate_size", "intermediate_size"),
        latent=config.optional_count("moe_latent_size", "routed_expert_hidden_size") or 0,
        shared=(config.optional_count("n_shared_experts", low=0, high=MOST_EXPERTS) or 0)
        * (config.optional_count("moe_shared_expert_intermediate_size", low=0) or 0),
    )


def _pool(config: ConfigFields) -> ConfigFields:
    """What speaks of the experts: DBRX has an object for them."""
    inner = config.child("ffn_config")
    return inner if inner is not None and inner.has(*EXPERT_COUNTS) else config


def _dense_width(config: ConfigFields, hidden: int) -> int:
    if config.word("model_type") in _FOURFOLD and not config.has("intermediate_size"):
        return config.count("expansion_ratio", default=4, high=64) * hidden
    return config.count("intermediate_size")


def _matrices(config: ConfigFields) -> int:
    """3 for gated activations (every recent decoder), 2 for plain ones, where the config states it."""
    activation = config.word("mlp_hidden_act", "hidden_act", "hidden_activation", "activation_function")
    return 2 if activation in _PLAIN_ACTIVATIONS or config.word("model_type") in _PLAIN_MODELS else 3


def _per_token(config: ConfigFields, count: int, idle: int = 0) -> int:
    """Experts with weights that a token goes through, on average when all are chosen equally often."""
    per_token = config.count(*_PER_TOKEN, high=MOST_EXPERTS)
    if per_token > count:
        config.disagree(
            _PER_TOKEN[0], per_token, "is more than there are experts", f"at most {count} is allowed"
        )
    return max(round(per_token * count / (count + idle)), 1)


def _shared_width(config: ConfigFields, expert: int) -> int:
    """Width of the shared experts together: some configs give it, others how many there are."""
    if config.has("shared_expert_intermediate_size", "share_expert_dim"):
        return config.count("shared_expert_intermediate_size", "share_expert_dim", low=0)
    shared = config.optional_count(*_SHARED_COUNTS, low=0, high=MOST_EXPERTS)
    each = config.optional_count("shared_intermediate_size", low=0)
    if shared is None:
        return each or 0
    return shared * (expert if each is None else each)


def _sparse_layers(config: ConfigFields, layers: int) -> list[bool]:
    """Which layers route: a list per layer where there is one, else the rule of the family."""
    if config.has("moe_layers_enum"):
        routing = _listed(config, "moe_layers_enum")
        return [index in routing for index in range(layers)]
    if is_longcat(config):
        return [index % 2 == 0 for index in range(layers)]
    if isinstance(config.values.get("moe_layer_freq"), list):
        pattern = config.per_layer("moe_layer_freq", layers, (0, 1))
        return [entry == 1 for entry in pattern or []] or [True] * layers
    kinds = config.per_layer("mlp_layer_types", layers, (_DENSE, _SPARSE, "moe", "hash_moe"))
    if kinds is not None:
        return [kind != _DENSE for kind in kinds]
    step = config.optional_count("interleave_moe_layer_step", high=MOST_LAYERS)
    if step is not None:
        return [(index + 1) % step == 0 for index in range(layers)]
    first = config.optional_count(*_FIRST_SPARSE, low=0, high=MOST_LAYERS) or 0
    last = config.optional_count("moe_layer_end_index", low=-1, high=MOST_LAYERS)
    last = layers if last is None or last == -1 else last
    step = config.optional_count(*_FROM_ONE, "moe_layer_freq", high=MOST_LAYERS) or 1
    offset = 1 if config.has(*_FROM_ONE) else 0
    dense = {entry for entry in config.entries("mlp_only_layers") or [] if isinstance(entry, int)}
    return [
        first <= index <= last and (index + offset) % step == 0 and index not in dense
        for index in range(layers)
    ]


def _listed(config: ConfigFields, name: str) -> set[int]:
    """The layers that a list names, or a text with commas (Step-3.5)."""
    stated = config.values.get(name)
    entries = stated.split(",") if isinstance(stated, str) else config.entries(name) or []
    indices = set()
    for entry in entries:
        digits = str(entry).strip()
        if digits.isdecimal() and len(digits) < 6:
            indices.add(int(digits))
        else:
            config.add(name, entry, "is no layer", "numbers of layers with commas between them are allowed")
    return indices


def is_longcat(config: ConfigFields) -> bool:
    """LongCat-Flash: of every two layers, the first has experts next to its dense MLP."""
    return config.word("model_type").startswith("longcat_flash")
