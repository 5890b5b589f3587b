"""The drafter of a method that proposes with a network: its own layers, its projection, what it shares.

Shapes: EAGLE arXiv 2401.15077, EAGLE-3 arXiv 2503.01840 as engines run them (vLLM `llama_eagle.py` and
`llama_eagle3.py`, `deepseek_eagle3.py`, SGLang 0.5.23), multi-token prediction arXiv 2412.19437.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from simulator.errors import InputError, Problem
from simulator.models.config import language_fields, locator
from simulator.models.families.decoder import collect
from simulator.models.families.fields import MOST_EXPERTS, MOST_TOKENS, ConfigFields
from simulator.models.families.latent import Mla, read_mla
from simulator.models.families.mixers import read_gqa
from simulator.models.families.mlps import EXPERT_COUNTS, MlpPlan
from simulator.models.families.quantisation import Modules, read_quantisation
from simulator.models.families.unread import refuse_unread
from simulator.models.model import Layer, LinearLayer, Model

METHODS = ("eagle", "eagle3", "peagle", "mtp", "draft_model", "dflash", "dspark")
BLOCK_DRAFTERS = ("dflash", "dspark")
_AUXILIARY_STATES, _BLOCK_STATES = 3, 5
_FOREIGN_FIELDS = {
    "medusa_num_heads": (),
    "dflash_config": ("dflash", "dspark"),
    "dspark_config": ("dspark",),
    "markov_rank": ("dspark",),
    "block_size": ("dflash", "dspark"),
}
"""Fields of a head's config → the methods that have them."""


@dataclass(frozen=True)
class DrafterModel:
    """A draft network. `model` holds what one draft pass runs; what it shares with the target counts nothing.

    `model.head` is what a pass multiplies for its logits (draft vocabulary), whether it owns it or not. `fc`
    projects target hidden states (EAGLE: with the embedding, 2 x hidden; EAGLE-3: the auxiliary states; MTP:
    2 x hidden) to the drafter's width; engines keep it whole on every rank. `modules` of them take turns,
    one per pass (multi-token prediction); all are in memory, each with its own KV.
    """

    name: str
    kind: str  # one of METHODS, or `own_drafter.KINDS`
    model: Model
    fc: LinearLayer | None
    shares_embedding: bool
    shares_head: bool
    max_context_tokens: int | None = None  # what it was trained for; None: as far as the target goes
    default_draft_length: int | None = None
    modules: int = 1
    owns_weights: bool = True  # False: the target drafts for itself, with its own weights and KV

    @property
    def parameters(self) -> int:
        if not self.owns_weights:
            return 0
        return self.modules * (self.model.parameters + (self.fc.parameters if self.fc else 0))

    def weight_bytes(self, tensor_parallel: int = 1, expert_parallel: int = 1, copies: int = 1) -> float:
        """Bytes on one rank; `copies` as in `Model.weight_bytes`."""
        if not self.owns_weights:
            return 0.0
        own = self.model.weight_bytes(tensor_parallel, expert_parallel, copies)
        fc = self.fc.per_rank(tensor_parallel // copies).weight_bytes if self.fc else 0.0
        return self.modules * (own + fc)

    def kv_bytes_per_token(self, kv_cache: str = "bf16", tensor_parallel: int = 1) -> int:
        """Bytes on one rank per token of context."""
        return self.modules * self.model.kv_bytes_per_token(kv_cache, tensor_parallel) * self.owns_weights

    def kv_bytes(self, context_tokens: int, kv_cache: str = "bf16", tensor_parallel: int = 1) -> int:
        """Bytes on one rank that one sequence of `context_tokens` keeps."""
        return (
            self.modules * self.model.kv_bytes(context_tokens, kv_cache, tensor_parallel) * self.owns_weights
        )


def drafter_from_model(model: Model, target: Model) -> DrafterModel:
    """A small language model of the same vocabulary as a drafter. Raises InputError when it differs."""
    if model.vocab_size != target.vocab_size:
        message = f"{model.name} has another vocabulary than {target.name}"
        allowed = f"a drafter with vocab_size {target.vocab_size}"
        raise InputError(
            Problem(field="vocab_size", value=model.vocab_size, message=message, allowed=allowed)
        )
    return DrafterModel(model.name, "draft_model", model, None, shares_embedding=False, shares_head=False)


def drafter_from_mtp(target: Model, name: str | None = None) -> DrafterModel:
    """The modules that a target carries to predict further tokens. Raises InputError when it has none."""
    mtp = target.mtp
    if mtp is None:
        message = f"{target.name} carries no multi-token-prediction module"
        allowed = "a target whose config.json has num_nextn_predict_layers or the like"
        raise InputError(Problem(field="method", value="mtp", message=message, allowed=allowed))
    model = replace(
        target,
        name=name or f"mtp of {target.name}",
        layers=mtp.layers,
        embedding_parameters=0,
        tied_embeddings=not mtp.own_head,
        other_parameters=mtp.other_parameters,
        mtp=None,
    )
    return DrafterModel(
        model.name,
        "mtp",
        model,
        mtp.fc,
        shares_embedding=True,
        shares_head=not mtp.own_head,
        modules=mtp.count,
    )


def drafter_from_config(
    values: Mapping[str, object],
    target: Model,
    method: str,
    name: str,
    source: str,
    *,
    file: str | None = None,
    text: str = "",
) -> DrafterModel:
    """A head from its config, plain or in the speculators format: of the EAGLE family, or one of the block
    drafters DFlash and DSpark. Raises InputError.
    """
    root = ConfigFields(values)
    config = root.child("transformer_layer_config") or language_fields(root)
    _check_method(root, method)
    drafter = _head(root, config, target, method, name, source)
    root.finish(file, locator(text, file))
    return drafter


def _check_method(root: ConfigFields, method: str) -> None:
    stated = root.word("speculators_model_type")
    if stated and stated != method:
        root.add("speculators_model_type", stated, f"is no {method} drafter", f"{method} is expected")
    elif method == "eagle" and root.has("draft_vocab_size"):
        root.add(
            "draft_vocab_size", root.values["draft_vocab_size"], "belongs to EAGLE-3", "use method eagle3"
        )
    if method != "peagle" and "PEagle" in str(root.values.get("architectures")):
        root.add(
            "architectures", root.values["architectures"], "drafts in one parallel pass", "use method peagle"
        )
    for name, owners in _FOREIGN_FIELDS.items():
        if root.has(name) and method not in owners:
            root.add(name, root.values[name], f"belongs to another method than {method}")


def _head(
    root: ConfigFields, config: ConfigFields, target: Model, method: str, name: str, source: str
) -> DrafterModel:
    eagle3 = method in ("eagle3", "peagle")
    hidden = config.count("hidden_size")
    vocab = config.count("vocab_size", default=target.vocab_size)
    # SGLang cuts an EAGLE head to its most frequent tokens (--speculative-token-map, `hot_vocab_size`).
    draft_vocab = root.count("draft_vocab_size" if eagle3 else "hot_vocab_size", default=vocab)
    seen = root.count("target_hidden_size", default=hidden)
    if seen != target.hidden_size:
        wrong = "target_hidden_size" if root.has("target_hidden_size") else "hidden_size"
        message = f"does not fit {target.name}, whose hidden states are {target.hidden_size} wide"
        root.disagree(wrong, seen, message, f"{target.hidden_size} is expected")
    if vocab != target.vocab_size:
        message = f"differs from the vocabulary of {target.name}"
        config.disagree("vocab_size", vocab, message, f"{target.vocab_size} is expected")
    if draft_vocab > vocab:
        root.disagree("draft_vocab_size", draft_vocab, "is more than the vocabulary", f"at most {vocab}")
    refuse_unread(config)
    layers, fc = _eagle_layers(root, config, hidden, seen, eagle3)
    if method in BLOCK_DRAFTERS:
        fc, further_layers = _block_parts(root, hidden, seen, vocab)
        layers = (*layers, *further_layers)
    shares_embedding = hidden == target.hidden_size
    shares_head = draft_vocab == vocab and not (eagle3 and _brings_head(root))
    model = Model(
        name,
        hidden,
        draft_vocab,
        layers,
        LinearLayer("lm_head", draft_vocab, hidden),
        0 if shares_embedding else vocab * hidden,
        tied_embeddings=shares_head,
        max_context_tokens=target.max_context_tokens,
        weights=layers[0].all_linears[0].weights,
        source=source,
        other_parameters=hidden if eagle3 else 0,
    )
    return DrafterModel(
        name,
        method,
        model,
        fc,
        shares_embedding,
        shares_head=shares_head,
        max_context_tokens=config.optional_count("max_position_embeddings", high=MOST_TOKENS),
        default_draft_length=_draft_length(root),
    )


def _eagle_layers(
    root: ConfigFields, config: ConfigFields, hidden: int, seen: int, eagle3: bool
) -> tuple[tuple[Layer, ...], LinearLayer | None]:
    """Decoder layers of a head and its projection:
    the first EAGLE-3 layer reads embedding and state, 2 x hidden."""
    quantisation = read_quantisation(root)
    attention = read_mla(config) if config.has("kv_lora_rank") else read_gqa(config, hidden)
    mlp = _dense_mlp(config, hidden)
    layers = []
    for index in range(config.count("num_hidden_layers", default=1, high=64)):
        modules = Modules(quantisation, f"layers.{index}")
        doubled = eagle3 and index == 0
        width = 2 * hidden if doubled else hidden
        mixed = (
            attention.mixer(modules, hidden, input_width=width)
            if isinstance(attention, Mla)
            else attention.mixer(modules, hidden, None, input_width=width)
        )
        norms = mixed.other_parameters + (3 if doubled else 2) * hidden
        layers.append(Layer(1, mixed.attention, mlp.plain(modules).linears, None, norms))
    if not eagle3:
        return collect(layers), LinearLayer(
            "fc", hidden, 2 * hidden, shard="replicated", bias=config.flag("bias")
        )
    eagle = root.child("eagle_config")
    if eagle is not None and not eagle.flag("use_aux_hidden_state", True):
        return collect(layers), None
    states = root.optional_count("num_aux_hidden_states", high=256)
    for fields in (eagle, root):
        ids = fields.entries("eagle_aux_hidden_state_layer_ids") if fields is not None else None
        states = states or len(ids or []) or None
    return collect(layers), LinearLayer(
        "fc", hidden, (states or _AUXILIARY_STATES) * seen, shard="replicated"
    )


def _block_parts(
    root: ConfigFields, hidden: int, seen: int, vocab: int
) -> tuple[LinearLayer, tuple[Layer, ...]]:
    """What a block drafter has besides its layers: the projection of the target's hidden states of several
    layers, and DSpark's low-rank bias of each draft by the one before it, rank × vocabulary for every row.
    """
    options = root.child("dflash_config") or root.child("dspark_config")
    fields = [part for part in (options, root) if part is not None]
    ids = next((ids for part in fields if (ids := part.entries("target_layer_ids"))), None)
    rank = next((rank for part in fields if (rank := part.optional_count("markov_rank"))), None)
    root.optional_count("block_size", high=1024)
    fc = LinearLayer("fc", hidden, (len(ids) if ids else _BLOCK_STATES) * seen, shard="replicated")
    return fc, () if rank is None else (Layer(1, linears=(LinearLayer("markov", vocab, rank),)),)


def _dense_mlp(config: ConfigFields, hidden: int) -> MlpPlan:
    """The MLP of a head's layers. Latent heads leave the experts of the config they copy aside (vLLM
    `deepseek_eagle3.py`); what else states experts is no head that engines run."""
    experts = config.optional_count(*EXPERT_COUNTS, low=0, high=MOST_EXPERTS) or 0
    if experts > 1 and not config.has("kv_lora_rank"):
        name = next(name for name in EXPERT_COUNTS if config.has(name))
        config.add(name, experts, "experts of a head are not read", "a head with a dense MLP is expected")
    return MlpPlan(hidden, 3, config.count("intermediate_size"))


def _brings_head(root: ConfigFields) -> bool:
    """Whether an EAGLE-3 head over the whole vocabulary brings its own: modelopt states when it does not."""
    eagle = root.child("eagle_config")
    return root.flag("has_lm_head", eagle is None or eagle.flag("has_lm_head", True))


def _draft_length(root: ConfigFields) -> int | None:
    """The draft length a config proposes."""
    proposals = root.child("speculators_config")
    entries = proposals.entries("proposal_methods") if proposals is not None else None
    if proposals is not None and entries and isinstance(entries[0], dict):
        first = proposals.inner(entries[0], "proposal_methods", 0)
        return first.optional_count("speculative_tokens", high=1024)
    return root.optional_count("n_predict", high=1024)
