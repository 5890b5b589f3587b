"""`trtllm-bench`: the report it prints and the JSON of `--report_json`.

Its acceptance lengths are per request, so the average weighs every request alike, whatever its rounds. Older
releases print the same lengths as `[AR]`, "acceptance rate". TPOT is per request, as everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from calibration.telemetry.client import MS
from calibration.telemetry.fields import DamagedError, RecordFields, number_of
from calibration.telemetry.reader import RunReader
from calibration.telemetry.reading import (
    Counts,
    Finding,
    Latency,
    MeasuredAcceptance,
    Reading,
    Source,
    Stated,
)

FORMAT = "trtllm-report"

_TAGS = {"TTFT": "ttft_s", "TPOT": "tpot_s", "Latency": "e2e_s"}
_STATISTICS = {
    "MINIMUM": "min",
    "MAXIMUM": "max",
    "AVERAGE": "mean",
    "P50": "p50",
    "P90": "p90",
    "P95": "p95",
    "P99": "p99",
}
_TAGGED = re.compile(
    rf"\[(AL|AR|DT|ADT|TTFT|TPOT|Latency)\] ({'|'.join(_STATISTICS)})\s*: (\d+(?:\.\d+)?)\s*$"
)
_MARK = re.compile(r"\[(?:AL|AR|DT|ADT|TTFT|TPOT|Latency)\] (?:MIN|MAX|AVE|P\d)")
_ROWS = {
    "Number of requests": "requests",
    "Number of concurrent requests": "running_requests",
    "Average Input Length (tokens)": "prompt_tokens_mean",
    "Average Output Length (tokens)": "output_tokens_mean",
    "Request Throughput (req/sec)": "request_rate_per_s",
    "Total Output Throughput (tokens/sec)": "throughput",
}
_ROW = re.compile(rf"(?:^|\s)({'|'.join(map(re.escape, _ROWS))}):\s+(\d+(?:\.\d+)?)\s*$")
_VERSION = re.compile(r"TensorRT.LLM Version:\s+(\S+)")

Tagged = dict[str, dict[str, float]]
"""Tag → statistic → value, as printed."""


class TrtllmReportReader(RunReader):
    """Reports of TensorRT-LLM's benchmark."""

    title = "report of `trtllm-bench` (text or JSON)"

    def __init__(self) -> None:
        super().__init__()
        self._tagged: Tagged = {}
        self._load: dict[str, float] = {}
        self._version: str | None = None

    def line(self, text: str) -> bool:
        """Take a row. Raises DamagedError for one whose number is cut."""
        if ("[A" in text or "[T" in text or "[DT" in text or "[L" in text) and _MARK.search(text):
            match = _TAGGED.search(text)
            if match is None:
                raise DamagedError("a row of the report is cut")
            tag, statistic, value = match.groups()
            if _STATISTICS[statistic] in self._tagged.get(tag, {}):
                self.end_run()
            self._tagged.setdefault(tag, {})[_STATISTICS[statistic]] = number_of(value)
            return True
        if "Version:" in text and (version := _VERSION.search(text)):
            self._version = version.group(1)
        if not ("Number of" in text or "hroughput (" in text or "Length (" in text):
            return False
        row = _ROW.search(text)
        if row is None:
            return False
        name = _ROWS[row.group(1)]
        if name == "requests":
            self.end_run()
        self._load[name] = number_of(row.group(2))
        return True

    def record(self, record: RecordFields) -> bool:
        """Take a JSON report."""
        if not {"engine", "request_info", "performance"} <= set(record):
            return False
        self.end_run()
        performance, request, streaming = (
            record.part(key) for key in ("performance", "request_info", "streaming_metrics")
        )
        parts = {
            "AL": record.part("decoding_stats").part("acceptance_length_percentiles"),
            "DT": record.part("decoding_stats").part("num_draft_tokens_percentiles"),
            "ADT": record.part("decoding_stats").part("num_accepted_draft_tokens_percentiles"),
            "TTFT": streaming.part("ttft_percentiles"),
            "TPOT": streaming.part("tpot_percentiles"),
            "Latency": performance.part("request_latency_percentiles_ms"),
        }
        for tag, part in parts.items():
            values = {own: part.number(name.lower()) for name, own in _STATISTICS.items()}
            known = {name: value for name, value in values.items() if value is not None}
            if known:
                self._tagged[tag] = known
        names = {
            "requests": (request, "num_requests"),
            "running_requests": (request, "avg_num_concurrent_requests"),
            "prompt_tokens_mean": (request, "avg_input_length"),
            "output_tokens_mean": (request, "avg_output_length"),
            "request_rate_per_s": (performance, "request_throughput_req_s"),
            "throughput": (performance, "system_output_throughput_tok_s"),
        }
        load = {name: part.number(key) for name, (part, key) in names.items()}
        self._load = {name: value for name, value in load.items() if value is not None}
        self._version = record.part("engine").text("version")
        self.note(record)
        self.end_run()
        return True

    def end_run(self) -> None:
        """End the table at hand."""
        tagged, load, version = self._tagged, self._load, self._version
        self._tagged, self._load, self._version = {}, {}, None
        if not tagged and "throughput" not in load:
            return
        throughput = load.pop("throughput", None)
        requests = int(load["requests"]) if "requests" in load else None
        lengths = tagged.get("AL") or tagged.get("AR") or {}
        acceptance, stated, findings = _acceptance(tagged, lengths)
        latencies = {
            name: Latency({key: value * MS for key, value in tagged[tag].items()}, requests)
            for tag, name in _TAGS.items()
            if "mean" in tagged.get(tag, {})
        }
        self.keep(
            Reading(
                name=self.name,
                sources=(Source(self.file, FORMAT, "tensorrt-llm", version),),
                acceptance=acceptance,
                stated=stated,
                latencies=latencies,
                throughput_tokens_per_s=throughput,
                load=load,
                findings=findings,
            )
        )


def _acceptance(
    tagged: Tagged, lengths: Mapping[str, float]
) -> tuple[MeasuredAcceptance | None, tuple[Stated, ...], tuple[Finding, ...]]:
    mean = lengths.get("mean")
    if mean is None or mean < 1.0:
        return None, (), ()
    drafted, accepted = tagged.get("DT", {}).get("mean"), tagged.get("ADT", {}).get("mean")
    share = accepted / drafted if drafted and accepted is not None and accepted <= drafted else None
    total = Counts(1.0, mean - 1.0, (mean - 1.0) / share if share else None)
    name = "[AL] AVERAGE" if "AL" in tagged else "[AR] AVERAGE"
    definition = "tokens per round with the bonus token, mean over requests"
    if "AR" in tagged:
        definition += ' (printed as "acceptance rate")'
    text = (
        "trtllm-bench averages over requests, whatever their rounds: the mean over rounds is lower where "
        "requests that accept less take more of them"
    )
    return (
        MeasuredAcceptance(total, None, "mean over requests, not over rounds", counted=False),
        (Stated(name, mean, definition),),
        (Finding("mean-over-requests", "info", text),),
    )
