"""Records of AIPerf (`profile_export.jsonl`): one request a line with its lengths and, mostly, its start.

Conversations keep their recorded times and full prompts. Warm-up requests and failed ones are dropped.
"""

from __future__ import annotations

from pathlib import Path

from simulator.traces.fields import RowError, time_ns, whole_tokens
from simulator.traces.files import TraceRow, json_lines
from simulator.traces.reader import TraceReader
from simulator.traces.rows import TraceRows
from simulator.traces.trace import CountTokens, Trace

_STARTS = ("request_start_ns", "credit_issued_ns")
_LENGTHS = ("input_sequence_length", "output_sequence_length")


def read(path: Path, tokenizer: CountTokens | None, limit: int | None) -> Trace:
    """The requests at `path`; no prefix information. Raises InputError."""
    rows = TraceRows("aiperf-records", str(path), limit)

    def take(line: int, row: TraceRow) -> None:
        metadata, metrics = _part(row, "metadata"), _part(row, "metrics")
        if metadata.get("benchmark_phase") == "warmup":
            rows.dropped["the warm-up phase"] += 1
            return
        if row.get("error") is not None:
            rows.dropped["an error"] += 1
            return
        start = next((metadata[name] for name in _STARTS if metadata.get(name) is not None), None)
        at_ns = None if start is None else time_ns(start, "metadata.request_start_ns", 1)
        prompt, output = (whole_tokens(_value(metrics, name), f"metrics.{name}.value") for name in _LENGTHS)
        conversation = metadata.get("conversation_id")
        rows.add(line, at_ns, prompt, output, None if conversation is None else str(conversation))

    rows.each(json_lines(path), take)
    return rows.finish()


def _part(row: TraceRow, name: str) -> TraceRow:
    value = row.get(name)
    if not isinstance(value, dict):
        raise RowError(name, value, "missing" if value is None else "not an object", "must be an object")
    return value


def _value(metrics: TraceRow, name: str) -> object:
    metric = metrics.get(name)
    return metric.get("value") if isinstance(metric, dict) else metric


AIPERF_RECORDS = TraceReader(
    name="aiperf-records",
    title="records of AIPerf (profile_export.jsonl)",
    example='{"metadata": {"conversation_id": "c0", "request_start_ns": 1759813207532900363}, "metrics": '
    '{"input_sequence_length": {"value": 512, "unit": "tokens"}, '
    '"output_sequence_length": {"value": 15, "unit": "tokens"}}, "error": null}\n',
    matches=lambda head: head.startswith("{") and '"metadata"' in head and '"input_sequence_length"' in head,
    read=read,
)
