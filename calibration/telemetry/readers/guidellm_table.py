"""GuideLLM's terminal tables, as people paste them: one row per benchmark, medians and a high percentile
across.

Headings stand in two or three lines; a name goes on over the columns behind it that are empty. The tables of
one run list its benchmarks in the same order, so their rows are joined by their place.
"""

from __future__ import annotations

import re

from calibration.telemetry.client import MS
from calibration.telemetry.fields import DamagedError, number_of
from calibration.telemetry.lines import CUT
from calibration.telemetry.reader import RunReader
from calibration.telemetry.reading import Latency, Reading, Source

FORMAT = "guidellm-table"

_LATENCIES = (
    ("TTFT", "ttft_s", MS),
    ("ITL", "tpot_s", MS),
    ("Request Latency", "e2e_s", 1.0),
    ("Req Latency", "e2e_s", 1.0),
)
"""Group of columns → latency and its unit; GuideLLM's ITL is a request's average, so it is TPOT."""
_THROUGHPUT = ("Output Tokens", "Out Tok/sec")
_OPENS = ("TTFT", *_THROUGHPUT)
"""Groups by which the first line of a table's headings is known."""
_STATISTIC = {"mdn": "p50", "median": "p50", "mean": "mean", "p95": "p95", "p99": "p99", "p90": "p90"}
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


class GuidellmTableReader(RunReader):
    """Terminal tables of GuideLLM."""

    title = "tables printed by GuideLLM"

    def __init__(self) -> None:
        super().__init__()
        self._groups: list[str] | None = None
        self._statistics: list[str] | None = None
        self._latency_rows: list[tuple[str, dict[str, Latency]]] = []
        self._throughputs: list[float] = []

    def line(self, text: str) -> bool:
        """Take a heading or a row. Raises DamagedError for a row that is cut."""
        if "|" not in text:
            return False
        cells = _cells(text)
        if any(cell.startswith(_OPENS) for cell in cells[1:]):
            if "TTFT" in text and self._latency_rows:
                self.end_run()
            self._groups, self._statistics = _spread(cells), None
            return True
        if self._groups is None:
            return False
        if self._statistics is None:
            if any(cell.lower() in _STATISTIC for cell in cells[1:]):
                self._statistics = [_STATISTIC.get(cell.lower(), "") for cell in _spread(cells)]
            return True
        if set(text) <= set("|=-+ "):
            self._groups = None if "=" in text else self._groups
            return True
        self._row(cells, self._groups, self._statistics)
        return True

    def _row(self, cells: list[str], groups: list[str], statistics: list[str]) -> None:
        if len(cells) != len(groups) or len(statistics) != len(groups) or CUT in cells[-1]:
            raise DamagedError("a row of the table is cut")
        of_run = any(group.startswith("Request") for group in groups)
        latencies: dict[str, dict[str, float]] = {}
        for cell, group, statistic in zip(cells[1:], groups[1:], statistics[1:], strict=True):
            if not statistic or not _NUMBER.fullmatch(cell):
                continue
            value = number_of(cell)
            if group.startswith(_THROUGHPUT) and statistic == "mean" and of_run:
                self._throughputs.append(value)
            for start, name, unit in _LATENCIES:
                if group.startswith(start) and value:
                    latencies.setdefault(name, {})[statistic] = value * unit
        if latencies:
            self._latency_rows.append(
                (cells[0], {name: Latency(values) for name, values in latencies.items()})
            )

    def end_run(self) -> None:
        """End the table at hand."""
        rows, throughputs = self._latency_rows, self._throughputs
        self._latency_rows, self._throughputs = [], []
        self._groups = self._statistics = None
        if len(throughputs) != len(rows):
            throughputs = []
        for place, (strategy, latencies) in enumerate(rows):
            self.keep(
                Reading(
                    name=f"{self.name} ({strategy} {place + 1})",
                    sources=(Source(self.file, FORMAT),),
                    latencies=latencies,
                    throughput_tokens_per_s=throughputs[place] if throughputs else None,
                )
            )


def _cells(text: str) -> list[str]:
    if text.startswith("|"):
        text = text.removeprefix("|").removesuffix("|")
    return [cell.strip() for cell in text.split("|")]


def _spread(cells: list[str]) -> list[str]:
    """The headings of a line, each repeated over the columns behind it that are empty."""
    spread: list[str] = []
    for cell in cells:
        spread.append(cell or (spread[-1] if spread else ""))
    return spread
