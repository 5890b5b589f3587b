"""`--set path=value`: one field of a scenario by its dotted path, variants and classes by their names."""

from __future__ import annotations

from typing import Any, get_origin

from simulator.document import DataPath, Document, Place, parse_yaml
from simulator.errors import InputError, Problem, did_you_mean
from simulator.scenario.base import Section, names_of
from simulator.scenario.fields import child, meant_section, options, value_at
from simulator.scenario.schema import Scenario


def apply_override(document: Document, override: str) -> None:
    """Set one field in the document's data. What is wrong with the override joins the document's problems.

    A section that the file leaves out starts from its default. The value is YAML: `0.6`, `null`,
    `{kind: poisson, rate_per_s: 2}`.
    """
    path_text, equals, value_text = override.partition("=")
    label = f"--set {path_text}" if path_text.isprintable() else "--set"
    path_text = path_text.strip()
    if not equals or not path_text:
        example = "for example --set workload.arrivals.concurrency=128"
        document.problems.append(Problem(file=label, message="is not path=value", allowed=example))
        return
    try:
        value = parse_yaml(value_text, label) if value_text.strip() else Document("", label)
    except InputError as error:
        document.problems.extend(Problem(file=label, message=problem.message) for problem in error.problems)
        return
    document.problems.extend(Problem(file=label, message=problem.message) for problem in value.problems)
    if isinstance(document.data, dict):
        set_field(document, path_text, value.data, Place(label))


def set_field(document: Document, rest: str, value: Any, place: Place) -> DataPath | None:
    """Follow the dotted path `rest` through a scenario's data, put the value at its end, and return the path
    to it.

    A later problem with the value is reported at `place`. None: the path leads nowhere, which joins the
    document's problems.
    """
    container, annotation, path = document.data, Scenario, ()  # type: Any, Any, DataPath
    while True:
        key, rest = _next_key(container, rest)
        if key is None:
            document.problems.append(_no_entry(document, container, rest, path, place))
            return None
        path = (*path, key)
        if not rest:
            container[key] = value
            break
        current = value_at((key,), container)
        if isinstance(container, dict) and key not in container:
            document.keys[path] = place
        inside = _begun(annotation, container, key) if current is None else current
        if not isinstance(inside, dict | list):
            message = f"holds no {rest!r}: it is no section"
            problem = Problem(*place, document.name(path), value=current, message=message)
            document.problems.append(problem)
            return None
        container[key] = inside
        container, annotation = inside, child(annotation, container, key)
    for inner_path in [known for known in document.values if known[: len(path)] == path]:
        del document.values[inner_path]
    document.values[path] = document.keys[path] = place
    return path


def _next_key(container: dict[str, Any] | list[Any], rest: str) -> tuple[str | int | None, str]:
    """The key that the path `rest` begins with, and the rest of the path; None when a list has no such entry.

    Names may hold dots: the longest that fits is meant.
    """
    first = rest.partition(".")[0]
    if isinstance(container, dict):
        names: dict[str, str | int] = {key: key for key in container}
        otherwise: str | int | None = first
    else:
        names = {
            entry["name"]: index for index, entry in reversed(list(enumerate(container))) if names_of([entry])
        }
        number = int(first) if first.isascii() and first.isdigit() else len(container)
        otherwise = number if number < len(container) else None
    fitting = [name for name in names if name and (rest == name or rest.startswith(f"{name}."))]
    if fitting:
        name = max(fitting, key=len)
        return names[name], rest[len(name) + 1 :]
    return otherwise, rest if otherwise is None else rest[len(first) + 1 :]


def _no_entry(document: Document, container: list[Any], rest: str, path: DataPath, place: Place) -> Problem:
    text, names = rest.partition(".")[0], names_of(container)
    guess = did_you_mean(text, names)
    message = f"has no entry {text!r}" + (f", did you mean {guess!r}?" if guess else "")
    known = ", ".join(names) or (f"0 to {len(container) - 1}" if container else "none, the list is empty")
    return Problem(*place, document.name(path), message=message, allowed=f"known: {known}")


def _begun(annotation: Any, container: Any, key: str | int) -> dict[str, Any] | list[Any] | None:
    """What a section rest out of the file starts as: its default, where that is one of several kinds.

    None where the schema wants no section.
    """
    inner = child(annotation, container, key)
    if inner is None:
        return {}  # an unknown key, which is refused with all others
    kinds = [get_origin(option) or option for option in options(inner)]
    if tuple in kinds:
        return []
    if not any(kind is dict or (isinstance(kind, type) and issubclass(kind, Section)) for kind in kinds):
        return None
    section = meant_section(annotation, container)
    info = section.model_fields.get(str(key)) if section is not None else None
    default = None if info is None or info.is_required() else info.get_default()
    if isinstance(default, Section) and type(default).tags():
        return default.model_dump(mode="json", exclude_none=True)
    return {}
