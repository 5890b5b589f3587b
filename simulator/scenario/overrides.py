"""`--set path=value`: one field of a scenario by its dotted path, arms and classes by their names."""

from __future__ import annotations

from typing import Any

from simulator.errors import InputError, Problem, did_you_mean
from simulator.scenario.base import Section, Where, names_of
from simulator.scenario.document import Document, Place, parse_yaml
from simulator.scenario.fields import child, meant_section
from simulator.scenario.schema import Scenario


def apply_override(document: Document, override: str) -> None:
    """Sets one field in the document's data. What is wrong with the override joins the document's problems.

    A section that the file leaves out is begun from its default. The value is YAML: `0.6`, `null`,
    `{kind: poisson, rate_per_s: 2}`.
    """
    path_text, equals, value_text = override.partition("=")
    label = f"--set {path_text}" if path_text.isprintable() else "--set"
    keys = [key for key in path_text.strip().split(".") if key]
    if not equals or not keys:
        document.problems.append(
            Problem(
                file=label,
                message="is no path=value",
                allowed=("for example --set workload.arrivals.concurrency=128"),
            )
        )
        return
    try:
        value = parse_yaml(value_text, label) if value_text.strip() else Document("", label)
    except InputError as error:
        document.problems.extend(Problem(file=label, message=problem.message) for problem in error.problems)
        return
    document.problems.extend(Problem(file=label, message=problem.message) for problem in value.problems)
    if isinstance(document.data, dict):
        _set(document, keys, value.data, label)


def _set(document: Document, keys: list[str], value: Any, label: str) -> None:
    here, annotation, path = document.data, Scenario, ()  # type: Any, Any, Where
    for index, text in enumerate(keys):
        key = _key_in(document, here, text, path, label)
        if key is None:
            return
        inner = child(annotation, here, key)
        last = index == len(keys) - 1
        if last:
            here[key] = value
        elif (here[key] if isinstance(key, int) else here.get(key)) is None:
            here[key] = _begun(annotation, here, key)
        here, annotation, path = here[key], inner, (*path, key)
    for known in [known for known in document.values if known[: len(path)] == path]:
        del document.values[known]
    document.values[path] = Place(label)
    document.keys[path] = Place(label)


def _key_in(document: Document, here: Any, text: str, path: Where, label: str) -> str | int | None:
    """The key that `text` means in `here`; None, and a problem, when it means none."""
    if isinstance(here, dict):
        return text
    field = document.name(path)
    if not isinstance(here, list):
        document.problems.append(
            Problem(file=label, field=field, value=here, message=f"holds no {text!r}: it is no section")
        )
        return None
    for index, entry in enumerate(here):
        if isinstance(entry, dict) and entry.get("name") == text:
            return index
    if text.isascii() and text.isdigit() and int(text) < len(here):
        return int(text)
    names = names_of(here)
    guess = did_you_mean(text, names)
    known = (
        f"known: {', '.join(names)}" if names else f"0 to {len(here) - 1}" if here else "the list is empty"
    )
    document.problems.append(
        Problem(
            file=label,
            field=field,
            message=f"has no entry {text!r}" + (f", did you mean {guess!r}?" if guess else ""),
            allowed=known,
        )
    )
    return None


def _begun(annotation: Any, here: dict[str, Any], key: str | int) -> dict[str, Any]:
    """What a section left out of the file starts as: its default, where that is one of several kinds."""
    section = meant_section(annotation, here)
    info = section.model_fields.get(str(key)) if section is not None else None
    default = info.get_default(call_default_factory=True, validated_data={}) if info is not None else None
    if isinstance(default, Section) and type(default).tags():
        return default.model_dump(mode="json", exclude_none=True)
    return {}
