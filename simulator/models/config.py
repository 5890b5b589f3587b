"""A `Model` from the text or the fields of a Hugging Face `config.json`.

Decided by the fields, not by a list of model names, so that a new model of a known kind needs
nothing here; `families/unread.py` refuses what would be misread. Vision and audio parts are left out: the
language model is what decodes. To add an architecture: its mixer to `families/mixers.py` or
`families/recurrent.py`, and where it stands among the layers to `families/decoder.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.errors import InputError, Problem, reason
from simulator.files import parse_json
from simulator.models.families.block_lists import read_nas, read_pattern
from simulator.models.families.decoder import Stack, read_decoder
from simulator.models.families.fields import MOST_TOKENS, ConfigFields
from simulator.models.families.quantisation import read_quantisation
from simulator.models.families.unread import refuse_unread
from simulator.models.model import WEIGHT_FORMATS, LinearLayer, Model

if TYPE_CHECKING:
    from simulator.document import DataPath, Document

_MOST_BYTES = 16_000_000
_WRAPPED = ("text_config", "llm_config", "language_config", "thinker_config")
_GENERATES = re.compile(
    "causallm|conditionalgeneration|lmhead|chatglm|eagle|speculator|draft|mtp|nextn", re.IGNORECASE
)
_CONTEXT = ("max_position_embeddings", "model_max_length")
# Their files leave `tie_word_embeddings` out where it is true, as the classes of their configs have it.
_TIED = (
    "cohere", "cohere2", "starcoder2", "opt", "gpt2", "bloom", "mpt", "falcon", "gpt_bigcode",
    "minicpm3", "lfm2", "exaone",
)  # fmt: skip
_CORE = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")


def read_config(path: Path) -> tuple[dict[str, object], str]:
    """The fields and the text of a `config.json`, or of the one in a folder. Raises InputError.

    A `hf_quant_config.json` next to it (modelopt) replaces a missing `quantization_config`.
    """
    if path.is_dir():
        path = path / "config.json"
    values, text = _read_json(path)
    sibling = path.with_name("hf_quant_config.json")
    if not values.get("quantization_config") and sibling != path and sibling.is_file():
        stated = _read_json(sibling)[0].get("quantization")
        if isinstance(stated, dict):
            values["quantization_config"] = {"quant_method": "modelopt", **stated}
    return values, text


def _read_json(path: Path) -> tuple[dict[str, object], str]:
    file = str(path)
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InputError(Problem(file, message=f"is larger than {_MOST_BYTES} bytes, so no config.json"))
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(Problem(file, message=f"cannot be read: {reason(error)}")) from None
    except UnicodeDecodeError:
        raise InputError(
            Problem(file, message="is not text in UTF-8", allowed="a JSON file is expected")
        ) from None
    return parse_object(text, file), text


def parse_object(text: str, file: str | None) -> dict[str, object]:
    """The JSON object in `text`. Raises InputError with the place where it stops being one."""
    values = parse_json(text, file)
    if not isinstance(values, dict):
        raise InputError(
            Problem(file, 1, message=f"holds a {type(values).__name__}", allowed="a JSON object is expected")
        )
    return values


def model_from_config(
    values: Mapping[str, object], name: str, source: str, *, file: str | None = None, text: str = ""
) -> Model:
    """The model a config describes. Raises InputError with every problem of the file, each with its place.

    `source` states where the fields come from; `text` is the file, to find lines in.
    """
    root = ConfigFields(values)
    config = language_fields(root)

    def finish() -> None:
        root.finish(file, locator(text, file))

    if not _describes_transformer(root, config):
        finish()
    refuse_unread(config)
    hidden = config.count("hidden_size")
    vocab = config.count("vocab_size")
    context = _context(config)
    tied = root.flag("tie_word_embeddings", config.flag("tie_word_embeddings", _tied_by_default(config)))
    stack = _stack(root, config, hidden)
    finish()
    return Model(
        name,
        hidden,
        vocab,
        stack.layers,
        LinearLayer("lm_head", vocab, hidden),
        vocab * hidden,
        tied,
        context,
        _dominant(stack),
        source,
        stack.other_parameters,
        stack.mtp,
    )


def language_fields(root: ConfigFields) -> ConfigFields:
    """The fields of the language model: inside the wrapper of a vision or audio model where there is one."""
    config = root
    for _ in _WRAPPED:
        inner = next((name for name in _WRAPPED if isinstance(config.values.get(name), dict)), None)
        child = config.child(inner) if inner else None
        if child is None:
            break
        config = child
    return config


def _stack(root: ConfigFields, config: ConfigFields, hidden: int) -> Stack:
    """Everything between embedding and head. A wrapper may state the quantisation for the model inside."""
    quantisation = read_quantisation(config if config.has("quantization_config") else root)
    if config.has("block_configs"):
        return read_nas(config, quantisation, hidden)
    if config.has("hybrid_override_pattern", "layers_block_type"):
        return read_pattern(config, quantisation, hidden)
    return read_decoder(config, quantisation, hidden)


def _describes_transformer(root: ConfigFields, config: ConfigFields) -> bool:
    """Whether this is worth reading field by field; a problem is recorded for what is no decoder for text."""
    if not config.has(*_CORE):
        config.add(
            "hidden_size",
            None,
            "is missing, as is all else that describes a transformer",
            "the config.json of a decoder language model is expected",
        )
        return False
    names = root.entries("architectures") or []
    words = [entry for entry in names if isinstance(entry, str)]
    if words and not any(_GENERATES.search(word) for word in words):
        allowed = "…ForCausalLM or …ForConditionalGeneration is expected"
        root.add("architectures", words[0], "is no decoder for text", allowed)
    if config.flag("is_encoder_decoder"):
        config.add("is_encoder_decoder", True, "is not supported", "a decoder-only model is expected")
    return True


def _tied_by_default(config: ConfigFields) -> bool:
    model_type = config.word("model_type")
    return model_type in _TIED or model_type.startswith("gemma")


def _context(config: ConfigFields) -> int:
    """Engines go by `model_max_length` where Cohere states both: the other is what training began with."""
    names = _CONTEXT[::-1] if config.word("model_type").startswith("cohere") else _CONTEXT
    return config.optional_count(*names, high=MOST_TOKENS) or MOST_TOKENS


def _dominant(stack: Stack) -> str:
    """The format most parameters are in."""
    totals = dict.fromkeys(WEIGHT_FORMATS, 0)
    for layer in stack.layers:
        for linear in layer.all_linears:
            totals[linear.weights] += layer.count * linear.parameters
        if layer.experts:
            totals[layer.experts.weights] += layer.count * layer.experts.parameters
    return max(totals, key=lambda weights: totals[weights])


def locator(text: str, file: str | None) -> Callable[[DataPath], tuple[int | None, int | None]]:
    """What gives the line and column of a field in the text, of what holds it when it is missing.

    JSON is YAML, and that reader knows places; the text is read again, once, when something is wrong.
    """

    @lru_cache(maxsize=1)
    def document() -> Document | None:
        from simulator.document import parse_yaml

        try:
            return parse_yaml(text, file) if text else None
        except InputError:
            return None

    def locate(path: DataPath) -> tuple[int | None, int | None]:
        source_document = document()
        place = source_document.place(path) if source_document is not None else None
        return (None, None) if place is None else (place.line, place.column)

    return locate
