"""A scenario as a YAML file that explains itself: every key with what it means, read back equal."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from simulator.scenario.base import Section
from simulator.scenario.schema import HostOverrides, Mechanisms, Scenario, SloSection
from simulator.scenario.speculation import GoodputPolicy, Tree
from simulator.scenario.workload import Sessions

_ONE_LINE = (GoodputPolicy, HostOverrides, Mechanisms, Sessions, SloSection, Tree)
"""Sections short enough for one line, like all those of several kinds."""
_COMMENT_COLUMN = 40
_LONGEST_COMMENTED = 70
"""Characters of a value that has its comment on the same line; a longer value has it above."""
_FILE_KEYS = ("model", "gpu", "draft", "preset", "file")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./+-]*(?: [A-Za-z0-9_./+×-]+)*")
_NO_TEXT = re.compile(r"(?i)(?:null|true|false|yes|no|on|off|y|n|inf|nan)$")


def scenario_yaml(scenario: Scenario) -> str:
    """The scenario as commented YAML with all defaults written out; loading it gives an equal scenario."""
    lines = [
        "# A decodesim scenario. Change what differs in your deployment; what you delete gets its default.",
        "# One field can also be changed on the command line: --set workload.arrivals.concurrency=128",
    ]
    return "\n".join([*lines, *_section(scenario, 0)]) + "\n"


def relocated(scenario: Scenario, folder: Path) -> Scenario:
    """The same scenario for a file in `folder`: relative file names lead to the same files from there."""

    data = with_files(
        scenario.model_dump(mode="json"), scenario.base_dir, lambda file: os.path.relpath(file, folder)
    )
    return Scenario.model_validate_json(json.dumps(data)).at(folder, scenario.taken)


def with_files(data: Any, base_dir: Path, renamed: Callable[[Path], str]) -> Any:
    """A scenario's data with every relative file name in it replaced; names of no file stay as they are."""

    def moved(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: moved(inner, name) for name, inner in value.items()}
        if isinstance(value, list):
            return [moved(inner) for inner in value]
        if key in _FILE_KEYS and isinstance(value, str) and not Path(value).is_absolute():
            file = base_dir / value
            try:
                return renamed(file) if file.exists() else value
            except (OSError, ValueError):  # too long for a name, or with a NUL: found wrong elsewhere
                return value
        return value

    return moved(data)


def named_files(data: Any, key: str = "") -> Iterator[str]:
    """The absolute file names in a scenario's data."""
    if isinstance(data, dict):
        for name, inner in data.items():
            yield from named_files(inner, name)
    elif isinstance(data, list):
        for inner in data:
            yield from named_files(inner)
    elif key in _FILE_KEYS and isinstance(data, str) and data.startswith(os.sep):
        yield data


def _section(section: Section, indent: int) -> Iterator[str]:
    """The lines of a section, one field after the other."""
    for name, info in type(section).model_fields.items():
        value = getattr(section, name)
        yield from _field(name, value, info.description or "", " " * indent)


def _field(name: str, value: Any, comment: str, pad: str) -> Iterator[str]:
    if isinstance(value, Section) and not _on_one_line(value):
        yield _commented(f"{pad}{name}:", comment)
        yield from _section(value, len(pad) + 2)
    elif isinstance(value, tuple) and value and isinstance(value[0], Section):
        yield _commented(f"{pad}{name}:", comment)
        for entry in value:
            first, *rest = _section(entry, len(pad) + 4)
            yield f"{pad}  - {first.lstrip()}"
            yield from rest
    else:
        text = f"{pad}{name}: {flow(value)}"
        if len(text) >= _LONGEST_COMMENTED:
            yield f"{pad}# {comment}"
            yield text
        else:
            yield _commented(text, comment)


def _on_one_line(section: Section) -> bool:
    return isinstance(section, _ONE_LINE) or bool(type(section).tags())


def _commented(text: str, comment: str) -> str:
    return f"{text.ljust(_COMMENT_COLUMN - 2)}  # {comment}" if comment else text


def flow(value: Any) -> str:
    """A value in YAML's one-line style: `{kind: closed, concurrency: 64}`."""
    if isinstance(value, Section):
        tags = type(value).tags()
        names = [*tags, *(name for name in type(value).model_fields if name not in tags)]
        shown = {name: getattr(value, name) for name in names}
        keep_null = isinstance(value, HostOverrides | SloSection)
        return flow({name: inner for name, inner in shown.items() if inner is not None or keep_null})
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow(key)}: {flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(flow(inner) for inner in value) + "]"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, int):
        return str(value)
    text = str(value)
    return text if _PLAIN.fullmatch(text) and not _NO_TEXT.match(text) else json.dumps(text)
