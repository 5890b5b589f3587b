"""Every format of telemetry, and how files find their readers: by content, never by name.

A new format is a class in `readers/` and a line in `_READERS`. Text goes to all readers line by line, so a
file may mix formats: a log with a benchmark's table in it is both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from calibration.telemetry.fields import DamagedError, RecordFields
from calibration.telemetry.foreign import tool_of_line, tool_of_record
from calibration.telemetry.lines import CUT, Line, lines_of, opened, shown_name
from calibration.telemetry.reader import TelemetryReader
from calibration.telemetry.readers.aiperf import AiperfReader
from calibration.telemetry.readers.aiperf_records import AiperfRecordsReader
from calibration.telemetry.readers.aiperf_table import AiperfTableReader
from calibration.telemetry.readers.bench_table import BenchTableReader
from calibration.telemetry.readers.guidellm import GuidellmReader
from calibration.telemetry.readers.guidellm_table import GuidellmTableReader
from calibration.telemetry.readers.prometheus import PrometheusReader
from calibration.telemetry.readers.sglang_bench import SglangBenchReader
from calibration.telemetry.readers.sglang_log import SglangLogReader
from calibration.telemetry.readers.sglang_response import SglangResponseReader
from calibration.telemetry.readers.trtllm_report import TrtllmReportReader
from calibration.telemetry.readers.vllm_bench import VllmBenchReader
from calibration.telemetry.readers.vllm_log import VllmLogReader
from calibration.telemetry.readers.vllm_response import VllmResponseReader
from calibration.telemetry.reading import Finding, Reading
from calibration.telemetry.records import Record, content_of
from simulator.errors import InputError, Problem

_READERS: tuple[type[TelemetryReader], ...] = (
    VllmBenchReader,
    SglangBenchReader,
    BenchTableReader,
    PrometheusReader,
    VllmLogReader,
    SglangLogReader,
    VllmResponseReader,
    SglangResponseReader,
    AiperfReader,
    AiperfRecordsReader,
    AiperfTableReader,
    GuidellmReader,
    GuidellmTableReader,
    TrtllmReportReader,
)

_LOOKED_AT = 200
"""Lines of a file without telemetry by which another tool is recognised."""


def titles() -> list[str]:
    """Every format that can be read."""
    return [reader.title for reader in _READERS]


@dataclass
class Collected:
    """What all files say: readings, findings of no reading, and lines that could not be used."""

    readings: list[Reading] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    skipped_lines: int = 0


def read_files(names: Sequence[str]) -> Collected:
    """Read files, or standard input for `-`. Raises InputError with every file that cannot be read."""
    readers = [reader() for reader in _READERS]
    collected = Collected()
    problems: list[Problem] = []
    short = _short_names(names)
    for name in names:
        try:
            for reader in readers:
                reader.begin(shown_name(name), short[name])
            _read_file(name, short[name], readers, collected)
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    for reader in readers:
        collected.readings += reader.readings()
        collected.findings += reader.findings()
    places = {shown_name(name): place for place, name in reversed(list(enumerate(names)))}
    collected.readings.sort(key=lambda reading: min(places[source.file] for source in reading.sources))
    return collected


def _short_names(names: Sequence[str]) -> dict[str, str]:
    """What people are shown of each name: the last part of the path where that tells the files apart."""
    last = {name: shown_name(name).replace("\\", "/").rpartition("/")[2] for name in names}
    shared = {part for part, count in Counter(last[name] for name in set(names)).items() if count > 1}
    return {name: shown_name(name) if part in shared else part for name, part in last.items()}


def _read_file(name: str, short: str, readers: Sequence[TelemetryReader], collected: Collected) -> None:
    """Give the content of one file to all readers. Raises InputError when none of them knows any of it."""
    file = shown_name(name)
    used = skipped = offered = 0
    reason, tool = "", None
    for item, taken in _offered(name, file, readers):
        offered += 1
        if isinstance(taken, DamagedError):
            skipped += 1
            reason = reason or f"line {item.number}: {taken}"
        elif taken:
            used += 1
        elif not used and tool is None and offered <= _LOOKED_AT:
            tool = tool_of_record(item.value) if isinstance(item, Record) else tool_of_line(item.text)
        if isinstance(item, Record) and item.repeated and taken:
            text = f"{short}: keys that stand twice, the first is taken: {', '.join(item.repeated)}"
            collected.findings.append(Finding("duplicate-keys", "warning", text))
    collected.skipped_lines += skipped
    if not used:
        raise InputError(_unknown(file, "empty" if not offered else tool, reason))
    if skipped:
        count = "1 line is" if skipped == 1 else f"{skipped:,} lines are"
        text = f"{short}: {count} left out, as no number in it can be trusted; the first, {reason}"
        collected.findings.append(Finding("skipped-lines", "warning", text))


def _offered(
    name: str, file: str, readers: Sequence[TelemetryReader]
) -> Iterator[tuple[Line | Record, bool | DamagedError]]:
    """Every line and record of a file, and whether a reader took it, or why it could not."""
    take_line = [reader.line for reader in readers if type(reader).line is not TelemetryReader.line]
    take_record = [reader.record for reader in readers if type(reader).record is not TelemetryReader.record]
    with opened(name) as stream:
        for item in content_of(file, lines_of(stream)):
            taken: bool | DamagedError = False
            try:
                if isinstance(item, Record):
                    for record in take_record:
                        taken = record(RecordFields(item.value)) or taken
                else:
                    text = item.text.strip() if item.is_complete else item.text.strip() + CUT
                    for line in take_line:
                        taken = line(text) or taken
            except DamagedError as error:
                taken = error
            yield item, taken


def _unknown(file: str, tool: str | None, reason: str) -> Problem:
    if reason:
        return Problem(file=file, message=f"nothing in it can be used: {reason}")
    if tool:
        return Problem(file=file, message=f"is {tool}")
    allowed = "one of: " + "; ".join(titles())
    return Problem(file=file, message="has no telemetry that can be read", allowed=allowed)
