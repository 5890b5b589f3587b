"""Prompts to measure on: pieces of the standard library that no drafter was trained on, or a user's file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator.errors import InputError, Problem, reason

BUILTIN = "builtin"
DOMAINS = ("code", "prose")
LENGTHS = (48, 96, 192)
"""Tokens of the builtin prompts, in turn: acceptance may depend on the context."""


@dataclass(frozen=True)
class Prompt:
    """Where a measured request begins."""

    name: str
    domain: str
    tokens: tuple[int, ...]


def builtin_prompts(tokenizer: Any, count: int, window: int | None = None) -> list[Prompt]:
    """Return up to `count` prompts of each domain, one a document, from documents held out by name.

    Code is the source of Python's standard library, prose its documentation; the order is fixed. None is
    longer than `window`.
    """
    from calibration.drafters.training.text import beginnings, documents

    found: list[Prompt] = []
    for domain in DOMAINS:
        there = list(documents(domain, held_out=True))  # type: ignore[arg-type]
        turns = [(min(length, window or length), iter(there)) for length in LENGTHS]
        names: set[str] = set()
        while turns and len(names) < count:
            length, left = turns[len(names) % len(turns)]
            for document in left:
                rows, _ = beginnings([document], tokenizer, length, 1)
                if document.name not in names and len(rows):
                    names.add(document.name)
                    found.append(Prompt(f"{domain}/{document.name}", domain, tuple(rows[0].tolist())))
                    break
            else:
                turns.remove((length, left))
    return found


def prompts_from_file(path: Path, tokenizer: Any, window: int | None = None) -> list[Prompt]:
    """Return the prompts of a file: JSON lines `{"prompt": text, "domain": name}`, or one prompt a line.

    Raises InputError with the line for what is no prompt, or longer than `window` tokens.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(Problem(file=str(path), message=f"cannot be read: {reason(error)}")) from None
    found: list[Prompt] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            text, domain = _entry(path, number, line)
            tokens = tokenizer.encode(text, add_special_tokens=False)
            if not tokens:
                raise InputError(Problem(str(path), number, message="is an empty prompt"))
            if window is not None and len(tokens) > window:
                message, allowed = "is too long for the model", f"at most {window} tokens and what is decoded"
                raise InputError(
                    Problem(str(path), number, value=len(tokens), message=message, allowed=allowed)
                )
            found.append(Prompt(f"{path.name}:{number}", domain, tuple(tokens)))
    if not found:
        raise InputError(Problem(file=str(path), message="holds no prompt", allowed="one prompt a line"))
    return found


def _entry(path: Path, number: int, line: str) -> tuple[str, str]:
    if not line.lstrip().startswith("{"):
        return line, "prompts"
    try:
        document = json.loads(line)
        text, domain = document["prompt"], document.get("domain", "prompts")
        if isinstance(text, str) and isinstance(domain, str):
            return text, domain
    except (ValueError, KeyError, RecursionError):
        pass
    allowed = '{"prompt": text, "domain": name}, or plain text'
    raise InputError(Problem(str(path), number, message="is no prompt", allowed=allowed))
