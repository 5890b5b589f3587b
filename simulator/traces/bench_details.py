"""Results of serving benchmarks with details, of vLLM and SGLang (JSON): the requests that a client sent.

vLLM keeps the time at which each request was sent, SGLang does not. A result holds lengths and no prompts, so
there is no prefix information. Failed requests have no output and are dropped.
"""

from __future__ import annotations

from pathlib import Path

from simulator.traces.fields import RowError, time_ns, whole_tokens
from simulator.traces.files import TraceRow, json_objects
from simulator.traces.reader import TraceReader
from simulator.traces.rows import TraceRows
from simulator.traces.trace import CountTokens, Trace
from simulator.units import NS_PER_S

_LENGTHS = ("input_lens", "output_lens")


def read(path: Path, tokenizer: CountTokens | None, limit: int | None) -> Trace:
    """The requests of the one run at `path`. Raises InputError."""
    rows = TraceRows("bench", str(path), limit)
    runs = 0

    def take(line: int, row: TraceRow) -> None:
        nonlocal runs
        runs += 1
        if runs > 1:
            raise RowError("", runs, "a second run", "a file of one run: times of two do not fit together")
        lists = {name: _list(row, name) for name in (*_LENGTHS, "start_times")}
        prompts, outputs, starts = lists["input_lens"], lists["output_lens"], lists["start_times"]
        if prompts is None or outputs is None:
            missing = _LENGTHS[0 if prompts is None else 1]
            allowed = "write the result with --save-detailed (vLLM) or --output-details (SGLang)"
            raise RowError(missing, None, "missing", allowed)
        if len(outputs) != len(prompts) or (starts is not None and len(starts) != len(prompts)):
            raise RowError(
                "output_lens", len(outputs), "not as many as input_lens", f"must be {len(prompts)}"
            )
        for place, (prompt, output) in enumerate(zip(prompts, outputs, strict=True)):
            if rows.full:
                return
            try:
                at_ns = None if starts is None else time_ns(starts[place], f"start_times[{place}]", NS_PER_S)
                prompt_tokens = whole_tokens(prompt, f"input_lens[{place}]")
                rows.add(line, at_ns, prompt_tokens, whole_tokens(output, f"output_lens[{place}]"))
            except RowError as broken:
                rows.broken(line, broken.problem)

    rows.each(json_objects(path), take)
    return rows.finish()


def _list(row: TraceRow, name: str) -> list[object] | None:
    value = row.get(name)
    if value is not None and not isinstance(value, list):
        raise RowError(name, value, "not a list", "must be a list, one element per request")
    return value


BENCH_DETAILS = TraceReader(
    name="bench",
    title="result of `vllm bench serve --save-detailed` or `sglang.bench_serving --output-details` (JSON)",
    example='{"backend": "vllm", "completed": 2, "input_lens": [512, 300], "output_lens": [15, 40],\n'
    ' "start_times": [100.0, 100.25], "itls": [[0.01], [0.01]]}\n',
    matches=lambda head: head.startswith("{") and '"input_lens"' in head and '"output_lens"' in head,
    read=read,
)
