"""Text that every Python has: the source of its standard library as code, its documentation as prose.

Documents are held out whole, by name. A module's docstrings lie on the same side as its source.
"""

from __future__ import annotations

import ast
import hashlib
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

Domain = Literal["code", "prose"]
HELD_OUT_ONE_IN = 8
"""One document of as many is held out."""
_LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "encodings"}
"""Folders without prose or code that anybody would write: tests, tables of characters, what was installed."""
_SHORTEST_DOCSTRING = 200
_SHORTEST_DOCUMENT = 400
"""Characters."""


@dataclass(frozen=True)
class Document:
    """One file, or the documentation in it. `name` is the file's, relative to the library."""

    name: str
    domain: Domain
    text: str

    @property
    def held_out(self) -> bool:
        """Whether it is kept from training, by its name alone."""
        return _number(self.name) % HELD_OUT_ONE_IN == 0


def documents(domain: Domain, *, held_out: bool, seed: int = 0) -> Iterator[Document]:
    """Yield the documents of a domain on one side, in an order that the seed and their names decide."""
    found = _code() if domain == "code" else _prose()
    chosen = [one for one in found if one.held_out == held_out and len(one.text) >= _SHORTEST_DOCUMENT]
    yield from sorted(chosen, key=lambda one: _number(f"{seed}:{one.name}"))


def windows(found: Iterable[Document], tokenizer: Any, length: int, count: int) -> Tensor:
    """Return at most `count` windows (n, length) of documents laid behind each other, one end token between."""
    end = tokenizer.eos_token_id
    buffer: list[int] = []
    for document in found:
        if len(buffer) >= length * count:
            break
        buffer += tokens_of(document.text, tokenizer) + ([] if end is None else [end])
    whole = min(count, len(buffer) // length)
    return torch.tensor(buffer[: whole * length], dtype=torch.int64).reshape(whole, length)


def beginnings(
    found: Iterable[Document], tokenizer: Any, length: int, count: int
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


def _library() -> Path:
    return Path(sysconfig.get_paths()["stdlib"])


def _sources() -> Iterator[tuple[str, str]]:
    root = _library()
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if not _LEFT_OUT.intersection(parts) and not parts[-1].startswith("_sysconfigdata"):
            try:
                yield "/".join(parts), path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                continue


def _code() -> Iterator[Document]:
    for name, text in _sources():
        if name != "pydoc_data/topics.py":
            yield Document(name, "code", text)


def _prose() -> Iterator[Document]:
    """The language reference that `help()` shows, a topic a document, and each module's docstrings."""
    try:
        from pydoc_data.topics import topics
    except ImportError:  # some systems ship it apart
        topics = {}
    for topic, text in topics.items():
        yield Document(f"pydoc_data/topics.py:{topic}", "prose", text)
    for name, source in _sources():
        text = "\n\n".join(_docstrings(source))
        if text:
            yield Document(name, "prose", text)


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
