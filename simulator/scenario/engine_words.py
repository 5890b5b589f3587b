"""Words of serving engines and of everyday speech that a scenario takes for its own: `nextn` is `mtp`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from simulator.document import DataPath, Document

_METHODS: Mapping[str, str] = {
    "nextn": "mtp",  # SGLang --speculative-algorithm
    "standalone": "draft_model",  # SGLang
    "draft": "draft_model",
    "prompt_lookup": "ngram",  # transformers
    "ngram_gpu": "ngram",  # vLLM: the same look-up, on the GPU
    "suffix_decoding": "suffix",
    "lade": "lookahead",
}
_WORDS: Mapping[DataPath, Mapping[str, str]] = {
    ("target", "weights"): {
        "awq": "int4", "awq_marlin": "int4", "gptq": "int4", "gptq_marlin": "int4", "w4a16": "int4",
        "bfloat16": "bf16", "float16": "bf16", "fp16": "bf16",
    },
    ("target", "kv_cache"): {
        "auto": "bf16", "bfloat16": "bf16", "float16": "bf16", "fp16": "bf16",
        "fp8_e4m3": "fp8", "fp8_e5m2": "fp8",
    },
    ("hardware", "gpu"): {"a100": "a100-sxm-80gb", "h100": "h100-sxm", "h200": "h200-sxm"},
}  # fmt: skip
"""Field → its words and ours. A bare `auto` cache has the type of the model, and a bare GPU is the SXM
module, which servers of eight GPUs hold.
"""
_NEAREST: Mapping[str, str] = {"nvfp4": "mxfp4", "mxfp8": "fp8_block"}
"""Formats without prices of their own → the one that comes nearest in bytes and kernels."""


def take_engine_words(document: Document) -> None:
    """Replace the words of engines by those of the scenario; `document.taken` notes each replacement."""
    for path, value in _named(document.data):
        word = _own_word(path, value)
        if word is not None:
            container: Any = document.data
            for key in path[:-1]:
                container = container[key]
            container[path[-1]] = document.taken[path] = word


def nearest_format(value: object) -> str | None:
    """Return the format that is nearest to one that a scenario does not know."""
    return _NEAREST.get(value.lower()) if isinstance(value, str) else None


def _own_word(path: DataPath, value: str) -> str | None:
    """Our word for `value`; None where it is ours already, or unknown."""
    return _WORDS[path].get(value.lower()) if path in _WORDS else own_method(value)


def own_method(value: str) -> str | None:
    """The method that an engine calls `value`; None where it is our name already, or unknown."""
    from simulator.speculation import methods

    known = methods()
    word = re.sub(r"[\s-]+", "_", value.strip().lower())
    if value in known:
        return None
    if word.endswith("_mtp"):  # vLLM before 0.12 has one for each family: deepseek_mtp, qwen3_next_mtp
        return "mtp"
    by_letters = {name.replace("_", ""): name for name in known}
    return _METHODS.get(word) or by_letters.get(word.replace("_", ""))


def _named(data: Any) -> Iterator[tuple[DataPath, str]]:
    """Yield the texts that may be such a word, with their paths."""
    if not isinstance(data, dict):
        return
    for section, key in _WORDS:
        values = data.get(section)
        if isinstance(values, dict) and isinstance(values.get(key), str):
            yield (section, key), values[key]
    variants = data.get("speculation")
    for index, variant in enumerate(variants if isinstance(variants, list) else ()):
        if isinstance(variant, dict) and isinstance(variant.get("method"), str):
            yield ("speculation", index, "method"), variant["method"]
