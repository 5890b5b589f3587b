"""JSON in files: one document, a list, objects one after another, or one object a line among other lines."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from calibration.telemetry.lines import MOST_JSON_CHARACTERS, Line
from simulator.errors import InputError, Problem

_LOG_KEYS = ("log", "message", "msg")
"""Keys under which log shippers keep the line of a log."""
_MOST_LINES_AMONG_OTHERS = 100_000
"""Lines of a document in the middle of a file; what is longer is taken for text."""
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


@dataclass(frozen=True, slots=True)
class Record:
    """A JSON object and the line at which it begins. `repeated` names keys that it holds twice."""

    number: int
    value: Mapping[str, Any]
    repeated: tuple[str, ...] = ()


def content_of(name: str, lines: Iterable[Line]) -> Iterator[Line | Record]:
    """The lines and JSON objects of a file. A JSON object that wraps a line of a log gives that line.

    Raises InputError when the file begins with a JSON document that is damaged, cut or too long.
    """
    source = iter(lines)
    first = True
    for line in source:
        start = line.text.strip()
        if not start:
            continue
        if start[0] not in "{[":
            yield line
        elif (parsed := _parsed(start)) is not None:
            yield from _objects(line.number, *parsed)
        elif _goes_on(start, first):
            yield from _document(name, line, source, first)
        else:
            yield line
        first = False


def _goes_on(text: str, first: bool) -> bool:
    """Whether a line opens a JSON document of several lines. At the beginning of a file every line that could
    does; elsewhere it must end where JSON breaks its lines, so that a cut record is not taken for one."""
    rest = text[1:].lstrip()
    opens = (not rest or rest[0] in '"{[]}') and _depth(text) > 0
    return opens and (first or text[-1] in "{[,")


def _document(name: str, opening: Line, source: Iterator[Line], first: bool) -> Iterator[Line | Record]:
    """The document that begins with a line, and what stands behind it on its last line."""
    collected, depth, length = [opening], _depth(opening.text), len(opening.text)
    for line in source:
        collected.append(line)
        depth += _depth(line.text)
        length += len(line.text) + 1
        if depth <= 0 or length > MOST_JSON_CHARACTERS:
            break
        if not first and len(collected) > _MOST_LINES_AMONG_OTHERS:
            break
    if length > MOST_JSON_CHARACTERS:
        message = f"is a JSON document of more than {MOST_JSON_CHARACTERS >> 20} MiB"
        allowed = "a smaller one: benchmark clients write it without the details of each request"
        raise InputError(Problem(file=name, message=message, allowed=allowed))
    repeated: list[str] = []
    try:
        text = "\n".join(line.text for line in collected).lstrip()
        value, end = json.JSONDecoder(object_pairs_hook=_pairs(repeated)).raw_decode(text)
    except (ValueError, RecursionError) as error:
        if first:
            raise _no_json(name, opening.number, error) from None
        yield from collected
        return
    yield from _objects(opening.number, value, tuple(dict.fromkeys(repeated)))
    if text[end:].strip():
        yield Line(collected[-1].number, text[end:], collected[-1].is_complete)


def _objects(number: int, value: Any, repeated: tuple[str, ...]) -> Iterator[Line | Record]:
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, dict):
            continue
        wrapped = next((item[key] for key in _LOG_KEYS if isinstance(item.get(key), str)), None)
        if wrapped is None:
            yield Record(number, item, repeated)
        else:
            yield from (Line(number, text) for text in wrapped.splitlines())


def _parsed(text: str) -> tuple[Any, tuple[str, ...]] | None:
    """The JSON value of a text and the keys that repeat in it; None where it is not JSON."""
    repeated: list[str] = []
    try:
        value = json.loads(text, object_pairs_hook=_pairs(repeated))
    except (ValueError, RecursionError):
        return None
    return value, tuple(dict.fromkeys(repeated))


def _pairs(repeated: list[str]) -> Any:
    """A hook that keeps the first value of a key and notes keys that repeat."""

    def hook(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        record = dict(pairs)
        if len(record) < len(pairs):
            repeated.extend(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
            record = dict(reversed(pairs))
        return record

    return hook


def _depth(text: str) -> int:
    """How many more brackets a line opens than it closes, those within strings left out."""
    bare = _STRING.sub("", text)
    return bare.count("{") + bare.count("[") - bare.count("}") - bare.count("]")


def _no_json(name: str, line: int, error: ValueError | RecursionError) -> InputError:
    if not isinstance(error, json.JSONDecodeError):
        return InputError(Problem(file=name, line=line, message=f"is not JSON: {error}"))
    return InputError(
        Problem(
            file=name,
            line=line + error.lineno - 1,
            column=error.colno,
            message=f"is not JSON: {error.msg[:1].lower()}{error.msg[1:]}",
            allowed="the whole document; this one may have been cut",
        )
    )
