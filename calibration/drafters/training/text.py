"""Text that every Python has: the source of its standard library as code, its documentation as prose.

Documents are held out whole, by name. A module's docstrings lie on the same side as its source.
"""

from __future__ import annotations

import ast
import hashlib
import sysconfig
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

Domain = Literal["code", "prose"]
HELD_OUT_ONE_IN = 8
"""One document of as many is held out."""
_LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "encodings"}
"""Folders without prose or code that anybody would write: tests, tables of characters, what was installed."""
_TOPICS = "pydoc_data/topics.py"
_SHORTEST_DOCSTRING = 200
_SHORTEST_DOCUMENT = 400
"""Characters."""


@dataclass(frozen=True)
class TextDocument:
    """One file, or the documentation in it. `name` is the file's, relative to the library."""

    name: str
    text: str


def documents(domain: Domain, *, held_out: bool, seed: int = 0) -> Iterator[TextDocument]:
    """Yield the documents of a domain on one side, in an order that the seed and their names decide.

    A document's name alone decides its side. Files are read as they are reached.
    """
    readers = _code() if domain == "code" else _prose()
    chosen = [name for name in readers if is_held_out(name) == held_out]
    for name in sorted(chosen, key=lambda one: _number(f"{seed}:{one}")):
        text = readers[name]()
        if len(text) >= _SHORTEST_DOCUMENT:
            yield TextDocument(name, text)


def is_held_out(name: str) -> bool:
    """Return whether a document is kept from training."""
    return _number(name) % HELD_OUT_ONE_IN == 0


def beginnings(
    found: Iterable[TextDocument], tokenizer: Any, length: int, count: int
) -> tuple[Tensor, list[str]]:
    """Return prompts (n, length), one piece of each document, and the documents' names.

    The piece stands at a place that the document's name decides.
    """
    rows: list[list[int]] = []
    names: list[str] = []
    for document in found:
        if len(rows) == count:
            break
        tokens = tokens_of(document.text, tokenizer)
        if len(tokens) > length:
            start = _number(document.name) % (len(tokens) - length)
            rows.append(tokens[start : start + length])
            names.append(document.name)
    return torch.tensor(rows, dtype=torch.int64).reshape(len(rows), length), names


def tokens_of(text: str, tokenizer: Any) -> list[int]:
    """Return the tokens of a text, none added around it."""
    tokens: list[int] = tokenizer.encode(text, add_special_tokens=False, verbose=False)
    return tokens


Reader = Callable[[], str]


def _sources() -> dict[str, Path]:
    """The library's modules by name; folders that are not its own left out."""
    root = Path(sysconfig.get_paths()["stdlib"])
    found = {path.relative_to(root).as_posix(): path for path in root.rglob("*.py")}
    return {
        name: path
        for name, path in found.items()
        if not _LEFT_OUT.intersection(name.split("/")) and not path.name.startswith("_sysconfigdata")
    }


def _code() -> dict[str, Reader]:
    return {name: partial(_read, path) for name, path in _sources().items() if name != _TOPICS}


def _prose() -> dict[str, Reader]:
    """The language reference that `help()` shows, a topic a document, and each module's docstrings."""
    readers: dict[str, Reader] = {
        name: partial(_documentation, path) for name, path in _sources().items() if name != _TOPICS
    }
    try:
        from pydoc_data.topics import topics
    except ImportError:  # some systems ship it apart
        return readers
    return readers | {f"{_TOPICS}:{topic}": partial(str, text) for topic, text in topics.items()}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _documentation(path: Path) -> str:
    return "\n\n".join(_docstrings(_read(path)))


def _docstrings(source: str) -> Iterator[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in old sources
            tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text and len(text) >= _SHORTEST_DOCSTRING:
                yield text


def _number(name: str) -> int:
    """A number that a name alone decides."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "big")
