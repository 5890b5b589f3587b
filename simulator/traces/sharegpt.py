"""ShareGPT conversations (JSON list): no times, lengths from the texts.

Read as the serving benchmarks do (vLLM's `ShareGPTDataset`): the first turn is the prompt, the second gives
the output length; conversations of one turn are dropped, so are pairs with fewer than 4 tokens on either
side, with a prompt above 1,024 tokens or 2,048 tokens in all.
"""

from __future__ import annotations

from pathlib import Path

from simulator.traces.fields import RowError
from simulator.traces.files import TraceRow, json_objects
from simulator.traces.reader import ESTIMATE_NOTE, TraceReader, count_tokens
from simulator.traces.rows import TraceRows
from simulator.traces.trace import CountTokens, Trace

FEWEST_TOKENS = 4
MOST_PROMPT_TOKENS = 1024
MOST_TOKENS_IN_ALL = 2048


def read(path: Path, tokenizer: CountTokens | None, limit: int | None) -> Trace:
    """The first prompt and answer of each conversation that the benchmarks would keep. Raises InputError."""
    rows = TraceRows("sharegpt", str(path), limit)

    def take(line: int, row: TraceRow) -> None:
        turns = row.get("conversations", row.get("conversation"))
        if not isinstance(turns, list):
            raise RowError(
                "conversations",
                turns,
                "missing" if turns is None else "not a list",
                "must be a list of turns",
            )
        if len(turns) < 2:
            rows.dropped["fewer than two turns"] += 1
            return
        prompt_tokens, output_tokens = (
            count_tokens(_text(turn, at), tokenizer) for at, turn in enumerate(turns[:2])
        )
        if min(prompt_tokens, output_tokens) < FEWEST_TOKENS:
            rows.dropped[f"a prompt or answer under {FEWEST_TOKENS} tokens"] += 1
        elif prompt_tokens > MOST_PROMPT_TOKENS or prompt_tokens + output_tokens > MOST_TOKENS_IN_ALL:
            rows.dropped[f"over {MOST_PROMPT_TOKENS} prompt or {MOST_TOKENS_IN_ALL} tokens"] += 1
        else:
            rows.add(line, None, prompt_tokens, output_tokens)

    rows.each(json_objects(path), take)
    return rows.finish(notes=() if tokenizer else (f"{path.name}: {ESTIMATE_NOTE}",))


def _text(turn: object, at: int) -> str:
    """The text of a turn `{"from": …, "value": …}` (or `role` and `content`)."""
    text = turn.get("value", turn.get("content")) if isinstance(turn, dict) else None
    if not isinstance(text, str):
        raise RowError(f"conversations[{at}].value", text, "not a text", "must be the text of the turn")
    return text


SHAREGPT = TraceReader(
    name="sharegpt",
    title="ShareGPT conversations (JSON), first prompt and answer of each",
    example='[{"id": "a", "conversations": [{"from": "human", "value": "Explain a token bucket, please."},\n'
    ' {"from": "gpt", "value": "A token bucket limits a rate by spending tokens that refill."}]}]\n',
    matches=lambda head: head.startswith("[") or '"conversations"' in head,
    read=read,
)
