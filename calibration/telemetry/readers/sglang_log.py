"""SGLang's server log: mean acceptance length and load of each decode line; no counts, no positions.

A line covers a fixed number of decode steps, so its rounds are in proportion to its running requests: that
is its weight. The draft length is in the server's arguments, else it follows from accept len and accept
rate.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from calibration.telemetry.accept_rate import EARLY, MEANING, NOW, VERSION, AcceptRate
from calibration.telemetry.fields import LONGEST_DRAFT, DamagedError, number_of
from calibration.telemetry.load import LoadSeries
from calibration.telemetry.reader import TelemetryReader
from calibration.telemetry.reading import (
    Counts,
    Finding,
    MeasuredAcceptance,
    Reading,
    RoundBlock,
    Source,
    Stated,
)
from calibration.telemetry.samples import BlockSeries

FORMAT = "sglang-log"

_NUMBER = r"\d+(?:\.\d+)?"
_DECODE = re.compile(
    rf"Decode batch[.,].*?#running-req: (?P<running>\d+),.*?token usage: (?P<usage>{_NUMBER}),"
    rf"(?:.*?accept len: (?P<length>{_NUMBER}),)?(?:.*?accept rate: (?P<rate>{_NUMBER}),)?"
    rf".*?gen throughput \(token/s\): (?P<throughput>{_NUMBER}),.*?#queue-req: (?P<waiting>\d+),?"
)
_LOAD = ("running", "usage", "throughput", "waiting")
_RANK = re.compile(r"\b(?:DP(\d+) )?(?:TP(\d+))")
_ARGUMENT = re.compile(r"speculative_(num_steps|num_draft_tokens|algorithm)='?(\w{1,20})\b")


class SglangLogReader(TelemetryReader):
    """Server logs of SGLang."""

    title = "server log of SGLang"

    def __init__(self) -> None:
        super().__init__()
        self._series, self._load = BlockSeries(), LoadSeries()
        self._total = Counts(0.0, 0.0)
        self._arguments: dict[str, str] = {}
        self._rate = AcceptRate()
        self._decode_lines = self._without_graph = 0

    def line(self, text: str) -> bool:
        """Take a decode line, and the server's arguments. Raises DamagedError."""
        if "Decode batch" not in text:
            if "speculative_" in text and "ServerArgs(" in text:
                self._arguments.update(_ARGUMENT.findall(text))
            return False
        match = _DECODE.search(text)
        if match is None:
            raise DamagedError("the decode line is not complete")
        self.use()
        running, usage, throughput, waiting = (number_of(match[name]) for name in _LOAD)
        self._load.add(self._rank(text), throughput, running, waiting, usage)
        self._decode_lines += 1
        self._without_graph += "cuda graph: False" in text
        if match["length"] is not None and running:
            rate = match["rate"]
            self._accepted(running, number_of(match["length"]), None if rate is None else number_of(rate))
        return True

    def readings(self) -> Iterator[Reading]:
        """One reading of all logs."""
        if not self.used:
            return
        draft_length, answer = self._draft_length(), self._rate.answer
        era = "" if answer is None else answer[0]
        acceptance, stated = None, []
        if self._total.rounds:
            drafted = self._total.rounds * draft_length if draft_length and not self._is_tree() else None
            total = Counts(self._total.rounds, self._total.accepted, drafted)
            basis = "means of the log's decode lines, weighted by running requests"
            acceptance = MeasuredAcceptance(
                total, draft_length, basis, counted=False, blocks=self._series.blocks()
            )
            definition = "tokens emitted per round, the bonus token included"
            stated.append(Stated("accept len", total.mean_length, definition))
        if self._rate.mean is not None:
            open_meaning = f"{MEANING[NOW]}, or before late 2025 {MEANING[EARLY]}"
            stated.append(Stated("accept rate", self._rate.mean, MEANING.get(era, open_meaning)))
        yield Reading(
            name=", ".join(self.used.values()),
            sources=tuple(Source(file, FORMAT, "sglang", VERSION.get(era)) for file in self.used),
            acceptance=acceptance,
            stated=tuple(stated),
            throughput_tokens_per_s=self._load.throughput_tokens_per_s,
            load=self._load.to_json(),
            traits={"method": self._arguments["algorithm"].lower()} if "algorithm" in self._arguments else {},
            findings=tuple(self._notes()),
        )

    def _accepted(self, running: float, length: float, rate: float | None) -> None:
        if length < 1.0:
            raise DamagedError("a mean acceptance length below 1")
        block = RoundBlock(Counts(running, running * (length - 1.0)), running)
        self._total = self._total + block.counts
        self._series.add(block)
        if rate is not None:
            self._rate.add(length, rate, running)

    def _draft_length(self) -> int | None:
        """Drafts in a row: the server's argument, or what the lines tell."""
        answer = self._rate.answer
        return self._argument("num_steps") or (None if answer is None else answer[1])

    def _is_tree(self) -> bool:
        steps, window = self._argument("num_steps"), self._argument("num_draft_tokens")
        return steps is not None and window is not None and steps + 1 != window

    def _argument(self, name: str) -> int | None:
        text = self._arguments.get(name, "")
        return int(text) if text.isdecimal() and 0 < int(text) <= LONGEST_DRAFT else None

    def _notes(self) -> Iterator[Finding]:
        if self._total.rounds and self._draft_length() is None:
            text = "this log does not tell the draft length, so neither α: give more of it, or its beginning"
            yield Finding("draft-length-unknown", "info", text)
        if self._without_graph:
            share = self._without_graph / self._decode_lines
            text = f"{share:.0%} of decode lines ran without a CUDA graph: raise --cuda-graph-max-bs"
            yield Finding("eager-steps", "warning", text)

    def _rank(self, text: str) -> str:
        match = _RANK.search(text)
        return f"{self.file}:{match.group(1) or '' if match else ''}"
