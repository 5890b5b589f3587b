"""Custom prompts (JSONL): `{"prompt": …}` a line, with `output_tokens` or without; no times."""

from __future__ import annotations

from pathlib import Path

from simulator.traces.fields import RowError, whole_tokens
from simulator.traces.files import TraceRow, json_lines
from simulator.traces.reader import ESTIMATE_NOTE, OPEN_OUTPUTS_NOTE, TraceReader, count_tokens
from simulator.traces.rows import TraceRows
from simulator.traces.trace import NOT_GIVEN, CountTokens, Trace


def read(path: Path, tokenizer: CountTokens | None, limit: int | None) -> Trace:
    """The prompts at `path`; the workload draws the outputs that it leaves open. Raises InputError."""
    rows = TraceRows("prompts", str(path), limit)

    def take(line: int, row: TraceRow) -> None:
        prompt, output = row.get("prompt"), row.get("output_tokens")
        if not isinstance(prompt, str):
            raise RowError(
                "prompt", prompt, "missing" if prompt is None else "not a text", "must be the prompt's text"
            )
        output_tokens = NOT_GIVEN if output is None else whole_tokens(output, "output_tokens")
        rows.add(line, None, count_tokens(prompt, tokenizer), output_tokens)

    rows.each(json_lines(path), take)
    notes = [] if tokenizer else [f"{path.name}: {ESTIMATE_NOTE}"]
    if NOT_GIVEN in rows.output_tokens:
        notes.append(f"{path.name}: {OPEN_OUTPUTS_NOTE}")
    return rows.finish(notes=notes)


PROMPTS = TraceReader(
    name="prompts",
    title="custom prompts (JSONL)",
    example='{"prompt": "Write a haiku about rain.", "output_tokens": 20}\n',
    matches=lambda head: head.startswith("{") and '"prompt"' in head,
    read=read,
)
