"""`--set path=value`: one field of a scenario by its dotted path, arms and classes by their names."""

from __future__ import annotations

from typing import Any, get_origin

from simulator.errors import InputError, Problem, did_you_mean
from simulator.scenario.base import Section, Where, names_of
from simulator.scenario.document import Document, Place, parse_yaml
from simulator.scenario.fields import child, meant_section, options, value_at
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
    for number, text in enumerate(keys, 1):
        key = _key_in(document, here, text, path, label)
        if key is None:
            return
        path = (*path, key)
        if number == len(keys):
            here[key] = value
            break
        found = value_at((key,), here)
        inside = _begun(annotation, here, key) if found is None else found
        if not isinstance(inside, dict | list):
            message = f"holds no {keys[number]!r}: it is no section"
            problem = Problem(file=label, field=document.name(path), value=found, message=message)
            document.problems.append(problem)
            return
        here[key] = inside
        here, annotation = inside, child(annotation, here, key)
    for known in [known for known in document.values if known[: len(path)] == path]:
        del document.values[known]
    document.values[path] = document.keys[path] = Place(label)


def _key_in(document: Document, here: Any, text: str, path: Where, label: str) -> str | int | None:
    """The key that `text` means in a mapping or list; None, and a problem, when it means no entry."""
    if isinstance(here, dict):
        return text
    for index, entry in enumerate(here):
        if isinstance(entry, dict) and entry.get("name") == text:
            return index
    if text.isascii() and text.isdigit() and int(text) < len(here):
        return int(text)
    names = names_of(here)
    guess = did_you_mean(text, names)
    message = f"has no entry {text!r}" + (f", did you mean {guess!r}?" if guess else "")
    known = ", ".join(names) or (f"0 to {len(here) - 1}" if here else "none, the list is empty")
    document.problems.append(
        Problem(file=label, field=document.name(path), message=message, allowed=f"known: {known}")
    )
    return None


def _begun(annotation: Any, here: Any, key: str | int) -> dict[str, Any] | list[Any] | None:
    """What a section left out of the file starts as: its default, where that is one of several kinds.

    None where the schema wants no section.
    """
    inner = child(annotation, here, key)
    if inner is None:
        return {}  # an unknown key, which is refused with all others
    kinds = [get_origin(option) or option for option in options(inner)]
    if tuple in kinds:
        return []
    if not any(kind is dict or (isinstance(kind, type) and issubclass(kind, Section)) for kind in kinds):
        return None
    section = meant_section(annotation, here)
    info = section.model_fields.get(str(key)) if section is not None else None
    default = None if info is None or info.is_required() else info.get_default()
    if isinstance(default, Section) and type(default).tags():
        return default.model_dump(mode="json", exclude_none=True)
    return {}
