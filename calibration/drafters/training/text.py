"""Text that comes with Python: the source of the standard library as code, its documentation as prose.

Whole documents are held out, by name. A module's docstrings are on the same side as its source.
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
"""One document in this many is held out."""
_EXCLUDED_FOLDERS = {
    "test",
    "tests",
    "idle_test",
    "site-packages",
    "dist-packages",
    "__pycache__",
    "encodings",
}
"""Folders without ordinary code or prose: tests, character tables, installed packages."""
_TOPICS = "pydoc_data/topics.py"
_MIN_DOCSTRING = 200
_MIN_DOCUMENT = 400
"""Characters."""


@dataclass(frozen=True)
class TextDocument:
    """One file or its documentation. `name` is the path of the file relative to the library."""

    name: str
    text: str


def documents(domain: Domain, *, held_out: bool, seed: int = 0) -> Iterator[TextDocument]:
    """Yield the documents of a domain, held out or not, in an order that depends on the seed and their names.

    Whether a document is held out depends only on its name. Files are read when they are reached.
    """
    readers = _code() if domain == "code" else _prose()
    chosen = [name for name in readers if is_held_out(name) == held_out]
    for name in sorted(chosen, key=lambda name: _number(f"{seed}:{name}")):
        text = readers[name]()
        if len(text) >= _MIN_DOCUMENT:
            yield TextDocument(name, text)


def is_held_out(name: str) -> bool:
    """Return whether a document is kept from training."""
    return _number(name) % HELD_OUT_ONE_IN == 0


def beginnings(
    texts: Iterable[TextDocument], tokenizer: Any, length: int, count: int
) -> tuple[Tensor, list[str]]:
    """Return prompts (n, length), one piece of each document, and the documents' names.

    The position of the piece depends on the document's name.
    """
    rows: list[list[int]] = []
    names: list[str] = []
    for document in texts:
        if len(rows) == count:
            break
        tokens = tokens_of(document.text, tokenizer)
        if len(tokens) > length:
            start = _number(document.name) % (len(tokens) - length)
            rows.append(tokens[start : start + length])
            names.append(document.name)
    return torch.tensor(rows, dtype=torch.int64).reshape(len(rows), length), names


def tokens_of(text: str, tokenizer: Any) -> list[int]:
    """Return the tokens of a text, without special tokens."""
    tokens: list[int] = tokenizer.encode(text, add_special_tokens=False, verbose=False)
    return tokens


Reader = Callable[[], str]


def _sources() -> dict[str, Path]:
    """The library's modules by name, without the excluded folders."""
    root = Path(sysconfig.get_paths()["stdlib"])
    paths = {path.relative_to(root).as_posix(): path for path in root.rglob("*.py")}
    return {
        name: path
        for name, path in paths.items()
        if not _EXCLUDED_FOLDERS.intersection(name.split("/")) and not path.name.startswith("_sysconfigdata")
    }


def _code() -> dict[str, Reader]:
    return {name: partial(_read, path) for name, path in _sources().items() if name != _TOPICS}


def _prose() -> dict[str, Reader]:
    """The language reference of `help()`, one document per topic, and each module's docstrings."""
    readers: dict[str, Reader] = {
        name: partial(_documentation, path) for name, path in _sources().items() if name != _TOPICS
    }
    try:
        from pydoc_data.topics import topics
    except ImportError:  # some systems ship it separately
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
            warnings.simplefilter("ignore")  # old sources have invalid escapes
            tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text and len(text) >= _MIN_DOCSTRING:
                yield text


def _number(name: str) -> int:
    """A hash of a name as a number."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "big")
