"""How a case drafted → an arm of a scenario, or why our methods cannot."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from calibration.validation.cases import Case, Draft, Facts, number
from calibration.validation.generated import config_file
from calibration.validation.models import ModelChoice
from simulator.errors import InputError
from simulator.models.catalogue import (
    drafters,
    entry,
    find_drafter,
    find_model,
    load_drafter,
    load_model,
    targets,
)
from simulator.models.model import Model
from simulator.speculation import methods

TREE = "tree"
NO_DRAFT = "no drafter stated"
SEVERAL_METHODS = "several methods in one point"
NO_MODULE = "target carries no MTP module"
SPARSE_DRAFT = "drafter that keeps part of its KV"
DRAFT_NOT_USABLE = "drafter does not fit the target"

_OURS: Mapping[str, tuple[str, ...]] = {
    "eagle": ("eagle",), "eagle1": ("eagle",), "eagle2": ("eagle",), "hass": ("eagle",),
    "samd_eagle2": ("eagle",), "eagle3": ("eagle3",), "eagle3.1": ("eagle3",),
    "p_eagle": ("p_eagle", "eagle3_parallel"), "draft_model": ("draft_model",), "sps": ("draft_model",),
    "ngram": ("ngram",), "pld_ngram": ("ngram",), "pld": ("ngram",), "prompt_lookup": ("ngram",),
    "rest": ("ngram",), "recycling": ("ngram",), "oracle_replay": ("ngram",), "suffix": ("suffix",),
    "mtp": ("mtp",), "nextn": ("mtp",), "medusa": ("medusa",), "hydra": ("hydra", "medusa"),
    "lookahead": ("lookahead",),
}  # fmt: skip
"""Published method → ours, the nearest first; one that is not registered has no model here yet."""

_NEAREST = frozenset({"hydra", "hass", "samd_eagle2", "rest", "recycling", "oracle_replay"})
"""Methods without a model of their own, simulated as the nearest where an acceptance length is published."""

_TREES_OF_PAPERS = frozenset(
    {"eagle", "eagle1", "eagle2", "eagle3", "hass", "samd_eagle2", "medusa", "hydra"}
)
"""Methods whose own code drafts trees; `eagle2` always does."""

_DRAFT_VOCAB = 32_000
"""Draft vocabulary of published EAGLE-3 heads (their configs)."""

_SPARSE_KV = re.compile(r"stream|snapkv|sink|sliding|sparse|quest|triforce")
_LENGTHS: Mapping[str, int] = {"mtp": 1}
_USUAL_LENGTH = 3
MOST_DRAFTS = 64
LENGTH_KEYS = ("acceptance_length", "mean_acceptance_length", "tokens_per_step")
"""Keys of a point for tokens per verify, the bonus token included."""


class DraftChoice(NamedTuple):
    """`method` is ours; `draft` what an arm takes; `length` None: not stated."""

    method: str
    draft: str | None
    length: int
    published_method: str
    drafter_key: str | None
    """The drafter's name without owner and punctuation, to tell whether two are the same."""
    needs_acceptance: bool
    """Only an acceptance length of the same source will do: the method is not modelled, its nearest is."""
    notes: tuple[str, ...]


def method_of(case: Case, point: Facts) -> str | None:
    """The published method of a point, in lower case; None when nothing drafts."""
    said = point.get("method")
    name = said if isinstance(said, str) and said else case.draft.method if case.draft else None
    return None if name is None else re.sub(r"[\s\-]+", "_", name.strip().lower())


def our_method(published: str) -> str | None:
    """The registered method that simulates a published one."""
    return next((name for name in _OURS.get(published, (published,)) if name in methods()), None)


def drafter_key(case: Case) -> str | None:
    """The drafter's name without owner and punctuation; None when it is not named."""
    words = case.draft.model if case.draft is not None else None
    return None if words is None else re.sub(r"[^a-z0-9]", "", words.lower().rsplit("/", 1)[-1])


def is_tree(case: Case, point: Facts, published: str, research: bool) -> bool:
    """Whether a point drafted a tree rather than a chain."""
    draft = case.draft or Draft()
    topk = number(point.get("topk")) or draft.topk
    structure = f"{point.get('structure') or draft.structure or ''}".lower()
    if topk is not None:
        return topk > 1
    if re.search(r"\btree\b", structure) and not structure.startswith("chain"):
        return True
    if "chain" in structure:
        return False
    return published == "eagle2" or (research and published in _TREES_OF_PAPERS)


class Length(NamedTuple):
    """K of a chain. `stated`: the source says it, if only as the tokens it verified."""

    tokens: int
    stated: bool
    note: str | None = None


def draft_length_of(case: Case, point: Facts, method: str) -> Length:
    """K of a chain, and what was assumed."""
    draft = case.draft or Draft()
    for value in (number(point.get("k")), draft.k):
        if value is not None and 1 <= value <= MOST_DRAFTS:
            return Length(round(value), True)
    for value in (number(point.get("num_draft_tokens")), draft.num_draft_tokens):
        if value is not None and 2 <= value <= MOST_DRAFTS + 1:
            tokens = round(value) - 1
            return Length(tokens, True, f"K = {tokens} from {value:g} verified tokens")
    accepted = next((found for key in LENGTH_KEYS if (found := number(point.get(key))) is not None), 1.0)
    usual = max(_LENGTHS.get(method, _USUAL_LENGTH), min(math.ceil(accepted), MOST_DRAFTS))
    return Length(usual, False, f"K not stated: {usual} taken")


def draft_of(case: Case, point: Facts, target: ModelChoice, research: bool) -> DraftChoice | str:
    """The drafter and K of a point, or why it cannot be simulated."""
    published = method_of(case, point)
    if published is None:
        return NO_DRAFT
    if published == "several" or "/" in published or "+" in published:
        return SEVERAL_METHODS
    method = our_method(published)
    if is_tree(case, point, published, research):
        return TREE
    if method is None:
        return f"method {published}"
    length, _, note = draft_length_of(case, point, method)
    notes = [note] if note else []
    if published in _NEAREST:
        notes.append(f"{published} simulated as {method}")
    drafter = _drafter(case, point, target, method)
    if isinstance(drafter, str):
        return drafter
    name, said = drafter
    key = drafter_key(case)
    return DraftChoice(method, name, length, published, key, published in _NEAREST, (*notes, *said))


Drafter = tuple[str | None, tuple[str, ...]]
"""What `draft` of an arm takes, and what was assumed."""


def _drafter(case: Case, point: Facts, target: ModelChoice, method: str) -> Drafter | str:
    kind = methods()[method].drafter
    draft = case.draft or Draft()
    if kind is None:
        return None, ()
    words = point.get("draft") if isinstance(point.get("draft"), str) else draft.model
    size = number(point.get("draft_params_b")) or draft.params_b
    if kind == "mtp":
        return NO_MODULE if target.model.mtp is None else (None, ())
    if isinstance(words, str) and _SPARSE_KV.search(words.lower()):
        return SPARSE_DRAFT
    if kind == "draft_model":
        return _draft_model(words, size, target.model)
    for name in _named(words):
        if _usable(name, target.model, kind):
            return name, ()
    known = (
        name for name in drafters() if entry(name).method == kind and target.title in entry(name).targets
    )
    for name in known:
        if _usable(name, target.model, kind):
            return name, () if words is None else (f"drafter {words} taken as {name}",)
    built = config_file(f"{kind}-{target.title}", _head(target.model, kind))
    if not _usable(built, target.model, kind):
        return DRAFT_NOT_USABLE
    return built, (f"{kind} head of the usual shape for {target.title}",)


def _named(words: object) -> list[str]:
    """The catalogue's drafter that a text names; none for a text that names none, or several."""
    try:
        return [find_drafter(words)] if isinstance(words, str) else []
    except InputError:
        return []


def _usable(name: str, target: Model, kind: str) -> bool:
    try:
        load_drafter(name, target, kind)
    except InputError:
        return False
    return True


def _head(target: Model, kind: str) -> dict[str, object]:
    """One decoder layer as wide as the target, as EAGLE heads are: arXiv 2401.15077, arXiv 2503.01840.

    Attention as in the target where that has plain heads, else heads of 128; the MLP three times as wide.
    """
    plain = next(
        (
            layer.attention
            for layer in target.layers
            if layer.attention is not None and layer.attention.heads and layer.attention.kv_heads
        ),
        None,
    )
    heads = plain.heads if plain is not None else max(1, target.hidden_size // 128)
    config: dict[str, object] = {
        "architectures": ["LlamaForCausalLMEagle3" if kind == "eagle3" else "LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": target.hidden_size,
        "intermediate_size": 3 * target.hidden_size,
        "num_hidden_layers": 1,
        "num_attention_heads": heads,
        "num_key_value_heads": math.gcd(heads, 8),
        "head_dim": 128,
        "vocab_size": target.vocab_size,
        "max_position_embeddings": target.max_context_tokens,
    }
    if kind == "eagle3":
        config["draft_vocab_size"] = min(_DRAFT_VOCAB, target.vocab_size)
    return config


def _draft_model(words: object, size: float | None, target: Model) -> Drafter | str:
    """A small model of the target's vocabulary: by name, by size, else the smallest there is."""
    name = _small_model(words) if isinstance(words, str) else None
    if name is not None:
        if load_model(name).vocab_size == target.vocab_size:
            return name, ()
        config = {**entry(name).config, "vocab_size": target.vocab_size}
        return config_file(name, config), (f"{name} with the target's vocabulary",)
    alike = {
        name: load_model(name).parameters / 1e9
        for name in targets()
        if load_model(name).vocab_size == target.vocab_size
        and load_model(name).parameters < _LARGEST_DRAFT * target.parameters
    }
    if size is None and isinstance(words, str):
        stated = re.search(r"(\d+(?:\.\d+)?) ?([bm])\b", words.lower())
        size = None if stated is None else float(stated[1]) / (1 if stated[2] == "b" else 1000)
    if alike and (size is None or min(abs(math.log(size / own)) for own in alike.values()) < _NEAR):
        wanted = size or min(alike.values())
        name = min(alike, key=lambda one: abs(math.log(wanted / alike[one])))
        stated_words = f"{size:g}B" if size is not None else "not named"
        return name, (f"draft model {words or stated_words}: {name} taken",)
    wanted = size or target.parameters / 1e9 * _USUAL_DRAFT
    config = _small_config(wanted, target)
    return config_file(f"draft-{wanted:.2g}B", config), (f"draft model of {wanted:.2g}B parameters built",)


_LARGEST_DRAFT = 0.25
"""A draft model has at most this share of the target's parameters, or it saves nothing."""
_USUAL_DRAFT = 1 / 64
_NEAR = math.log(1.5)


def _small_model(words: str) -> str | None:
    """The catalogue model that a text names; the first where it names several."""
    for piece in re.split(r"\s+/\s+|\(|,|_streaming|_", words):
        try:
            return find_model(piece.strip())
        except InputError:
            continue
    return None


def _small_config(size_b: float, target: Model) -> dict[str, object]:
    """A dense model of that size and the target's vocabulary; embeddings tied, as small models have them."""
    body = max(size_b * 1e9, 1.2 * 256 * target.vocab_size)
    hidden = next(
        width
        for width in (2048, 1536, 1024, 768, 512, 256)
        if width * target.vocab_size < 0.5 * body or width == 256
    )
    layers = max(1, round((body - hidden * target.vocab_size) / (12.5 * hidden**2)))
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": 3 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": hidden // 64,
        "num_key_value_heads": hidden // 64,
        "vocab_size": target.vocab_size,
        "max_position_embeddings": target.max_context_tokens,
        "tie_word_embeddings": True,
    }
