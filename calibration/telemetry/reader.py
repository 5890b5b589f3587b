"""What a format of telemetry is to the rest: a class that takes lines or records and returns readings."""

from __future__ import annotations

from collections.abc import Iterator

from calibration.telemetry.fields import RecordFields
from calibration.telemetry.reading import Finding, Reading


class TelemetryReader:
    """Reads one format. One instance sees all files of a command, so that it can merge what belongs together.

    `line` gets the lines of text files, `record` the objects of JSON; each returns whether it was its own,
    and raises DamagedError for one that is its own and cannot be used. `findings` are those of no reading.
    """

    title: str
    """The format, for the list of those that can be read."""

    def __init__(self) -> None:
        self.file = self.name = ""
        self.used: dict[str, str] = {}
        self.findings: list[Finding] = []

    def begin(self, file: str, name: str) -> None:
        """What follows is of this file; `name` is what people are shown of its path."""
        self.file, self.name = file, name

    def use(self) -> None:
        """Note that the file at hand is of this format: `used` maps its path to what people are shown."""
        self.used.setdefault(self.file, self.name)

    def line(self, text: str) -> bool:
        """Take a line of text. A line whose end is missing ends in `lines.CUT`."""
        return False

    def record(self, record: RecordFields) -> bool:
        """Take a JSON object."""
        return False

    def readings(self) -> Iterator[Reading]:
        """What all files together say."""
        raise NotImplementedError
