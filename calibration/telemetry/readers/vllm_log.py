"""vLLM's server log: acceptance and load of each logging interval, in the wordings of V1 and V0.

V1 prints the counts of an interval and begins anew; V0 printed totals since its start. An engine's line on
load comes before its line on speculation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from calibration.telemetry.fields import LONGEST_DRAFT, DamagedError, number_of
from calibration.telemetry.load import LoadSeries
from calibration.telemetry.reader import TelemetryReader
from calibration.telemetry.readers.vllm_start import StartNotes
from calibration.telemetry.reading import Counts, Finding, MeasuredAcceptance, Reading, RoundBlock, Source
from calibration.telemetry.rounded import counts_of
from calibration.telemetry.samples import BlockSeries

FORMAT = "vllm-log"

_NUMBER = r"(\d+(?:\.\d+)?)"
_RATES = r"((?:\d\.\d{3}, )*\d\.\d{3})"
_COUNTS = rf"Accepted: (\d+) tokens, Drafted: (\d+) tokens, Per-position acceptance rate: {_RATES}"
_NOW = re.compile(
    rf"Mean acceptance length: {_NUMBER}, Accepted throughput: .*?{_COUNTS}, Avg Draft acceptance rate: .*%"
)
_EARLY = re.compile(rf"Draft acceptance rate: .*%, Mean acceptance length: {_NUMBER}, {_COUNTS}\s*$")
_V0 = re.compile(
    r"Number of speculative tokens: (\d+), Number of accepted tokens: (\d+), Number of draft tokens: (\d+), "
    r"Number of emitted tokens: (\d+)\."
)
_LOAD = re.compile(
    rf"Avg generation throughput: {_NUMBER} tokens/s, Running: (\d+) reqs, (?:Swapped: \d+ reqs, )?"
    rf"(?:Waiting|Pending): (\d+) reqs.*?KV cache usage: {_NUMBER}%"
)
_ENGINE = re.compile(r"Engine (\d+)")
_PERCENT = 0.01


class VllmLogReader(TelemetryReader):
    """Server logs of vLLM; one may hold several engines and several starts."""

    title = "server log of vLLM"

    def __init__(self) -> None:
        super().__init__()
        self._series, self._load, self._start = BlockSeries(), LoadSeries(), StartNotes()
        self._total, self._positions = Counts(0.0, 0.0), 0
        self._running: float | None = None
        self._totals_so_far: dict[str, Counts] = {}
        self._wording_of: dict[str, str] = {}
        self._resets = 0

    def line(self, text: str) -> bool:
        """Take a line on speculation or load, and notes of the start. Raises DamagedError."""
        if "SpecDecoding metrics:" in text:
            self._interval(text)
        elif "Speculative metrics:" in text:
            self._totals_since_start(text)
        elif "Avg generation throughput:" in text:
            self._load_line(text)
        else:
            self._start.line(self.file, text)
            return False
        return True

    def readings(self) -> Iterator[Reading]:
        """One reading of all logs: intervals of different files are different requests."""
        if not self._wording_of:
            return
        findings = self._start.findings()
        if self._resets:
            text = (
                "the totals of a V0 engine begin anew: the server restarted, what follows counts from there"
            )
            findings.append(Finding("counters-reset", "warning", text))
        versions = self._start.versions
        acceptance = None
        if self._total.rounds:
            basis = "counts of the log's intervals; the rounds are recovered from its rounded figures"
            acceptance = MeasuredAcceptance(self._total, self._positions, basis, blocks=self._series.blocks())
        yield Reading(
            name=", ".join(self.used.values()),
            sources=tuple(
                Source(file, FORMAT, "vllm", versions.get(file, wording))
                for file, wording in self._wording_of.items()
            ),
            acceptance=acceptance,
            throughput_tokens_per_s=self._load.throughput_tokens_per_s,
            load=self._load.to_json(),
            traits=self._start.traits,
            findings=tuple(findings),
        )

    def _interval(self, text: str) -> None:
        match, wording = _NOW.search(text), "V1"
        if match is None:
            match, wording = _EARLY.search(text), "V1 (about 0.8 to 0.9)"
        if match is None:
            raise DamagedError("the line on speculation is not complete")
        length, accepted, drafted, printed = match.groups()
        rates = [float(rate) for rate in printed.split(", ")][: LONGEST_DRAFT + 1]
        self._use(wording)
        if number_of(drafted):
            counts = counts_of(number_of(length), int(number_of(accepted)), int(number_of(drafted)), rates)
            self._add(counts, len(rates))

    def _totals_since_start(self, text: str) -> None:
        match = _V0.search(text)
        if match is None:
            raise DamagedError("the line on speculation is not complete")
        positions, accepted, drafted, emitted = map(number_of, match.groups())
        if not accepted <= drafted or not accepted <= emitted or positions > LONGEST_DRAFT:
            raise DamagedError("its figures contradict one another")
        self._use("V0 (before 0.10)")
        total = Counts(emitted - accepted, accepted, drafted)
        before = self._totals_so_far.get(self._engine(text), Counts(0.0, 0.0, 0.0))
        self._totals_so_far[self._engine(text)] = total
        if total.rounds < before.rounds or total.accepted < before.accepted:
            self._resets += 1
            before = Counts(0.0, 0.0, 0.0)
        newly_drafted = (total.drafted or 0.0) - (before.drafted or 0.0)
        self._add(
            Counts(total.rounds - before.rounds, total.accepted - before.accepted, newly_drafted),
            int(positions),
        )

    def _add(self, counts: Counts, positions: int) -> None:
        if counts.rounds:
            self._total = self._total + counts
            self._positions = max(self._positions, positions)
            self._series.add(RoundBlock(counts, self._running))

    def _load_line(self, text: str) -> None:
        match = _LOAD.search(text)
        if match is None:
            raise DamagedError("the line on load is not complete")
        throughput, running, waiting, usage = map(number_of, match.groups())
        self._use("V0 (before 0.10)" if "Pending:" in text else "V1")
        self._running = running
        self._load.add(self._engine(text), throughput, running, waiting, usage * _PERCENT)

    def _use(self, wording: str) -> None:
        self.use()
        self._wording_of.setdefault(self.file, wording)

    def _engine(self, text: str) -> str:
        """The engine that a line is about: its number, in this file."""
        match = _ENGINE.search(text)
        return f"{self.file}:{match.group(1) if match else ''}"
