"""What a format of telemetry is to the rest: a class that takes lines or records and returns readings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from calibration.telemetry.fields import RecordFields
from calibration.telemetry.reading import Finding, Reading
from simulator.errors import InputError, Problem

_SHOWN = 3
"""Values of a file that cannot be true and are shown; the others are counted."""
MOST_RUNS = 1000
"""Runs that one command takes."""


class TelemetryReader(ABC):
    """Reads one format. One instance sees all files of a command, so that it can merge what belongs together.

    `line` gets the lines of text files, `record` the objects of JSON; each returns whether it was its own,
    and raises DamagedError for one that is its own and cannot be used.
    """

    title: str
    """The format, for the list of those that can be read."""

    def __init__(self) -> None:
        self.file = self.name = ""
        self.used: dict[str, str] = {}
        self._left_out: dict[str, list[str]] = {}
        self._more_left_out: dict[str, int] = {}
        self._findings: list[Finding] = []

    def begin(self, file: str, name: str) -> None:
        """What follows is of this file; `name` is what people are shown of its path."""
        self.file, self.name = file, name

    def use(self) -> None:
        """Note that the file at hand is of this format: `used` maps its path to what people are shown."""
        self.used.setdefault(self.file, self.name)

    def note(self, record: RecordFields) -> None:
        """Note the values of a record that cannot be true; they are left out."""
        shown = self._left_out.setdefault(self.name, [])
        for problem in record.problems:
            if len(shown) < _SHOWN:
                shown.append(problem)
            else:
                self._more_left_out[self.name] = self._more_left_out.get(self.name, 0) + 1

    def warn(self, code: str, text: str) -> None:
        """Add a finding that belongs to no reading."""
        self._findings.append(Finding(code, "warning", f"{self.name}: {text}"))

    def line(self, text: str) -> bool:
        """Take a line of text. A line whose end is missing ends in `lines.CUT`."""
        return False

    def record(self, record: RecordFields) -> bool:
        """Take a JSON object."""
        return False

    @abstractmethod
    def readings(self) -> Iterator[Reading]:
        """What all files together say."""

    def findings(self) -> Iterator[Finding]:
        """Findings that belong to no reading."""
        yield from self._findings
        for name, shown in self._left_out.items():
            if shown:
                more = self._more_left_out.get(name, 0)
                text = f"{name}: left out: {'; '.join(shown)}" + (f"; and {more:,} more" if more else "")
                yield Finding("bad-value", "warning", text)


class RunReader(TelemetryReader):
    """Reads a format in which every run is a reading of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._runs: list[Reading] = []

    def begin(self, file: str, name: str) -> None:
        """What follows is of this file: a run does not go on in another one."""
        self.end_run()
        super().begin(file, name)

    def keep(self, run: Reading) -> None:
        """Keep a run. Raises InputError when there are too many."""
        if len(self._runs) >= MOST_RUNS:
            raise InputError(
                Problem(file=self.file, message=f"more than {MOST_RUNS:,} runs", allowed="fewer of them")
            )
        self._runs.append(run)

    def end_run(self) -> None:
        """End the run that lines were read of so far, if there is one."""

    def readings(self) -> Iterator[Reading]:
        """One reading per run."""
        self.end_run()
        yield from self._runs
