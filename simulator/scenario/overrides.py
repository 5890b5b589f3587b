"""`--set path=value`: one field of a scenario by its dotted path, variants and classes by their names."""

from __future__ import annotations

from typing import Any, get_origin

from simulator.document import DataPath, Document, Place, parse_yaml
from simulator.errors import InputError, Problem, did_you_mean
from simulator.scenario.base import Section, names_of
from simulator.scenario.fields import child, meant_section, options, value_at
from simulator.scenario.schema import Scenario


def apply_override(document: Document, override: str) -> None:
    """Sets one field in the document's data. What is wrong with the override joins the document's problems.

    A section that the file leaves out is begun from its default. The value is YAML: `0.6`, `null`,
    `{kind: poisson, rate_per_s: 2}`.
    """
    path_text, equals, value_text = override.partition("=")
    label = f"--set {path_text}" if path_text.isprintable() else "--set"
    path_text = path_text.strip()
    if not equals or not path_text:
        example = "for example --set workload.arrivals.concurrency=128"
        document.problems.append(Problem(file=label, message="is no path=value", allowed=example))
        return
    try:
        value = parse_yaml(value_text, label) if value_text.strip() else Document("", label)
    except InputError as error:
        document.problems.extend(Problem(file=label, message=problem.message) for problem in error.problems)
        return
    document.problems.extend(Problem(file=label, message=problem.message) for problem in value.problems)
    if isinstance(document.data, dict):
        set_field(document, path_text, value.data, Place(label))


def set_field(document: Document, left: str, value: Any, place: Place) -> DataPath | None:
    """Follows the dotted path `left` through a scenario's data, puts the value at its end, and says where.

    What is found wrong with the value later is said at `place`. None: the path leads nowhere, which joins the
    document's problems.
    """
    here, annotation, path = document.data, Scenario, ()  # type: Any, Any, DataPath
    while True:
        key, left = _next_key(here, left)
        if key is None:
            document.problems.append(_no_entry(document, here, left, path, place))
            return None
        path = (*path, key)
        if not left:
            here[key] = value
            break
        found = value_at((key,), here)
        if isinstance(here, dict) and key not in here:
            document.keys[path] = place
        inside = _begun(annotation, here, key) if found is None else found
        if not isinstance(inside, dict | list):
            message = f"holds no {left!r}: it is no section"
            problem = Problem(*place, document.name(path), value=found, message=message)
            document.problems.append(problem)
            return None
        here[key] = inside
        here, annotation = inside, child(annotation, here, key)
    for known in [known for known in document.values if known[: len(path)] == path]:
        del document.values[known]
    document.values[path] = document.keys[path] = place
    return path


def _next_key(here: dict[str, Any] | list[Any], left: str) -> tuple[str | int | None, str]:
    """The key that the path `left` begins with, and the rest of the path; None when a list has no such entry.

    Names may hold dots: the longest that fits is meant.
    """
    first = left.partition(".")[0]
    if isinstance(here, dict):
        names: dict[str, str | int] = {key: key for key in here}
        otherwise: str | int | None = first
    else:
        names = {
            entry["name"]: index for index, entry in reversed(list(enumerate(here))) if names_of([entry])
        }
        number = int(first) if first.isascii() and first.isdigit() else len(here)
        otherwise = number if number < len(here) else None
    fitting = [name for name in names if name and (left == name or left.startswith(f"{name}."))]
    if fitting:
        name = max(fitting, key=len)
        return names[name], left[len(name) + 1 :]
    return otherwise, left if otherwise is None else left[len(first) + 1 :]


def _no_entry(document: Document, here: list[Any], left: str, path: DataPath, place: Place) -> Problem:
    text, names = left.partition(".")[0], names_of(here)
    guess = did_you_mean(text, names)
    message = f"has no entry {text!r}" + (f", did you mean {guess!r}?" if guess else "")
    known = ", ".join(names) or (f"0 to {len(here) - 1}" if here else "none, the list is empty")
    return Problem(*place, document.name(path), message=message, allowed=f"known: {known}")


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
