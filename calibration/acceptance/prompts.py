"""Prompts for measurements: pieces of the standard library, held out from training, or a user's file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator.errors import InputError, Problem, reason

BUILTIN = "builtin"
DOMAINS = ("code", "prose")
LENGTHS = (48, 96, 192)
"""Tokens of the built-in prompts, in turn, because acceptance may depend on the context."""


@dataclass(frozen=True)
class TokenisedPrompt:
    """The prompt of a measured request."""

    name: str
    domain: str
    tokens: tuple[int, ...]


def builtin_prompts(tokenizer: Any, count: int, window: int | None = None) -> list[TokenisedPrompt]:
    """Return up to `count` prompts of each domain, one per document, from documents held out by name.

    Code is the source of Python's standard library, prose is its documentation. The order is fixed. No prompt
    is longer than `window` tokens.
    """
    from calibration.drafters.training.text import beginnings, documents

    prompts: list[TokenisedPrompt] = []
    for domain in DOMAINS:
        domain_documents = list(documents(domain, held_out=True))  # type: ignore[arg-type]
        turns = [(min(length, window or length), iter(domain_documents)) for length in LENGTHS]
        names: set[str] = set()
        while turns and len(names) < count:
            length, remaining = turns[len(names) % len(turns)]
            for document in remaining:
                rows, _ = beginnings([document], tokenizer, length, 1)
                if document.name not in names and len(rows):
                    names.add(document.name)
                    prompts.append(
                        TokenisedPrompt(f"{domain}/{document.name}", domain, tuple(rows[0].tolist()))
                    )
                    break
            else:
                turns.remove((length, remaining))
    return prompts


def prompts_from_file(path: Path, tokenizer: Any, window: int | None = None) -> list[TokenisedPrompt]:
    """Return the prompts of a file: JSON lines `{"prompt": text, "domain": name}`, or one prompt per line.

    Raises InputError with the line number for a line that is not a prompt, or is longer than `window` tokens.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(Problem(file=str(path), message=f"cannot be read: {reason(error)}")) from None
    prompts: list[TokenisedPrompt] = []
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
            prompts.append(TokenisedPrompt(f"{path.name}:{number}", domain, tuple(tokens)))
    if not prompts:
        raise InputError(Problem(file=str(path), message="holds no prompt", allowed="one prompt a line"))
    return prompts


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
