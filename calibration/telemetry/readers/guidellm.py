"""GuideLLM (JSON): one reading per benchmark of a report; a sweep holds one per rate.

Its ITL is a request's average, so it is TPOT elsewhere; its own TPOT includes the first token and is left
out. It has no counts of acceptance, unless vLLM returned them with each response: otherwise tokens per
streamed chunk after the first stand in, which is the mean acceptance length when every step drafts and no
chunk is merged.
"""

from __future__ import annotations

from calibration.telemetry.client import MS
from calibration.telemetry.fields import DamagedError, RecordFields
from calibration.telemetry.reader import RunReader
from calibration.telemetry.reading import Finding, Latency, MeasuredAcceptance, Reading, Source, Stated
from calibration.telemetry.rounds import RequestRounds, rounds_of_vllm, tokens_per_chunk

FORMAT = "guidellm"

_LATENCIES = (
    ("ttft_s", "time_to_first_token_ms", MS),
    ("tpot_s", "inter_token_latency_ms", MS),
    ("e2e_s", "request_latency", 1.0),
)
_STATISTICS = ("p50", "p90", "p95", "p99")


class GuidellmReader(RunReader):
    """Reports of GuideLLM."""

    title = "report of GuideLLM (benchmarks.json)"

    def record(self, record: RecordFields) -> bool:
        """Take a report. Raises DamagedError when it has no benchmark."""
        if "benchmarks" not in record or "metadata" not in record:
            return False
        benchmarks = record.parts("benchmarks")
        if not benchmarks:
            raise DamagedError("the report holds no benchmark")
        version = record.part("metadata").text("guidellm_version")
        source = Source(self.file, FORMAT, None, version)
        for benchmark in benchmarks:
            self.keep(_reading(source, self.name, benchmark, len(benchmarks) > 1))
        self.note(record)
        return True


def _reading(source: Source, name: str, benchmark: RecordFields, several: bool) -> Reading:
    metrics, strategy = benchmark.part("metrics"), benchmark.part("config").part("strategy")
    latencies = {}
    for latency_key, key, unit in _LATENCIES:
        latency = _latency(metrics.part(key).part("successful"), unit)
        if latency is not None:
            latencies[latency_key] = latency
    acceptance, stated, findings = _acceptance(benchmark, metrics)
    kind, streams = strategy.text("type_") or "benchmark", strategy.number("streams")
    at = f" ({kind}{f' {streams:g}' if streams is not None else ''})" if several else ""
    load = {
        "concurrency": streams,
        "running_requests": _mean(metrics, "request_concurrency"),
        "request_rate_per_s": _mean(metrics, "requests_per_second"),
        "requests": metrics.part("request_totals").count("successful"),
        "failed_requests": metrics.part("request_totals").count("errored"),
        "prompt_tokens_mean": _mean(metrics, "prompt_token_count"),
        "output_tokens_mean": _mean(metrics, "output_token_count"),
    }
    return Reading(
        name=f"{name}{at}",
        sources=(source,),
        acceptance=acceptance,
        stated=stated,
        latencies=latencies,
        throughput_tokens_per_s=_mean(metrics, "output_tokens_per_second"),
        load={key: value for key, value in load.items() if value is not None},
        findings=findings,
    )


def _acceptance(
    benchmark: RecordFields, metrics: RecordFields
) -> tuple[MeasuredAcceptance | None, tuple[Stated, ...], tuple[Finding, ...]]:
    """From the counts that vLLM returned with all responses, else from tokens per chunk."""
    rounds, counted = RequestRounds(), 0
    for request in benchmark.part("requests").parts("successful"):
        answer = request.part("response_metrics").part("speculative_decoding")
        if "num_spec_steps" in answer:
            rounds.add(*rounds_of_vllm(answer))
            counted += 1
    own = rounds.acceptance("counts that the server returned with each response")
    per_chunk = _mean(metrics, "iter_tokens_per_iteration")
    all_requests = metrics.part("request_totals").count("successful") or 0.0
    if per_chunk is None or per_chunk <= 1.0 or (own is not None and counted >= all_requests):
        return own, (), ()
    return tokens_per_chunk(per_chunk, "iter_tokens_per_iteration", own)


def _latency(summary: RecordFields, unit: float) -> Latency | None:
    mean = summary.number("mean")
    if mean is None:
        return None
    percentiles = summary.part("percentiles")
    statistics = {"mean": mean, **{name: percentiles.number(name) for name in _STATISTICS}}
    statistics["std"] = summary.number("std_dev")
    count = summary.count("count")
    values = {name: value * unit for name, value in statistics.items() if value is not None}
    return Latency(values, None if count is None else int(count)) if count != 0.0 else None


def _mean(metrics: RecordFields, key: str) -> float | None:
    return metrics.part(key).part("successful").number("mean")
