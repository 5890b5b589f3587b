"""Chooses the model of a case: the catalogue's, the one it resembles, or a configuration of its size."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import NamedTuple

from calibration.validation.reconstruction.config_files import config_file
from calibration.validation.reconstruction.names import weights_of
from calibration.validation.reconstruction.sections import PublishedModel, number
from simulator.models.catalogue import entry, known_model, load_model, targets
from simulator.models.model import Model

MODEL_NOT_KNOWN = "model not known, and no size"
MODEL_NOT_STATED = "model not stated"
SEVERAL_MODELS = "several models in one point"

_SAME_SIZE, _SAME_ACTIVE = math.log(1.1), math.log(1.35)
"""Largest |ln| of published ÷ catalogue size, because sources round and may leave out embeddings."""
_OTHER_MODEL = math.log(2)
"""From this |ln| of published ÷ named size on, another model is meant."""
_DENSE_SHARE = 0.9
"""A dense model has at least this share of active parameters."""
_SMALLEST_B, _LARGEST_B = 0.01, 5000.0

_DENSE = (
    "smollm2-135m-instruct", "qwen3-0.6b", "llama-3.2-1b-instruct", "llama-3.2-3b-instruct",
    "llama-3.1-8b-instruct", "qwen3-14b", "qwen3-32b", "llama-3.1-70b-instruct", "llama-3.1-405b-instruct",
)  # fmt: skip
_MOE = ("qwen3-30b-a3b", "qwen3-235b-a22b", "qwen3-coder-480b-a35b-instruct")
"""Shapes from which models known only by their size are scaled."""


class ModelChoice(NamedTuple):
    """`name`: the scenario's `target.model`. `weights`: weight format; None keeps the checkpoint's."""

    name: str
    model: Model
    weights: str | None
    title: str
    notes: tuple[str, ...]


def model_of(target: PublishedModel, precision: str | None, context_tokens: float) -> ModelChoice | str:
    """The model of a case with room for `context_tokens`, or the reason why there is none."""
    words = target.model
    if not words:
        return MODEL_NOT_STATED
    catalogue_name, notes = _named(words, target)
    if catalogue_name is not None:
        name = title = catalogue_name
        config: dict[str, object] = dict(entry(catalogue_name).config)
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
    if catalogue_name is not None and context_tokens > longest:
        notes.append(f"context of {name} extended to {math.ceil(context_tokens):,} tokens")
    if catalogue_name is None or context_tokens > longest:
        config["max_position_embeddings"] = int(max(longest, math.ceil(context_tokens)))
        name = config_file(title, config)
    model = load_model(name)
    weights, remark = _weights(precision, words, title, model)
    return ModelChoice(name, model, weights, title, (*notes, *((remark,) if remark else ())))


def _named(words: str, target: PublishedModel) -> tuple[str | None, list[str]]:
    """The catalogue's name for a model, and notes; None if the catalogue has none of that size."""
    name = known_model(words)
    if name is not None and _fits(name, target):
        size, _ = _model_sizes(name)
        differs = target.params_b is not None and abs(_log_ratio(target.params_b, size)) > 2 * _SAME_SIZE
        return name, [
            f"{name} has {size:.0f}B parameters, published: {target.params_b:g}B"
        ] if differs else []
    similar = _similar(words, target)
    return (similar, [f"{words} taken as {similar}"]) if similar is not None else (None, [])


def _fits(name: str, target: PublishedModel) -> bool:
    """Whether the published sizes agree with a catalogue model, allowing for errors of the source."""
    size, active = _model_sizes(name)
    pairs = ((target.params_b, size), (target.active_params_b, active))
    return all(stated is None or abs(_log_ratio(stated, actual)) <= _OTHER_MODEL for stated, actual in pairs)


def _similar(words: str, target: PublishedModel) -> str | None:
    """The catalogue model of that size that shares the most words with the name, including its family."""
    size, active = _sizes(words, target)
    if size is None:
        return None
    name_words = _words_of(words)
    candidates = []
    for name in targets():
        model_size, model_active = _model_sizes(name)
        same_size = abs(_log_ratio(size, model_size)) <= _SAME_SIZE
        if active is None and "moe" not in (target.arch or "").lower():
            same_size = same_size and model_active > _DENSE_SHARE * model_size
        elif active is not None:
            same_size = same_size and abs(_log_ratio(active, model_active)) <= _SAME_ACTIVE
        shared_words = name_words & _words_of(name)
        if same_size and any(re.fullmatch(r"[a-z]{3,}", word) for word in shared_words):
            candidates.append((len(shared_words), -abs(_log_ratio(size, model_size)), name))
    return max(candidates)[2] if candidates else None


_TUNING = frozenset({"instruct", "chat", "base", "thinking", "preview", "awq", "gptq", "original"})


def _words_of(name: str) -> set[str]:
    """The words of a name: family, version, size."""
    text = re.sub(r"([a-z])(\d)", r"\1 \2", name.lower().rsplit("/", 1)[-1])
    return set(re.findall(r"\d+(?:\.\d+)?[a-z]*|[a-z]+", text)) - _TUNING


def _sizes(words: str, target: PublishedModel) -> tuple[float | None, float | None]:
    """Total and active parameters in 10⁹, as stated, else from the name ("Qwen2-57B-A14B")."""
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
    """The model that one of this size is scaled from, the scaled config, and a note.

    The number of layers follows from the active parameters, the number of experts from the remaining ones.
    """
    sparse = active is not None or "moe" in (arch or "").lower()

    def distance(name: str) -> float:
        base_size, base_active = _model_sizes(name)
        return abs(_log_ratio(size, base_size)) + (abs(_log_ratio(active, base_active)) if active else 0.0)

    base = min(_MOE if sparse else _DENSE, key=distance)
    model = load_model(base)
    config: dict[str, object] = dict(entry(base).config)
    layer = model.layers[0]
    embeddings = model.parameters / 1e9 - sum(block.count * block.parameters for block in model.layers) / 1e9
    base_size, base_active = _model_sizes(base)
    active_size = active or size * base_active / base_size
    layers = max(2, round((active_size - embeddings) / (layer.active_parameters / 1e9)))
    config["num_hidden_layers"] = layers
    note = f"{base} with {layers} layers taken"
    if sparse and layer.experts is not None:
        expert_size = layer.experts.parameters_each / 1e9
        expert_parameters = (size - embeddings) / layers - layer.dense_parameters / 1e9
        experts = max(layer.experts.per_token, 8 * round(expert_parameters / expert_size / 8))
        config["num_experts"] = experts
        note = f"{base} with {layers} layers of {experts} experts taken"
    return base, config, note


def _weights(precision: str | None, words: str, title: str, model: Model) -> tuple[str | None, str | None]:
    """The weight format to set, None if the checkpoint already has it, and a note."""
    weight_format, note = weights_of(precision, words)
    if (
        weight_format is None
        or weight_format == model.weights
        or (weight_format == "fp8" and model.weights.startswith("fp8"))
    ):
        return None, note
    if weight_format == "fp8" and title.startswith(_BLOCK_FP8):
        return "fp8_block", "FP8 checkpoints of this family are scaled by blocks"
    return weight_format, note


_BLOCK_FP8 = ("qwen3", "deepseek", "glm")
"""Families whose makers publish FP8 with block scales (their model cards)."""
