"""What a trace format is to the rest: a name, a test of a file's first line, and a function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from simulator.traces.trace import CountTokens, Trace

CHARACTERS_PER_TOKEN = 4
"""Characters of English text per token when no tokenizer is given: a common rule of thumb, ± 20 %."""

ESTIMATE_NOTE = (
    f"lengths are estimated at {CHARACTERS_PER_TOKEN} characters per token, since no tokenizer was given"
)

OPEN_OUTPUTS_NOTE = "output lengths that it leaves open are drawn from workload.output_tokens"


@dataclass(frozen=True)
class TraceReader:
    """One trace format.

    `matches` is asked with the file's first line that is not blank. `read` takes the path, a tokenizer (None:
    lengths of texts are estimated) and the most requests to read (None: all); it raises InputError. `example`
    is a small valid file of the format, for the contract tests and for messages.
    """

    name: str
    title: str
    example: str
    matches: Callable[[str], bool]
    read: Callable[[Path, CountTokens | None, int | None], Trace]


def count_tokens(text: str, tokenizer: CountTokens | None) -> int:
    """Tokens of `text`: the tokenizer's count, or a quarter of its characters, rounded up."""
    return tokenizer(text) if tokenizer is not None else -(-len(text) // CHARACTERS_PER_TOKEN)
