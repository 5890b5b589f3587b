"""AIPerf's summary, and genai-perf's, which has the same shape: `profile_export_aiperf.json`.

Its inter-token latency is a request's average, so it is TPOT elsewhere; its inter-chunk latency is ITL.
Acceptance comes from totals over all requests, and from gauges where the server is SGLang.
"""

from __future__ import annotations

from collections.abc import Iterator

from calibration.telemetry.client import MS
from calibration.telemetry.fields import RecordFields, draft_length_of
from calibration.telemetry.reader import RunReader
from calibration.telemetry.reading import Counts, Latency, MeasuredAcceptance, Reading, Source, Stated
from calibration.telemetry.rounds import histogram_of, positions_of

FORMAT = "aiperf"
OLDER_FORMAT = "genai-perf"

LATENCIES = {
    "time_to_first_token": "ttft_s",
    "inter_token_latency": "tpot_s",
    "inter_chunk_latency": "itl_s",
    "request_latency": "e2e_s",
}
"""Tag → latency."""
UNITS = {"ms": MS, "s": 1.0, "sec": 1.0, "us": 1e-6, "ns": 1e-9}
_STATISTICS = {
    "avg": "mean",
    "p50": "p50",
    "p90": "p90",
    "p95": "p95",
    "p99": "p99",
    "std": "std",
    "min": "min",
    "max": "max",
}
_LOAD = {
    "request_count": "requests",
    "request_throughput": "request_rate_per_s",
    "benchmark_duration": "duration_s",
    "input_sequence_length": "prompt_tokens_mean",
    "output_sequence_length": "output_tokens_mean",
    "error_request_count": "failed_requests",
}
_LENGTH, _WEIGHTED = "spec_decode_acceptance_length", "spec_decode_token_weighted_acceptance_length"


class AiperfReader(RunReader):
    """Summaries of AIPerf and genai-perf."""

    title = "summary of AIPerf or genai-perf (profile_export_aiperf.json)"

    def record(self, record: RecordFields) -> bool:
        """Take a summary."""
        if not {"request_throughput", "request_latency"} <= set(record):
            return False
        if "avg" not in record.part("request_throughput") or "avg" not in record.part("request_latency"):
            return False
        version = record.text("aiperf_version")
        form = FORMAT if version or "schema_version" in record else OLDER_FORMAT
        self.keep(reading_of(self.file, self.name, record, form, version))
        self.note(record)
        return True


def reading_of(file: str, name: str, fields: RecordFields, form: str, version: str | None = None) -> Reading:
    """What a summary says; `form` is the format that the source names."""
    latencies = {}
    for tag, name in LATENCIES.items():
        latency = _latency(fields.part(tag))
        if latency is not None:
            latencies[name] = latency
    load = {name: fields.part(tag).number("avg") for tag, name in _LOAD.items()}
    requests, output = load["requests"], load["output_tokens_mean"]
    chunks = latencies["itl_s"].count if "itl_s" in latencies else None
    decoded = requests * (output - 1.0) if requests and output else None
    return Reading(
        name=name,
        sources=(Source(file, form, None, version),),
        acceptance=_acceptance(fields),
        stated=tuple(_stated(fields)),
        latencies=latencies,
        throughput_tokens_per_s=fields.part("output_token_throughput").number("avg"),
        decode_steps=None if chunks is None else float(chunks),
        decoded_tokens=decoded,
        load={name: value for name, value in load.items() if value is not None},
    )


def _acceptance(fields: RecordFields) -> MeasuredAcceptance | None:
    """From the totals; without them from the mean, where only that is there."""
    rounds, accepted, drafted = (
        fields.part(tag).number("avg")
        for tag in ("total_spec_decode_steps", "total_accepted_draft_tokens", "total_draft_tokens")
    )
    if rounds and accepted is not None:
        histogram = histogram_of(fields, "pooled_spec_decode_acceptance_histogram")
        at = positions_of(histogram, rounds, accepted, -(-drafted // rounds) if drafted else None)
        longest = draft_length_of(rounds, drafted, at)
        return MeasuredAcceptance(Counts(rounds, accepted, drafted, at), longest, "counts of all requests")
    length = fields.part(_WEIGHTED).number("avg", 1.0) or fields.part(_LENGTH).number("avg", 1.0)
    if length is None:
        return None
    return MeasuredAcceptance(
        Counts(1.0, length - 1.0), None, "the mean that the client reports", counted=False
    )


def _stated(fields: RecordFields) -> Iterator[Stated]:
    for tag, definition in (
        (_LENGTH, "mean of the requests' 1 + accepted ÷ rounds"),
        (_WEIGHTED, "1 + accepted ÷ rounds"),
    ):
        value = fields.part(tag).number("avg", 1.0)
        if value is not None:
            yield Stated(tag, value, definition)


def _latency(summary: RecordFields) -> Latency | None:
    unit = UNITS.get(summary.text("unit") or "ms")
    mean = summary.number("avg")
    if mean is None or unit is None:
        return None
    statistics = {own: summary.number(name) for name, own in _STATISTICS.items()}
    count = summary.count("count")
    values = {name: value * unit for name, value in statistics.items() if value is not None}
    return Latency(values, None if count is None else int(count))
