"""The table that the serving benchmarks of vLLM and SGLang print, as people paste it.

Each row becomes the field that the client's JSON has for it, and the JSON's reader does the rest. Rows are
found wherever they stand in a line, so prompts, quote marks and timestamps before them do not matter.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from calibration.telemetry.fields import DamagedError, RecordFields, number_of
from calibration.telemetry.reader import RunReader
from calibration.telemetry.readers import sglang_bench, vllm_bench

_ROWS = {
    "Backend": "backend",
    "Traffic request rate": "request_rate",
    "Successful requests": "completed",
    "Failed requests": "failed",
    "Maximum request concurrency": "max_concurrency",
    "Max request concurrency": "max_concurrency",
    "Benchmark duration (s)": "duration",
    "Total input tokens": "total_input_tokens",
    "Total generated tokens": "total_output_tokens",
    "Total generated tokens (retokenized)": "total_output_tokens_retokenized",
    "Request throughput (req/s)": "request_throughput",
    "Input token throughput (tok/s)": "input_throughput",
    "Output token throughput (tok/s)": "output_throughput",
    "Concurrency": "concurrency",
    "Accept length": "accept_length",
    "Acceptance rate (%)": "spec_decode_acceptance_rate",
    "Acceptance length": "spec_decode_acceptance_length",
    "Drafts": "spec_decode_num_drafts",
    "Draft tokens": "spec_decode_draft_tokens",
    "Accepted tokens": "spec_decode_accepted_tokens",
}
"""Row → field of the JSON."""
_TITLE = "Serving Benchmark Result"
_ROW = re.compile(
    rf"(?:^|[\s>#|│])(?:(?P<row>{'|'.join(sorted(map(re.escape, _ROWS), key=len, reverse=True))})"
    r"|(?P<statistic>Mean|Median|Std|Max|P\d+(?:\.\d+)?) (?P<latency>TTFT|TPOT|ITL|E2EL|E2E Latency) \(ms\)"
    r"|Position (?P<position>\d{1,3})):\s+(?P<value>\S+)\s*$"
)
_LATENCY = {"E2E Latency": "e2e_latency"}
_OPTION = re.compile(r"\b(dataset_name|ignore_eos)='?(\w+)'?")
_FIRST = "Successful requests"
_OWN = ("TTFT (ms)", "TPOT (ms)", "ITL (ms)", "(req/s)", _FIRST)
"""What only rows of the table have."""
_MOST_BETWEEN_ROWS = 50
"""Other lines after which a table is taken to be over."""
_SGLANG = ("backend", "input_throughput", "accept_length", "concurrency", "total_output_tokens_retokenized")
"""RecordFields that only SGLang's table has."""


class BenchTableReader(RunReader):
    """Terminal tables of vLLM's and SGLang's serving benchmarks; a file may hold several."""

    title = "table printed by `vllm bench serve` or `sglang.bench_serving`"

    def __init__(self) -> None:
        super().__init__()
        self._row: dict[str, Any] | None = None
        self._positions: dict[int, float] = {}
        self._since_row = 0
        self._options: dict[str, str] = {}

    def begin(self, file: str, name: str) -> None:
        """A table does not go on in another file."""
        super().begin(file, name)
        self._options = {}

    def line(self, text: str) -> bool:
        """Take a row. Raises DamagedError for a row whose number is cut."""
        if "Namespace(" in text:
            self._options = dict(_OPTION.findall(text))
            return False
        if self._row is None and text.endswith("Traffic request rate: inf"):
            self._options["request_rate"] = "inf"
            return False
        if _TITLE in text:
            self.end_run()
            self._row = {}
            return True
        if self._row is None and not ("(ms)" in text or "(req/s)" in text or _FIRST in text):
            return False
        if self._row and set(text) == {"="}:
            self.end_run()
            return True
        match = _ROW.search(text)
        self._since_row = 0 if match is not None else self._since_row + 1
        if self._since_row > _MOST_BETWEEN_ROWS:
            self.end_run()
            return False
        if match is None:
            if self._row is not None and any(mark in text for mark in _OWN):
                raise DamagedError("a row of the table is cut")
            return False
        self._take(match)
        return True

    def _take(self, match: re.Match[str]) -> None:
        row, value = match.group("row"), match.group("value")
        if row == "Backend" or value == "inf":
            number: Any = value
        else:
            number = number_of(value)
        if match.group("position") is not None:
            self._positions[int(match.group("position"))] = number / 100.0
            return
        latency = match.group("latency")
        key = (
            _ROWS[row]
            if row
            else f"{match.group('statistic').lower()}_{_LATENCY.get(latency, latency.lower())}_ms"
        )
        if self._row is None or (key in self._row and key not in ("max_concurrency", "request_rate")):
            self.end_run()
            self._row = {}
        self._row[key] = number

    def end_run(self) -> None:
        """End the table at hand."""
        fields, positions = self._row, self._positions
        self._row, self._positions, self._since_row = None, {}, 0
        if not fields or fields.keys() <= {"request_rate", "max_concurrency"}:
            return
        if positions and sorted(positions) == list(range(len(positions))):
            rates = [positions[place] for place in range(len(positions))]
            fields["spec_decode_per_position_acceptance_rates"] = rates
        fields = {
            **{key: self._options[key] for key in ("dataset_name", "request_rate") if key in self._options},
            **fields,
        }
        module = sglang_bench if any(key in fields for key in _SGLANG) else vllm_bench
        record = RecordFields(fields)
        try:
            reading = module.reading_of(self.file, self.name, record, f"{module.FORMAT}-table")
        except DamagedError as error:
            self.warn("empty-run", str(error))
            return
        if self._options.get("ignore_eos") == "True":
            reading = replace(reading, traits={**reading.traits, "ignore_eos": "yes"})
        self.note(record)
        self.keep(reading)
