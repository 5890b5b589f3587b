"""From a file to a `Scenario`, or to everything that is wrong with it, with line, column and field."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from simulator.document import DataPath, Document, Place, parse_yaml, to_json
from simulator.errors import InputError, Problem, did_you_mean, reason
from simulator.scenario import fields
from simulator.scenario.acceptance_file import inline_acceptance_files
from simulator.scenario.base import FAULTS, Fault, Section
from simulator.scenario.engine_words import nearest_format, take_engine_words
from simulator.scenario.flag_overrides import set_flags
from simulator.scenario.names import fill_drafts, name_problems
from simulator.scenario.overrides import apply_override
from simulator.scenario.schema import Scenario

_LONGEST_TEXT = 2_000_000
"""Characters that are still read as YAML, which takes seconds."""


def load_scenario(
    path: str | Path, overrides: Sequence[str] = (), flags: Mapping[str, Any] | None = None
) -> Scenario:
    """The scenario in a YAML or JSON file, changed by flags and then by `--set` overrides. Raises InputError
    with all problems.
    """
    path = Path(path)
    return scenario_from_document(parse_yaml(read_text(path), str(path)), path.parent, overrides, flags)


def read_text(path: Path) -> str:
    """The text of a file. Raises InputError: missing, no UTF-8, too long to be a scenario."""
    try:
        with path.open(encoding="utf-8-sig") as stream:
            text = stream.read(_LONGEST_TEXT + 1)
    except UnicodeDecodeError as error:
        raise InputError(Problem(str(path), message=f"is not UTF-8: {error.reason}")) from None
    except OSError as error:
        raise InputError(Problem(str(path), message=reason(error))) from None
    except ValueError as error:  # a NUL in the name
        raise InputError(Problem(str(path), message=str(error))) from None
    if len(text) > _LONGEST_TEXT:
        allowed = f"at most {_LONGEST_TEXT:,} characters; traces are files of their own"
        raise InputError(Problem(str(path), message="is too long for a scenario", allowed=allowed))
    return text


def parse_scenario(
    text: str, file: str | None = None, base_dir: Path = Path("."), overrides: Sequence[str] = ()
) -> Scenario:
    """The scenario in a text; relative file names in it are relative to `base_dir`."""
    return scenario_from_document(parse_yaml(text, file), base_dir, overrides)


def scenario_from_data(
    data: Mapping[str, Any],
    base_dir: Path = Path("."),
    overrides: Sequence[str] = (),
    file: str | None = None,
    origins: Mapping[DataPath, str] | None = None,
) -> Scenario:
    """The scenario in plain data (made from flags, or inside a study): as from a file, without lines.

    Errors name the origin of the value (a flag) where there is one, else `file`.
    """
    places = {path: Place(origin) for path, origin in (origins or {}).items()}
    return scenario_from_document(Document(deepcopy(dict(data)), file, places), base_dir, overrides)


def scenario_from_document(
    document: Document,
    base_dir: Path = Path("."),
    overrides: Sequence[str] = (),
    flags: Mapping[str, Any] | None = None,
) -> Scenario:
    """The scenario that a document holds; its data is filled in and changed on the way.

    Raises InputError with all problems.
    """
    require_mapping(document, Scenario)
    take_engine_words(document)
    _name_variants(document)  # by these names flags and overrides know them
    set_flags(document, flags or {})
    for override in overrides:
        apply_override(document, override)
    take_engine_words(document)  # those that came with them
    _name_variants(document)
    fill_drafts(document)
    measured = inline_acceptance_files(document, base_dir)
    scenario, problems = checked(document, Scenario)
    problems += name_problems(document, base_dir)
    if scenario is None or problems:
        raise InputError(in_order(problems))
    taken = {document.name(path): value for path, value in document.taken.items()}
    places = {document.name(path): place for path, place in document.values.items()}
    return scenario.at(base_dir, taken, places, measured)


AnySection = TypeVar("AnySection", bound=Section)


def require_mapping(document: Document, root: type[Section]) -> None:
    """Raises InputError for a document that is no mapping, and so has no keys to be wrong."""
    if not isinstance(document.data, dict):
        allowed = f"must be a mapping with {', '.join(root.model_fields)}"
        raise InputError(document.problem((), document.data, "is no mapping", allowed))


def checked(document: Document, root: type[AnySection]) -> tuple[AnySection | None, list[Problem]]:
    """A document's data as the section `root`, None where something is wrong, and all problems found."""
    try:
        return root.model_validate_json(to_json(document.data)), [*document.problems]
    except ValidationError as error:
        problems = [*document.problems, *_shape_problems(document, root)]
        for details in error.errors(include_url=False):
            problems += _explained(document, root, details)
        return None, problems


def _name_variants(document: Document) -> None:
    """Name the variants without a name by their method and draft length: `eagle3-k3`."""
    variants = document.data.get("speculation")
    for index, variant in enumerate(variants if isinstance(variants, list) else ()):
        if isinstance(variant, dict) and "name" not in variant and isinstance(variant.get("method"), str):
            length = variant.get("draft_length", 3)
            variant["name"] = (
                f"{variant['method']}-k{length}" if isinstance(length, int) else variant["method"]
            )
            document.taken[("speculation", index, "name")] = variant["name"]


def _shape_problems(document: Document, root: type[Section]) -> Iterator[Problem]:
    """Unknown keys, and the faults that each section finds between its fields."""
    for path, section, raw in fields.walk(document.data, root):
        for key in raw:
            if key not in section.model_fields:
                guess = did_you_mean(key, section.model_fields)
                message = "unknown key" if guess is None else f"unknown key, did you mean {guess}?"
                known = f"keys: {', '.join(section.model_fields)}"
                yield document.problem((*path, key), None, message, known, of_key=True)
        for fault in section.faults(raw):
            yield _of_fault(document, path, fault)


def _of_fault(document: Document, path: DataPath, fault: Fault) -> Problem:
    value = None if isinstance(fault.value, list | tuple | dict) else fault.value
    return document.problem((*path, *fault.path), value, fault.message, fault.allowed)


def _explained(document: Document, root: type[Section], details: ErrorDetails) -> Iterator[Problem]:
    """pydantic's error in our words, at the place in the file."""
    kind, path = details["type"], _path_in(document.data, details)
    if kind == "extra_forbidden":
        return  # `_shape_problems` reports it with a suggestion
    if kind == FAULTS:
        for fault in details["ctx"]["faults"]:
            yield _of_fault(document, path, fault)
    elif kind.startswith("union_tag"):
        yield from _explained_tag(document, root, path)
    else:
        value = None if kind == "missing" else fields.value_at(path, document.data)
        annotation = fields.annotation_at(path, document.data, root)
        if annotation is None and kind == "literal_error":  # of a section that the value alone would make one
            allowed = f"must be {details['ctx']['expected']}"
        else:
            allowed = f"must be {fields.describe(annotation)}"
        shown = (
            value
            if not isinstance(value, dict | list)
            else f"a {'mapping' if isinstance(value, dict) else 'list'}"
        )
        if value is None and kind != "missing":
            shown = "null"
        message = _message(kind, value, details["msg"])
        if kind == "literal_error" and (nearest := nearest_format(value)) is not None:
            message = f"has no prices of its own, the nearest is {nearest}"
        if kind == "too_short" and isinstance(value, list) and value:
            least = details["ctx"]["min_length"]
            if len(value) >= least:
                return  # its entries are what is wrong, and are reported
            message, allowed = "is too short", f"{least} entries or more"
        yield document.problem(path, shown, message, allowed)


def _explained_tag(document: Document, root: type[Section], path: DataPath) -> Iterator[Problem]:
    """A section of several kinds that names none of them."""
    value = fields.value_at(path, document.data)
    annotation = fields.annotation_at(path, document.data, root)
    kinds = [
        choice.tags()
        for choice in fields.options(annotation)
        if isinstance(choice, type) and issubclass(choice, Section)
    ]
    tag = next(iter(kinds[0]))
    known = [value for kind in kinds for value in kind[tag]]
    if not isinstance(value, dict):
        yield document.problem(
            path,
            "null" if value is None else value,
            "has the wrong type",
            f"must be {fields.describe(annotation)}",
        )
    elif tag not in value:
        yield document.problem((*path, tag), None, "is missing", f"must be one of {', '.join(known)}")
    else:
        name = value[tag]
        guess = did_you_mean(name, known) if isinstance(name, str) else None
        message = "is not known" if guess is None else f"is not known, did you mean {guess}?"
        yield document.problem((*path, tag), name, message, f"must be one of {', '.join(known)}")


def _message(kind: str, value: object, otherwise: str) -> str:
    if kind == "missing":
        return "is missing"
    if isinstance(value, float) and not math.isfinite(value):
        return "is not finite"
    if kind in ("greater_than", "greater_than_equal", "less_than", "less_than_equal"):
        return "is out of range"
    if kind == "literal_error":
        return "is not known"
    if kind.startswith(("too_short", "string_too_short")):
        return "is empty"
    if kind.startswith(("too_long", "string_too_long")):
        return "is too long"
    if kind.endswith(("_type", "_parsing", "_from_float")):
        return "has the wrong type"
    return f"is wrong: {otherwise[:1].lower()}{otherwise[1:]}"


def _path_in(data: object, details: ErrorDetails) -> DataPath:
    """pydantic's location without the names of alternatives that it mixes in: a path in the data."""
    path: DataPath = ()
    inner: Any = data
    for position, part in enumerate(details["loc"]):
        in_list = isinstance(inner, list) and isinstance(part, int) and part < len(inner)
        if in_list or (isinstance(inner, dict) and part in inner):
            inner = inner[part]
            path = (*path, part)
        elif details["type"] == "missing" and position == len(details["loc"]) - 1:
            path = (*path, part)
    return path


def in_order(problems: Sequence[Problem]) -> list[Problem]:
    """Each problem once, in the order of the file; those outside it last.

    The same thing is found in the file as it stands and in its checked form, where 0 may be 0.0.
    """
    once = {(p.file, p.line, p.column, p.field, p.message, p.allowed): p for p in reversed(problems)}
    return sorted(reversed(once.values()), key=lambda p: (p.line is None, p.line or 0, p.column or 0))
