"""The serving-engine presets by name: those shipped, and the files of a user's own.

One JSON file per engine and version in `data/engines/`; adding a version is adding a file, and a file of
one's own is read in the same way (`preset_file.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType

from simulator.engines.preset import Preset
from simulator.engines.preset_file import read_preset
from simulator.errors import InputError, Problem, reason, unknown_name

_SYNCHRONOUS = "-sync"
"""Ends the name of a preset that does without the asynchronous scheduling of its version."""
_ASKED_SYNCHRONOUS = re.compile(r"[-_ ]sync\w*\s*$")

ENGINE_TITLES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}
"""Engine, as the names of presets begin → its title."""


@cache
def presets() -> Mapping[str, Preset]:
    """All shipped presets by name, in the order of their names."""
    folder = resources.files("simulator").joinpath("data", "engines")
    texts = {file.name: file.read_text("utf-8") for file in folder.iterdir() if file.name.endswith(".json")}
    loaded: dict[str, Preset] = {}
    for inherits in (False, True):  # a version that differs in little names the one it inherits from
        for file, text in texts.items():
            if ('"inherits"' in text) == inherits:
                preset = read_preset(text, file, dict(loaded))
                loaded[preset.name] = preset
    return MappingProxyType(dict(sorted(loaded.items())))


def load_preset(name: str, base_dir: Path | None = None) -> tuple[Preset, str | None]:
    """The preset of that name, else that of the version asked for, with a note that says so.

    Accepts `vllm-0.33`, `vllm-0.33.1`, `vllm-0.20-sync`, `vllm` (newest), and the path of a preset's JSON
    file, relative to `base_dir`. Raises InputError for an engine that is not known and for a file that cannot
    be used.
    """
    if name.lower().endswith(".json"):
        return _from_file(name, base_dir), None
    known = presets()
    if name in known:
        return known[name], None
    engine, version = _split(name)
    synchronous = _ASKED_SYNCHRONOUS.search(name.lower()) is not None
    same = [
        preset
        for preset in known.values()
        if _engine_key(preset.engine) == engine
        and (not preset.asynchronous if synchronous else not preset.name.endswith(_SYNCHRONOUS))
    ]
    if not same:
        also = "the path of a preset's JSON file"
        raise InputError(unknown_name("serving-engine preset", name, known, field="engine.preset", also=also))
    if version is None:
        nearest = max(same, key=lambda preset: release_of(preset.version))
        return nearest, f"preset {name!r} names no version: the newest known, {nearest.name}, is taken"
    nearest = of_version(same, version)
    if nearest.version == dotted(version[: len(release_of(nearest.version))]):
        return nearest, None
    return nearest, f"no preset for {name!r}: the nearest known, {nearest.name}, is taken"


def of_version(candidates: Iterable[Preset], version: tuple[int, ...]) -> Preset:
    """The newest of some presets that is no newer than a version, the oldest where all are newer."""
    by_age = sorted(candidates, key=_since)
    return next((preset for preset in reversed(by_age) if _since(preset) <= version), by_age[0])


def _since(preset: Preset) -> tuple[int, ...]:
    return release_of(preset.since or preset.version)


def _from_file(path: str, base_dir: Path | None) -> Preset:
    """The preset in a file of the user's."""
    try:
        text = (Path(base_dir or ".") / path).read_text("utf-8")
    except (OSError, ValueError) as error:
        message = f"the preset cannot be read: {reason(error)}"
        problem = Problem(field="engine.preset", value=path, message=message, allowed="a JSON file")
        raise InputError(problem) from error
    return _own(text, path)


@lru_cache(maxsize=64)
def _own(text: str, file: str) -> Preset:
    """The preset in the text of a file, which may take what it lacks from a shipped one."""
    return read_preset(text, file, presets())


def _engine_key(engine: str) -> str:
    key = re.sub(r"[^a-z]", "", engine.lower())
    return {"tensorrtllm": "trtllm"}.get(key, key)


def _split(name: str) -> tuple[str, tuple[int, ...] | None]:
    match = re.fullmatch(r"([A-Za-z][A-Za-z_-]*?)(?:[-=@ ]*v?(\d+(?:\.\d+)*).*)?", name.strip())
    if match is None:
        return "", None
    return _engine_key(match[1]), None if match[2] is None else release_of(match[2])


def release_of(text: str) -> tuple[int, ...]:
    """The numbers of a version, to compare it by."""
    return tuple(int(part) for part in re.findall(r"\d+", text))


def dotted(release: tuple[int, ...]) -> str:
    """A version as people write it: `0.22`."""
    return ".".join(map(str, release))
