"""A published model → one of the catalogue, the one it resembles, or a configuration of its size."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import NamedTuple

from calibration.validation.trials.cases import Target, number
from calibration.validation.trials.generated import config_file
from calibration.validation.trials.names import weights_of
from simulator.models.catalogue import entry, known_model, load_model, targets
from simulator.models.model import Model

MODEL_NOT_KNOWN = "model not known, and no size"
MODEL_NOT_STATED = "model not stated"
SEVERAL_MODELS = "several models in one point"

_SAME_SIZE, _SAME_ACTIVE = math.log(1.1), math.log(1.35)
"""How far a published size may be from the catalogue's: sources round, and count embeddings or not."""
_OTHER_MODEL = math.log(2)
"""How far from a name's own size the published one tells that another model is meant."""
_DENSE_SHARE = 0.9
"""A token passes through at least this share of a model without experts."""
_SMALLEST_B, _LARGEST_B = 0.01, 5000.0

_DENSE = (
    "smollm2-135m-instruct", "qwen3-0.6b", "llama-3.2-1b-instruct", "llama-3.2-3b-instruct",
    "llama-3.1-8b-instruct", "qwen3-14b", "qwen3-32b", "llama-3.1-70b-instruct", "llama-3.1-405b-instruct",
)  # fmt: skip
_MOE = ("qwen3-30b-a3b", "qwen3-235b-a22b", "qwen3-coder-480b-a35b-instruct")
"""Shapes that models known by size alone are scaled from."""


class ModelChoice(NamedTuple):
    """`name` is what `target.model` of a scenario takes; `weights` None: the format of the checkpoint."""

    name: str
    model: Model
    weights: str | None
    title: str
    notes: tuple[str, ...]


def model_of(target: Target, precision: str | None, context_tokens: float) -> ModelChoice | str:
    """The model of a case, able to hold contexts of that length, or why there is none."""
    words = target.model
    if not words:
        return MODEL_NOT_STATED
    known, notes = _named(words, target)
    if known is not None:
        name = title = known
        config: dict[str, object] = dict(entry(known).config)
    else:
        size, active = _sizes(words, target)
        if re.search(r"\s/\s|,|\bseveral\b|\bfamily\b|^\d+ ", words):
            return SEVERAL_MODELS
        if size is None:
            return MODEL_NOT_KNOWN
        name, config, note = _scaled(size, active, target.arch)
        notes = [f"{words} is not known: {note}"]
        title = f"{size:g}B" + (f"-a{active:g}b" if active else "")
    longest = number(config.get("max_position_embeddings")) or load_model(name).max_context_tokens
    if known is not None and context_tokens > longest:
        notes.append(f"context of {name} extended to {math.ceil(context_tokens):,} tokens")
    if known is None or context_tokens > longest:
        config["max_position_embeddings"] = int(max(longest, math.ceil(context_tokens)))
        name = config_file(title, config)
    model = load_model(name)
    weights, remark = _weights(precision, words, title, model)
    return ModelChoice(name, model, weights, title, (*notes, *((remark,) if remark else ())))


def _named(words: str, target: Target) -> tuple[str | None, list[str]]:
    """The catalogue's name for a model, and what to say of it; None when it has none of that size."""
    found = known_model(words)
    if found is not None and _fits(found, target):
        own, _ = _model_sizes(found)
        apart = target.params_b is not None and abs(_log_ratio(target.params_b, own)) > 2 * _SAME_SIZE
        return found, [f"{found} has {own:.0f}B parameters, published: {target.params_b:g}B"] if apart else []
    alike = _alike(words, target)
    return (alike, [f"{words} taken as {alike}"]) if alike is not None else (None, [])


def _fits(name: str, target: Target) -> bool:
    """Whether a published size may be that of a catalogue model: sources err, but not without end."""
    size, active = _model_sizes(name)
    pairs = ((target.params_b, size), (target.active_params_b, active))
    return all(said is None or abs(_log_ratio(said, own)) <= _OTHER_MODEL for said, own in pairs)


def _alike(words: str, target: Target) -> str | None:
    """The catalogue model of that size that shares the most words of the name, its family among them."""
    size, active = _sizes(words, target)
    if size is None:
        return None
    wanted = _words_of(words)
    found = []
    for name in targets():
        own, own_active = _model_sizes(name)
        near = abs(_log_ratio(size, own)) <= _SAME_SIZE
        if active is None and "moe" not in (target.arch or "").lower():
            near = near and own_active > _DENSE_SHARE * own
        elif active is not None:
            near = near and abs(_log_ratio(active, own_active)) <= _SAME_ACTIVE
        shared = wanted & _words_of(name)
        if near and any(re.fullmatch(r"[a-z]{3,}", word) for word in shared):
            found.append((len(shared), -abs(_log_ratio(size, own)), name))
    return max(found)[2] if found else None


_TUNING = frozenset({"instruct", "chat", "base", "thinking", "preview", "awq", "gptq", "original"})


def _words_of(name: str) -> set[str]:
    """The words of a name: families, versions, sizes."""
    text = re.sub(r"([a-z])(\d)", r"\1 \2", name.lower().rsplit("/", 1)[-1])
    return set(re.findall(r"\d+(?:\.\d+)?[a-z]*|[a-z]+", text)) - _TUNING


def _sizes(words: str, target: Target) -> tuple[float | None, float | None]:
    """Total and active parameters in 10⁹, as stated, else as the name says ("Qwen2-57B-A14B")."""
    text = words.lower()
    total = re.search(r"(?<![a-z\d.])(\d+(?:\.\d+)?)b(?![a-z\d])", text)
    routed = re.search(r"(?<![a-z])a(\d+(?:\.\d+)?)b(?![a-z\d])", text)
    size = target.params_b or (float(total[1]) if total else None)
    active = target.active_params_b or (float(routed[1]) if routed else None)
    usable = size is not None and _SMALLEST_B <= size <= _LARGEST_B
    if not usable or size is None:
        return None, None
    return size, active if active is not None and _SMALLEST_B <= active < size else None


@lru_cache(maxsize=1024)
def _model_sizes(name: str) -> tuple[float, float]:
    model = load_model(name)
    return model.parameters / 1e9, model.active_parameters / 1e9


def _log_ratio(a: float | None, b: float) -> float:
    return math.log(a / b) if a is not None and a > 0 and b > 0 else math.inf


def _scaled(size: float, active: float | None, arch: str | None) -> tuple[str, dict[str, object], str]:
    """The shape a model of that size is scaled from, its config, and what was done.

    Layers follow from what a token passes through, experts from what is left.
    """
    sparse = active is not None or "moe" in (arch or "").lower()

    def distance(name: str) -> float:
        own, own_active = _model_sizes(name)
        return abs(_log_ratio(size, own)) + (abs(_log_ratio(active, own_active)) if active else 0.0)

    base = min(_MOE if sparse else _DENSE, key=distance)
    model = load_model(base)
    config: dict[str, object] = dict(entry(base).config)
    layer = model.layers[0]
    ends = model.parameters / 1e9 - sum(one.count * one.parameters for one in model.layers) / 1e9
    own, own_active = _model_sizes(base)
    through = active or size * own_active / own
    layers = max(2, round((through - ends) / (layer.active_parameters / 1e9)))
    config["num_hidden_layers"] = layers
    note = f"{base} with {layers} layers taken"
    if sparse and layer.experts is not None:
        each = layer.experts.parameters_each / 1e9
        left = (size - ends) / layers - layer.dense_parameters / 1e9
        experts = max(layer.experts.per_token, 8 * round(left / each / 8))
        config["num_experts"] = experts
        note = f"{base} with {layers} layers of {experts} experts taken"
    return base, config, note


def _weights(precision: str | None, words: str, title: str, model: Model) -> tuple[str | None, str | None]:
    """The format to set, None where the checkpoint is in it anyway, and what to say."""
    wanted, note = weights_of(precision, words)
    if wanted is None or wanted == model.weights or (wanted == "fp8" and model.weights.startswith("fp8")):
        return None, note
    if wanted == "fp8" and title.startswith(_BLOCK_FP8):
        return "fp8_block", "FP8 checkpoints of this family are scaled by blocks"
    return wanted, note


_BLOCK_FP8 = ("qwen3", "deepseek", "glm")
"""Families whose makers publish FP8 with block scales (their model cards)."""
