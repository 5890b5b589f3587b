"""Models and drafters by name: the facts of `simulator/data/models/*.json`,
or a `config.json` of the user's own.

A catalogue entry holds the fields of a `config.json` that sizes depend on, so one reader serves both. To add
a model: an entry in one of the files, with its Hugging Face id and where its figures come from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from simulator.errors import InputError, Problem, unknown_name
from simulator.models.config import model_from_config, read_config
from simulator.models.drafter import (
    METHODS,
    DrafterModel,
    drafter_from_config,
    drafter_from_model,
    drafter_from_mtp,
)
from simulator.models.model import Model

_ALSO_MODEL = "path of a config.json"


class CatalogueEntry(NamedTuple):
    """One catalogue name. `config` has the fields of its config.json; drafters have a method and targets."""

    name: str
    hugging_face: str
    source: str
    config: Mapping[str, object]
    method: str = ""
    targets: tuple[str, ...] = ()


def targets() -> tuple[str, ...]:
    """The names of all models, sorted. Each may serve as a draft model too."""
    return tuple(sorted(_entries()[0]))


def drafters() -> tuple[str, ...]:
    """The names of all drafters, sorted: heads, prediction modules, and every model."""
    return tuple(sorted({*_entries()[0], *_entries()[1]}))


def entry(name: str) -> CatalogueEntry:
    """The catalogue's facts about a model or drafter. Raises InputError for an unknown name."""
    models, heads = _entries()
    named = models.get(name) or heads.get(name)
    if named is None:
        raise InputError(unknown_name("model or drafter", name, drafters()))
    return named


def load_model(name_or_path: str, base_dir: str | Path | None = None) -> Model:
    """A model by catalogue name, Hugging Face id, or path of a config.json (or its folder) below `base_dir`.
    A name that states how its weights are stored ("…-AWQ", "…-FP8") is that version.

    Raises InputError for an unknown name, with those that are closest, and for a file that cannot be used.
    """
    path = _path(name_or_path, base_dir)
    if path is not None:
        return _model_from_file(path)
    named = _entries()[0][find_model(name_or_path)]
    model = _cached_model(named.name)
    stated = None if _is_name_of(name_or_path, named) else _stated_weights(name_or_path, model)
    return model if stated is None else model.with_weights(stated)


def taken_as(name_or_path: str, base_dir: str | Path | None = None) -> str | None:
    """What a name is taken for; None for a path, the catalogue's own name, and the Hugging Face id."""
    if _path(name_or_path, base_dir) is not None:
        return None
    named = _entries()[0][find_model(name_or_path)]
    if _is_name_of(name_or_path, named):
        return None
    weights = load_model(name_or_path).weights
    return f"{name_or_path} is taken as {named.name} ({named.hugging_face}) with weights in {weights}"


def load_drafter(
    name_or_path: str | None, target: Model, method: str, base_dir: str | Path | None = None
) -> DrafterModel:
    """The drafter of one speculative variant; None is the target's own modules
    (method `mtp`). Raises InputError."""
    if method not in METHODS:
        raise InputError(unknown_name("drafting method", method, METHODS))
    if name_or_path is None:
        if method != "mtp":
            message = f"a drafter is needed for the method {method}"
            raise InputError(Problem(field="draft", message=message, allowed="catalogue name or path"))
        return drafter_from_mtp(target)
    path = _path(name_or_path, base_dir)
    if method == "draft_model":
        return drafter_from_model(load_model(name_or_path, base_dir), target)
    if path is not None:
        if method == "mtp":
            return _modules_of(_model_from_file(path), target, name_or_path)
        values, text = read_config(path)
        return drafter_from_config(values, target, method, name_or_path, str(path), file=str(path), text=text)
    head = _entries()[1].get(find_drafter(name_or_path))
    if head is None or head.method != method:
        kind = head.method if head else "draft_model"
        message = f"is a drafter of the method {kind}"
        allowed = f"known for {method}: {', '.join(_names_of(method))}"
        raise InputError(Problem(field="draft", value=name_or_path, message=message, allowed=allowed))
    if method == "mtp":
        return drafter_from_mtp(target, head.name)
    source = f"{head.hugging_face}: {head.source}"
    return drafter_from_config(head.config, target, method, head.name, source)


def find_model(name: str) -> str:
    """The catalogue name of the model that `name` means, however it is spelt:
    `Meta-Llama-3.3-70B-Instruct`, `meta-llama/Llama-3.3-70B-Instruct`, `llama-3.3-70b-instruct-FP8`.
    Sizes and tuning may be left out where one model alone begins so. Raises InputError with the closest."""
    known = known_model(name)
    if known is None:
        raise InputError(unknown_name("model", name, targets(), also=_ALSO_MODEL))
    return known


def find_drafter(name: str) -> str:
    """The catalogue name of the drafter that `name` means. Raises InputError with the known names."""
    known = known_drafter(name)
    if known is None:
        raise InputError(unknown_name("drafter", name, drafters(), also=_ALSO_MODEL))
    return known


@lru_cache(maxsize=1024)
def known_model(name: str) -> str | None:
    """As `find_model`; None where the catalogue has no such model."""
    return _meant(name, _entries()[0])


@lru_cache(maxsize=1024)
def known_drafter(name: str) -> str | None:
    """As `find_drafter`; None where the catalogue has no such drafter."""
    models, heads = _entries()
    return _meant(name, {**models, **heads})


def _meant(name: str, known: Mapping[str, CatalogueEntry]) -> str | None:
    """The one of these names that a text means, None where it means none."""
    if name in known:
        return name
    spellings = _spellings(tuple(known))
    candidates = _candidates(name)
    for candidate in candidates:
        spelt = spellings.get(candidate)
        if spelt is not None and not _other_date(name, known[spelt].hugging_face):
            return spelt
    stem = candidates[-1]
    longer = [full for full in known if stem and _normal(full).startswith(f"{stem}-")]
    if len(longer) == 1 and _SIZES.fullmatch(_normal(longer[0])[len(stem) :]):
        return longer[0]
    return None


@lru_cache(maxsize=4)
def _spellings(names: tuple[str, ...]) -> dict[str, str]:
    """Every normal form that means one of `names`: its own, that of its Hugging Face id, and those without
    the words that people leave out, unless another model has that name or precedes it in its file.
    """
    models, heads = _entries()
    by_spelling: dict[str, str] = {}
    identities = {name: (models.get(name) or heads[name]).hugging_face for name in names}
    for name, identity in identities.items():
        by_spelling.setdefault(identity.lower(), name)
    for shorten in (lambda text: text, _untuned, lambda text: _unversioned(_untuned(text))):
        for name, identity in identities.items():
            for spelling in (name, identity):
                by_spelling.setdefault(shorten(_normal(spelling)), name)
    return by_spelling


_PRECISION = re.compile(
    r"-(fp8(-(dynamic|static(-per-?tensor)?|kv|block))?|bf16|fp16|fp4|nvfp4|mxfp4|mxfp8|int4|int8|w4a16|w8a8"
    r"|awq|gptq(-int[48])?|quantized|hf|original|modelopt|speculator)(?=-|$)"
)
_DATE = re.compile(r"-\d{4}(?=-|$)")
_TUNED = re.compile(r"-(instruct|chat|it|base|thinking)(?=-|$)")
_SIZES = re.compile(r"(-(a?\d+(\.\d+)?b|\d+e|\d{4}|instruct|chat|it|base|thinking))+")
_FORMATS = tuple(
    (weights, re.compile(rf"-({words})(?=-|$)"))
    for weights, words in (
        ("mxfp4", "mxfp4"),
        ("fp8", "gptq-int8|int8|w8a8|mxfp8|fp8(-.*)?"),
        ("int4", "awq|gptq(-int4)?|int4|w4a16|nvfp4|fp4"),
        ("bf16", "bf16|fp16"),
    )
)
"""Words of a name → the format that is nearest to what they mean."""
_BLOCK_FP8 = ("qwen3", "deepseek", "glm")
"""Families whose makers publish FP8 with block scales (their model cards)."""
_VERSION = re.compile(r"(?<=\db)-v\d(\.\d)?$")


def _other_date(name: str, identity: str) -> bool:
    """Whether a name and the model that it seems to mean have different dates: they are two models then."""
    dates, known_dates = (set(_DATE.findall(_normal(text))) for text in (name, identity))
    return bool(dates and known_dates) and not dates & known_dates


def _is_name_of(name: str, named: CatalogueEntry) -> bool:
    return name.strip().lower() in (named.name, named.hugging_face.lower())


def _stated_weights(name: str, model: Model) -> str | None:
    """The format that a name states, None where it states none, or the model's own is of that kind."""
    stated = next((weights for weights, words in _FORMATS if words.search(_normal(name))), None)
    if stated == "fp8" and model.name.startswith(_BLOCK_FP8):
        stated = "fp8_block"
    return None if stated is None or model.weights.startswith(stated) else stated


def _candidates(name: str) -> list[str]:
    """The spellings that a name may mean, from the closest to the loosest."""
    plain = _normal(name)
    served = _PRECISION.sub("", plain)
    undated = _DATE.sub("", served)
    return [name.strip().lower(), plain, served, _untuned(served), undated, _untuned(undated)]


@lru_cache(maxsize=4096)
def _normal(name: str) -> str:
    """Lower case, without the owner and remarks in brackets, words joined by `-`, one spelling a family."""
    text = re.sub(r"\([^()]*\)", "", name).strip(" \t_.:/").rsplit("/", 1)[-1].lower()
    text = re.sub(r"\.(?!\d)", "-", re.sub(r"[\s_:]+", "-", text))
    text = re.sub(r"(?<=[a-z-]\d)-(?=\d(-|$))", ".", text)
    text = re.sub(r"^(meta|mistralai|nvidia|openai|lmsys)-(?=llama|mixtral|gpt|vicuna|sglang)", "", text)
    text = re.sub(r"^sglang-(?=eagle)", "", text)
    text = re.sub(r"\b(llama|qwen|glm|kimi|gemma|eagle)-?(v?\d)", r"\1-\2", text)
    return re.sub(r"-+", "-", text).strip("-")


def _untuned(normal: str) -> str:
    return _TUNED.sub("", normal)


def _unversioned(normal: str) -> str:
    return _VERSION.sub("", normal)


def _names_of(method: str) -> list[str]:
    return sorted(name for name, head in _entries()[1].items() if head.method == method)


def _modules_of(carrier: Model, target: Model, name: str) -> DrafterModel:
    """The modules of a checkpoint given by its config, for a target of the same width."""
    drafter = drafter_from_mtp(carrier, name)
    if (carrier.hidden_size, carrier.vocab_size) != (target.hidden_size, target.vocab_size):
        message = f"the modules of {name} do not fit {target.name}"
        raise InputError(
            Problem(
                field="hidden_size",
                value=carrier.hidden_size,
                message=message,
                allowed=f"{target.hidden_size} is expected",
            )
        )
    return drafter


def _path(name: str, base_dir: str | Path | None) -> Path | None:
    """The file or folder that a name means, None when it can only be a catalogue name.

    Raises InputError for what looks like a path but is not there.
    """
    if "\0" in name or not name:
        raise InputError(unknown_name("model", name, targets(), also=_ALSO_MODEL))
    try:
        path = Path(base_dir or ".") / Path(name).expanduser()
        exists = path.exists()
    except (OSError, RuntimeError, ValueError):
        return None
    looks = name.endswith(".json") or "/" in name or "\\" in name
    if exists and (looks or path.is_file()):
        return path
    if name.endswith(".json") or name.startswith((".", "/", "~")):
        raise InputError(Problem(file=str(path), message="is not there", allowed="path of a config.json"))
    return None


def _model_from_file(path: Path) -> Model:
    values, text = read_config(path)
    for name in ("draft_vocab_size", "speculators_model_type"):
        if values.get(name) is not None:
            raise InputError(
                Problem(
                    str(path),
                    field=name,
                    value=values[name],
                    message="belongs to a drafter",
                    allowed="the config.json of a whole model is expected",
                )
            )
    file = str(path / "config.json" if path.is_dir() else path)
    return model_from_config(values, _display_name(path), file, file=file, text=text)


def _display_name(path: Path) -> str:
    """The folder of a config.json, or the file's own name."""
    full = path.resolve()
    name = full.name if full.is_dir() else full.parent.name if full.name == "config.json" else full.stem
    return name.replace("--", "/").removesuffix("_config") or str(path)


@lru_cache(maxsize=1024)
def _cached_model(name: str) -> Model:
    model = _entries()[0][name]
    return model_from_config(model.config, name, f"{model.hugging_face}: {model.source}")


@lru_cache(maxsize=1)
def _entries() -> tuple[dict[str, CatalogueEntry], dict[str, CatalogueEntry]]:
    """Models and drafters of the data files by name."""
    models: dict[str, CatalogueEntry] = {}
    heads: dict[str, CatalogueEntry] = {}
    folder = resources.files("simulator").joinpath("data", "models")
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if not file.name.endswith(".json"):
            continue
        data: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        for group in data.get("models", []):
            for name, identity in group["names"].items():
                models[name] = CatalogueEntry(name, identity, group["source"], group["config"])
        for group in data.get("drafters", []):
            for name, identity in group["names"].items():
                heads[name] = CatalogueEntry(
                    name,
                    identity,
                    group["source"],
                    group.get("config", {}),
                    group["method"],
                    tuple(group["targets"]),
                )
    return models, heads
