"""YAML (and so JSON) text as plain data that remembers the line and column of each value."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from simulator.errors import InputError, Problem, show_value

DataPath = tuple[str | int, ...]
"""A path into the file's data: keys of mappings, indices of list entries."""

_TAG = "tag:yaml.org,2002:"
_KINDS = {"null": "null", "bool": "true or false", "int": "whole number", "float": "number"}
_MAX_DEPTH = 40
_MAX_VALUES = 200_000
"""Values a document may hold, every use of an alias counted: a few lines of YAML can mean billions."""
_SURROGATE = re.compile("[\ud800-\udfff]")


class Place(NamedTuple):
    """A place in a file. `line` and `column` count from 1; both None: not in a file (`--set`, flags)."""

    file: str | None
    line: int | None = None
    column: int | None = None


@dataclass
class Document:
    """Plain data (dict, list, str, int, float, bool, None) and the place of every value and key in it."""

    data: Any
    file: str | None = None
    values: dict[DataPath, Place] = field(default_factory=dict)
    keys: dict[DataPath, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    taken: dict[DataPath, Any] = field(default_factory=dict)
    """What was filled in for fields that the file leaves open."""

    def place(self, path: DataPath, of_key: bool = False) -> Place:
        """The place of `path`; what is missing has the place of what should hold it."""
        places = self.keys if of_key and path in self.keys else self.values
        while path and path not in places:
            path = path[:-1]
            places = self.values
        return places.get(path, Place(self.file))

    def problem(
        self, path: DataPath, value: object, message: str, allowed: str | None, of_key: bool = False
    ) -> Problem:
        """A problem at `path`, with place and field filled in."""
        place = self.place(path, of_key)
        return Problem(place.file, place.line, place.column, self.name(path) or None, value, message, allowed)

    def name(self, path: DataPath) -> str:
        """`speculation.eagle3-k3.draft_length`: dotted, entries of a list by name where they have one."""
        text, container = "", self.data
        for key in path:
            inside = isinstance(container, list) and isinstance(key, int) and key < len(container)
            container = (
                container[key] if inside or (isinstance(container, dict) and key in container) else None
            )
            entry_name = (
                container.get("name") if isinstance(key, int) and isinstance(container, dict) else None
            )
            if isinstance(key, int):
                text += (
                    f".{entry_name}"
                    if entry_name and isinstance(entry_name, str) and entry_name.isprintable()
                    else f"[{key}]"
                )
            else:
                shown = key if key.isprintable() else show_value(key)
                text += f".{shown}" if text else shown
        return text


def parse_yaml(text: str, file: str | None = None) -> Document:
    """One YAML document as data with places. Raises InputError when the text is no YAML or holds nothing.

    What is YAML but has no meaning here (duplicate keys, keys that are no text, tags) is in `problems`, so
    that it is reported together with everything else.
    """
    if file is not None and file.endswith(".json"):
        text = text.replace("\t", " ")  # JSON may indent by tabs, YAML may not; strings hold none in either
    node = _schedule(text, file)
    if node is None:
        raise InputError(Problem(file=file, line=1, message="is empty", allowed="a YAML mapping"))
    document = Document(None, file)
    document.data = _Reader(document).read(node, (), 0)
    return document


def _schedule(text: str, file: str | None) -> Node | None:
    try:
        node: Node | None = YAML(typ="safe", pure=True).compose(text)
        return node
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (None, None) if mark is None else (_within(text, mark.line + 1), mark.column + 1)
        message = " ".join(str(part) for part in (error.context, error.problem) if part) or "is no YAML"
        raise InputError(Problem(file, line, column, message=f"is not YAML: {message}")) from None
    except YAMLError as error:
        line = text.count("\n", 0, getattr(error, "position", 0) or 0) + 1
        raise InputError(Problem(file, line, message=f"is not YAML: {str(error).splitlines()[0]}")) from None
    except RecursionError:
        raise InputError(
            Problem(file, 1, message="is nested too deeply", allowed=f"at most {_MAX_DEPTH} levels")
        ) from None
    except (ValueError, TypeError, AttributeError, IndexError, KeyError, AssertionError) as error:
        # the parser's own bugs on odd text (found by fuzzing); whatever it is, the text is not YAML
        raise InputError(Problem(file, 1, message=f"is not YAML: {show_value(str(error))}")) from None


def _within(text: str, line: int) -> int:
    """`line`, moved back into the text: the parser marks its end one line after the last."""
    return min(line, max(1, len(text.splitlines())))


class _Reader:
    """Turns nodes into data and notes their places in a document."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.values_left = _MAX_VALUES
        self.constructor = YAML(typ="safe", pure=True).constructor

    def read(self, node: Node, path: DataPath, depth: int) -> Any:
        self.values_left -= 1
        place = self._place(node)
        if depth > _MAX_DEPTH or self.values_left < 0:
            raise InputError(
                Problem(
                    *place,
                    message="is too large",
                    allowed=(
                        f"at most {_MAX_DEPTH} levels and {_MAX_VALUES:,} values, aliases counted as used"
                    ),
                )
            )
        self.document.values[path] = place
        if isinstance(node, MappingNode):
            return dict(self._items(node, path, depth))
        if isinstance(node, SequenceNode):
            return [self.read(entry, (*path, index), depth + 1) for index, entry in enumerate(node.value)]
        assert isinstance(node, ScalarNode)
        return self._scalar(node, place, path)

    def _items(self, node: MappingNode, path: DataPath, depth: int) -> Iterator[tuple[str, Any]]:
        seen: dict[str, Place] = {}
        for key_node, value_node in node.value:
            place = self._place(key_node)
            if not isinstance(key_node, ScalarNode):
                self._complain(place, path, None, "a key is no text", "a plain name")
                continue
            key = _joined(str(key_node.value))
            if key in seen:
                first = seen[key].line
                self._complain(
                    place, (*path, key), None, f"stands twice, first on line {first}", "each key once"
                )
                continue
            seen[key] = place
            self.document.keys[(*path, key)] = place
            yield key, self.read(value_node, (*path, key), depth + 1)

    def _scalar(self, node: ScalarNode, place: Place, path: DataPath) -> Any:
        tag, text = str(node.tag or ""), str(node.value)
        try:
            if tag == f"{_TAG}null":
                return None
            if tag == f"{_TAG}bool":
                return bool(self.constructor.construct_yaml_bool(node))
            if tag == f"{_TAG}int":
                return int(self.constructor.construct_yaml_int(node))
            if tag == f"{_TAG}float":
                return float(self.constructor.construct_yaml_float(node))
        except (ValueError, KeyError, IndexError, OverflowError):
            self._complain(place, path, text, f"is no {_KINDS[tag.removeprefix(_TAG)]}", None)
            return None
        if tag not in (f"{_TAG}str", f"{_TAG}timestamp", f"{_TAG}merge", f"{_TAG}value", "!"):
            self._complain(place, path, tag, "has a YAML tag", "plain values")
        return _joined(text)

    def _place(self, node: Node) -> Place:
        mark = node.start_mark
        return Place(self.document.file, mark.line + 1, mark.column + 1)

    def _complain(
        self, place: Place, path: DataPath, value: object, message: str, allowed: str | None
    ) -> None:
        # the data is not there yet, so entries of lists are named by their number
        name = ".".join(str(part) for part in path)
        self.document.problems.append(Problem(*place, name or None, value, message, allowed))


def _joined(text: str) -> str:
    r"""Text with surrogate pairs (`\ud83d\ude00`, as JSON escapes them) joined; a lone one becomes U+FFFD."""
    if not _SURROGATE.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def to_json(data: Any) -> str:
    """Data of a document as JSON text for pydantic; NaN and infinities stay, and are refused there."""
    return json.dumps(data, ensure_ascii=True)
