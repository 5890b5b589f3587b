"""Chooses the drafter of a case: one of the catalogue, or one built in the usual shape."""

from __future__ import annotations

import math
import re

from calibration.validation.reconstruction.cases import PublishedCase
from calibration.validation.reconstruction.config_files import config_file
from calibration.validation.reconstruction.models import ModelChoice
from calibration.validation.reconstruction.sections import Facts, PublishedDraft, number
from simulator.errors import InputError
from simulator.models.catalogue import (
    drafters,
    entry,
    known_drafter,
    known_model,
    load_drafter,
    load_model,
    targets,
)
from simulator.models.model import Model
from simulator.speculation import methods

SPARSE_DRAFT = "drafter that keeps part of its KV"
DRAFT_NOT_USABLE = "drafter does not fit the target"
_SPARSE_KV = re.compile(r"stream|snapkv|sink|sliding|sparse|quest|triforce")
_DRAFT_VOCAB = 32_000
"""Draft vocabulary of published EAGLE-3 heads (their configs)."""

DrafterChoice = tuple[str | None, tuple[str, ...]]
"""The value of a variant's `draft` key, and the assumptions made."""


def drafter_of(case: PublishedCase, point: Facts, target: ModelChoice, method: str) -> DrafterChoice | str:
    """The drafter that the method of a case needs, or the reason why there is none."""
    kind = methods()[method].drafter
    draft = case.draft or PublishedDraft()
    if kind is None:
        return None, ()
    words = point.get("draft") if isinstance(point.get("draft"), str) else draft.model
    size = number(point.get("draft_params_b")) or draft.params_b
    if kind == "mtp":
        return None, ()
    if isinstance(words, str) and _SPARSE_KV.search(words.lower()):
        return SPARSE_DRAFT
    if kind == "draft_model":
        return _draft_model(words, size, target.model)
    fraction = draft.vocab_fraction
    cut = None if fraction is None or not 0 < fraction < 1 else _cut_head(words, target, kind, fraction)
    if cut is not None:
        return cut
    for name in _named(words):
        if _usable(name, target.model, kind):
            return name, ()
    candidates = (
        name for name in drafters() if entry(name).method == kind and target.title in entry(name).targets
    )
    for name in candidates:
        if _usable(name, target.model, kind):
            return name, () if words is None else (f"drafter {words} taken as {name}",)
    built = config_file(f"{kind}-{target.title}", _head(target.model, kind))
    if not _usable(built, target.model, kind):
        return DRAFT_NOT_USABLE
    return built, (f"{kind} head of the usual shape for {target.title}",)


def _cut_head(words: object, target: ModelChoice, kind: str, fraction: float) -> DrafterChoice | None:
    """A drafter whose head covers a share of the vocabulary; None for a method without such heads."""
    key = {"eagle": "hot_vocab_size", "eagle3": "draft_vocab_size", "peagle": "draft_vocab_size"}.get(kind)
    if key is None:
        return None
    named = next((name for name in _named(_before_comma(words)) if _usable(name, target.model, kind)), None)
    config = dict(entry(named).config) if named else _head(target.model, kind)
    tokens = max(1, round(fraction * target.model.vocab_size))
    path = config_file(f"{kind}-{target.title}-{tokens}", {**config, key: tokens})
    if not _usable(path, target.model, kind):
        return None
    return path, (f"{kind} head over {tokens:,} of {target.model.vocab_size:,} tokens",)


def _before_comma(words: object) -> object:
    """The name in front of a remark: "owner/head, cut to 25 %"."""
    return words.split(",")[0] if isinstance(words, str) else words


def _named(words: object) -> list[str]:
    """The catalogue's drafter that a text names; empty for a text that names none or several."""
    drafter = known_drafter(words) if isinstance(words, str) else None
    return [] if drafter is None else [drafter]


def _usable(name: str, target: Model, kind: str) -> bool:
    try:
        load_drafter(name, target, kind)
    except InputError:
        return False
    return True


def _head(target: Model, kind: str) -> dict[str, object]:
    """The config of one decoder layer as wide as the target, as in EAGLE (arXiv 2401.15077, 2503.01840).

    Attention is as in the target if that has plain heads; otherwise heads have 128 dimensions. The MLP is
    three times as wide as the target.
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


def _draft_model(words: object, size: float | None, target: Model) -> DrafterChoice | str:
    """A small model with the target's vocabulary: by name, else by size, else the smallest."""
    name = _small_model(words) if isinstance(words, str) else None
    if name is not None:
        if load_model(name).vocab_size == target.vocab_size:
            return name, ()
        config = {**entry(name).config, "vocab_size": target.vocab_size}
        return config_file(name, config), (f"{name} with the target's vocabulary",)
    candidates = {
        name: load_model(name).parameters / 1e9
        for name in targets()
        if load_model(name).vocab_size == target.vocab_size
        and load_model(name).parameters < _LARGEST_DRAFT * target.parameters
    }
    if size is None and isinstance(words, str):
        stated = re.search(r"(\d+(?:\.\d+)?) ?([bm])\b", words.lower())
        size = None if stated is None else float(stated[1]) / (1 if stated[2] == "b" else 1000)
    distances = () if size is None else [abs(math.log(size / other)) for other in candidates.values()]
    if candidates and min(distances, default=0.0) < _NEAR:
        nearest_size = size or min(candidates.values())
        name = min(candidates, key=lambda candidate: abs(math.log(nearest_size / candidates[candidate])))
        stated_words = f"{size:g}B" if size is not None else "not named"
        return name, (f"draft model {words or stated_words}: {name} taken",)
    built_size = size or target.parameters / 1e9 * _USUAL_DRAFT
    config = _small_config(built_size, target)
    return config_file(f"draft-{built_size:.2g}B", config), (
        f"draft model of {built_size:.2g}B parameters built",
    )


_LARGEST_DRAFT = 0.25
"""Largest share of the target's parameters at which a draft model can save time."""
_USUAL_DRAFT = 1 / 64
_NEAR = math.log(1.5)


def _small_model(words: str) -> str | None:
    """The catalogue model that a text names; the first if it names several."""
    pieces = re.split(r"\s+/\s+|\(|,|_streaming|_", words)
    return next(filter(None, (known_model(piece.strip()) for piece in pieces)), None)


def _small_config(size_b: float, target: Model) -> dict[str, object]:
    """The config of a dense model of `size_b` × 10⁹ parameters: the target's vocabulary, tied embeddings."""
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
