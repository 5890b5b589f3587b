"""One row of a Mooncake or AIPerf trace: where its prompt's length comes from and what it holds."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from simulator.traces.fields import RowError, whole_tokens
from simulator.traces.files import TraceRow
from simulator.traces.reader import CHARACTERS_PER_TOKEN, count_tokens
from simulator.traces.trace import NOT_GIVEN, CountTokens

MOONCAKE_BLOCK_TOKENS = 512
TIMED_TRACE_BLOCK_TOKENS = 16

_PROMPTS = ("input_length", "text_input", "messages")
_ONE_PROMPT = f"must have one of {', '.join(_PROMPTS)}"


@dataclass(frozen=True)
class MooncakePrompt:
    """The prompt of a row by itself: `tokens`, and `hash_ids` of its full blocks or its `text`, if known.

    `accumulates`: in a session, the turns before it precede it (AIPerf's `deltas_without_responses`);
    otherwise it is complete as it stands (recorded `messages`).
    """

    tokens: int
    accumulates: bool
    hash_ids: tuple[int, ...] = ()
    text: str | None = None
    has_extra_ids: bool = False

    def contents(self, block_tokens: int, estimated: bool) -> Sequence[Hashable]:
        """What stands in the leading full blocks: the hash ids, or pieces of the text.

        A text can be cut into blocks when lengths are estimated: a token then is a number of characters.
        """
        if self.hash_ids or self.text is None or not estimated:
            return self.hash_ids
        step = block_tokens * CHARACTERS_PER_TOKEN
        return [self.text[at : at + step] for at in range(0, len(self.text) - step + 1, step)]


def prompt_of(row: TraceRow, tokenizer: CountTokens | None, block_tokens: int) -> MooncakePrompt:
    """The prompt of a row: by length, or by a text whose tokens are counted or estimated. Raises RowError."""
    forms = [name for name in _PROMPTS if row.get(name) is not None]
    if len(forms) != 1:
        raise RowError(_PROMPTS[0], forms or None, "several prompts" if forms else "missing", _ONE_PROMPT)
    (name,) = forms
    if name == "input_length":
        tokens = whole_tokens(row[name], name)
        ids = _hash_ids(row.get("hash_ids"), tokens, block_tokens)
        extra = len(ids) > -(-tokens // block_tokens)
        return MooncakePrompt(tokens, True, ids[: tokens // block_tokens], has_extra_ids=extra)
    text = _text(row[name], name)
    accumulates = name == "text_input" or row.get("message_mode") == "delta"
    return MooncakePrompt(count_tokens(text, tokenizer), accumulates, text=text)


def output_tokens_of(row: TraceRow) -> int:
    """The row's output length; only rows with a text may leave it open (-1). Raises RowError."""
    length = row.get("output_length")
    if length is None and row.get("input_length") is None:
        return NOT_GIVEN
    return whole_tokens(length, "output_length")


def session_of(row: TraceRow) -> str | None:
    """The name of the row's session, if it has one. Raises RowError."""
    name = row.get("session_id")
    if name is not None and not isinstance(name, str | int):
        raise RowError("session_id", name, "not a name", "must be a text")
    return None if name is None else str(name)


def is_mooncake(head: str) -> bool:
    """Whether a file that begins with this line is a Mooncake or AIPerf trace."""
    return any(name in _first_row(head) for name in _PROMPTS) and not is_timed_trace(head)


def is_timed_trace(head: str) -> bool:
    """Whether the ids of a file's first row fit blocks of 16 tokens and do not fit blocks of 512."""
    row = _first_row(head)
    tokens, ids = row.get("input_length"), row.get("hash_ids")
    if not isinstance(tokens, int) or not isinstance(ids, list):
        return False
    return len(ids) == -(-tokens // TIMED_TRACE_BLOCK_TOKENS) > -(-tokens // MOONCAKE_BLOCK_TOKENS)


def _hash_ids(ids: object, tokens: int, block_tokens: int) -> tuple[int, ...]:
    """The ids of a prompt's blocks, at least one for each full block; none when it has no `hash_ids`."""
    if ids is None:
        return ()
    if not isinstance(ids, list) or any(isinstance(id_, bool) or not isinstance(id_, int) for id_ in ids):
        raise RowError("hash_ids", ids, "not a list of whole numbers", "must have one id per block")
    full = tokens // block_tokens
    if len(ids) < full:
        allowed = f"{tokens} tokens fill {full} blocks of {block_tokens}"
        raise RowError("hash_ids", len(ids), "too few ids", allowed)
    return tuple(ids)


def _text(value: object, name: str) -> str:
    """A prompt as one text: itself, or its messages one after the other with their roles."""
    if name == "text_input" and isinstance(value, str):
        return value
    if name != "messages" or not isinstance(value, list) or any(not isinstance(part, dict) for part in value):
        allowed = "must be a list of messages" if name == "messages" else "must be a text"
        raise RowError(name, value, "not a prompt", allowed)
    return "".join(f"{part.get('role', '')}\n{_content(part.get('content'))}\n" for part in value)


def _content(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def _first_row(head: str) -> TraceRow:
    """The object on a file's first line; empty when there is none."""
    try:
        row = json.loads(head)
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}
