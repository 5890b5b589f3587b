"""AIPerf's terminal table, as people paste it, and its CSV: one row per metric, statistics across.

Long names of the table go on in the next row. Each row becomes the metric that the summary has for it.
"""

from __future__ import annotations

import csv
import re
from typing import Any

from calibration.telemetry.fields import DamagedError, RecordFields, number_of
from calibration.telemetry.reader import RunReader
from calibration.telemetry.readers import aiperf

FORMAT = "aiperf-table"

_STATISTICS = frozenset("avg min max sum std p1 p5 p10 p25 p50 p75 p90 p95 p99 value".split())
_TAGS = {
    "time to first token": "time_to_first_token",
    "inter token latency": "inter_token_latency",
    "inter chunk latency": "inter_chunk_latency",
    "request latency": "request_latency",
    "output token throughput": "output_token_throughput",
    "request throughput": "request_throughput",
    "request count": "request_count",
    "output sequence length": "output_sequence_length",
    "input sequence length": "input_sequence_length",
    "benchmark duration": "benchmark_duration",
}
"""Name in the table → tag of the summary. Acceptance has too few digits here, and is left to the summary."""
_NAME = re.compile(r"(.+?) ?\(([^()]*)\)$")
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
_NOTHING = ("", "-", "n/a", "nan")


class AiperfTableReader(RunReader):
    """Terminal tables and CSV files of AIPerf."""

    title = "table printed by AIPerf, or its CSV"

    def __init__(self) -> None:
        super().__init__()
        self._headings: list[str] | None = None
        self._metrics: dict[str, Any] = {}
        self._name, self._values = "", list[str]()

    def line(self, text: str) -> bool:
        """Take a row. Raises DamagedError for one that is cut."""
        if "Metric" in text and (match := _cells(text)) and match[0] == "Metric":
            headings = [cell.lower() for cell in match[1:]]
            if headings and _STATISTICS.issuperset(headings):
                if "avg" in headings:
                    self.end_run()
                self._headings = headings
                return True
        if self._headings is None or not ("│" in text or "," in text):
            return False
        cells = _cells(text)
        if len(cells) != len(self._headings) + 1:
            if "│" in text:
                raise DamagedError("a row of the table is cut")
            return False
        self._row(cells[0], cells[1:], self._headings)
        return True

    def _row(self, name: str, values: list[str], headings: list[str]) -> None:
        goes_on = self._name and not any(values)
        self._name = f"{self._name} {name}".strip() if goes_on else name
        self._values = self._values if goes_on else values
        match = _NAME.match(self._name)
        tag = _TAGS.get(match.group(1).lower()) if match is not None else None
        if match is None or tag is None:
            return
        numbers = {
            "avg" if heading == "value" else heading: number_of(value)
            for heading, value in zip(headings, self._values, strict=True)
            if value.lower() not in _NOTHING and _NUMBER.fullmatch(value)
        }
        self._metrics.setdefault(tag, {"unit": match.group(2), **numbers})
        self._name, self._values = "", []

    def end_run(self) -> None:
        """End the table at hand."""
        metrics, self._metrics, self._headings, self._name = self._metrics, {}, None, ""
        if set(aiperf.LATENCIES) & metrics.keys():
            self.keep(aiperf.reading_of(self.file, self.name, RecordFields(metrics), FORMAT))


def _cells(text: str) -> list[str]:
    """The cells of a row, of a table or of a CSV."""
    for border in "│┃":
        if border in text:
            return [cell.strip() for cell in text.strip(border).split(border)]
    try:
        return [cell.strip() for cell in next(csv.reader([text]), [])]
    except csv.Error:
        return []
