"""What is allowed at a place of the scenario file: the schema read along a path, and put into words."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from simulator.document import DataPath
from simulator.scenario.base import Section
from simulator.scenario.schema import Scenario


def walk(
    raw: object, annotation: Any = Scenario, path: DataPath = ()
) -> Iterator[tuple[DataPath, type[Section], Mapping[str, Any]]]:
    """Every section that `raw` means to be: path, class, raw content. Skips what it cannot place."""
    if isinstance(raw, Mapping):
        section = meant_section(annotation, raw)
        if section is not None:
            yield path, section, raw
        keys: list[str | int] = [key for key in raw if isinstance(key, str)]
    elif isinstance(raw, list | tuple):
        keys = list(range(len(raw)))
    else:
        return
    for key in keys:
        inner = child(annotation, raw, key)
        if inner is not None:
            yield from walk(raw[key], inner, (*path, key))  # type: ignore[index]


def annotation_at(path: DataPath, raw: object, root: type[Section] = Scenario) -> Any:
    """The type that belongs at `path` of `raw`, a `root`; None when the schema has nothing there."""
    annotation: Any = root
    for key in path:
        annotation = child(annotation, raw, key)
        if annotation is None:
            return None
        raw = value_at((key,), raw)
    return annotation


def value_at(path: DataPath, raw: object) -> object:
    """The value at `path`, or None where there is nothing."""
    for key in path:
        inside_list = isinstance(raw, list | tuple) and isinstance(key, int) and key < len(raw)
        if not inside_list and not (isinstance(raw, Mapping) and key in raw):
            return None
        raw = raw[key]  # type: ignore[index]
    return raw


def child(annotation: Any, raw: object, key: str | int) -> Any:
    """The type of `raw[key]`, or None when the schema has nothing there."""
    for option in options(annotation):
        if _is_section(option):
            if isinstance(raw, Mapping) and option.is_meant(raw) and key in option.model_fields:
                return field_type(option.model_fields[str(key)])
        elif get_origin(option) is tuple and isinstance(key, int):
            inner = get_args(option)
            if inner[-1] is Ellipsis:
                return inner[0]
            if key < len(inner):
                return inner[key]
        elif get_origin(option) is dict and isinstance(key, str):
            return get_args(option)[1]
    return None


def meant_section(annotation: Any, raw: Mapping[str, Any]) -> type[Section] | None:
    """The section class, among those the type allows, that this mapping means."""
    sections = (option for option in options(annotation) if _is_section(option) and option.is_meant(raw))
    return next(sections, None)


def options(annotation: Any) -> list[Any]:
    """The alternatives of a type: unions and Annotated taken apart."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return options(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [option for part in get_args(annotation) for option in options(part)]
    return [annotation]


def field_type(info: FieldInfo) -> Any:
    """The type of a field with its limits put back."""
    return Annotated[(info.annotation, *info.metadata)] if info.metadata else info.annotation


def describe(annotation: Any) -> str:
    """What is allowed, in words: `a whole number, 1 to 128`, `one of greedy, sampled`, `a list of …`."""
    origin = get_origin(annotation)
    if origin is Annotated:
        base, *limits = get_args(annotation)
        return _with_limits(describe(base), _flat(limits))
    if origin in (Union, types.UnionType):
        return _describe_union(list(get_args(annotation)))
    if origin is Literal:
        return _one_of([str(value) for value in get_args(annotation)])
    if origin is tuple:
        inner = get_args(annotation)
        if inner[-1] is Ellipsis:
            return f"a list, each entry {describe(inner[0])}"
        return f"a list of {len(inner)}: {'; '.join(describe(part) for part in inner)}"
    if origin is dict:
        inner = get_args(annotation)[1]
        return "a mapping" if inner is Any else f"a mapping by name, each {describe(inner)}"
    if _is_section(annotation):
        return f"a mapping with {', '.join(annotation.model_fields)}"
    plain = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "null"}
    return plain.get(annotation, "something else")


def _describe_union(parts: list[Any]) -> str:
    sections = [part for part in parts if _is_section(part)]
    tag = next(iter(sections[0].tags()), None) if sections else None
    if tag is None:
        return " or ".join(describe(part) for part in parts)
    names = [value for part in sections for value in part.tags()[tag]]
    rest = [describe(part) for part in parts if part not in sections]
    return " or ".join([f"a mapping with {tag} {_one_of(names)}", *rest])


def _one_of(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"one of {', '.join(names)}"


def _flat(metadata: list[Any]) -> list[Any]:
    """Limits, those inside a `Field(...)` taken out."""
    return [
        limit for entry in metadata for limit in (entry.metadata if isinstance(entry, FieldInfo) else [entry])
    ]


def _with_limits(text: str, limits: list[Any]) -> str:
    low = high = None
    for limit in limits:
        if isinstance(limit, Ge):
            low = f"{limit.ge:,}"
        elif isinstance(limit, Gt):
            low = f"above {limit.gt:,}"
        elif isinstance(limit, Le):
            high = f"{limit.le:,}"
        elif isinstance(limit, Lt):
            high = f"below {limit.lt:,}"
    if low and high:
        return f"{text}, {low} to {high}"
    if low:
        return f"{text}, {low}" if low.startswith("above") else f"{text}, at least {low}"
    if high:
        return f"{text}, {high}" if high.startswith("below") else f"{text}, at most {high}"
    return text


def _is_section(option: Any) -> bool:
    return isinstance(option, type) and issubclass(option, Section)
