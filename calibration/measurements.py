"""Measurements of one device and their file, which benches write and the fit reads. No torch here.

A file is a CSV: a first line `# {device}`, then a row per point and round, written as it is measured, and a
line `# {session}` for every run that added to it. The next run continues an interrupted one.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from statistics import median
from typing import Any

from simulator.errors import InputError, Problem, reason

COLUMNS = (
    *("bench", "op", "shape", "dtype", "bytes", "flops"),
    *("seconds", "p10_s", "p90_s", "repeats", "round"),
)


REVISION = 2
"""Incremented when a bench changes what it measures, so that old measurements are not mixed with new ones."""


@dataclass(frozen=True)
class DeviceNotes:
    """Description of a device. Measurements are combined only if all fields agree.

    `kind`: cpu or cuda. `gpu`: catalogue name, if the simulator knows the device. `cache_bytes`: last-level
    cache. `threads`: of torch on the host. `count`: devices of this name. `revision`: of the benches.
    """

    kind: str
    name: str
    gpu: str | None
    count: int
    memory_bytes: int
    cache_bytes: int
    threads: int
    driver: str
    torch: str
    platform: str
    revision: int = REVISION


@dataclass(frozen=True)
class Operation:
    """One operator at one shape. `bytes` and `flops`: what one call must move and compute. `shape`: integers
    only.
    """

    bench: str
    op: str
    shape: Mapping[str, int]
    dtype: str
    bytes: float
    flops: float

    @property
    def key(self) -> str:
        """Identifies the point: operations with the same key are the same point."""
        return f"{self.bench}/{self.op} {self.dtype} {json.dumps(dict(sorted(self.shape.items())))}"


@dataclass(frozen=True)
class MeasurementRow(Operation):
    """One point in one round: seconds of one call (one layer, one pass), as median, P10 and P90."""

    seconds: float
    p10_s: float
    p90_s: float
    repeats: int
    round: int


@dataclass(frozen=True)
class Measurement(Operation):
    """One point over all rounds. Each figure is the median over rounds, so that a slow minute of a busy
    machine does not affect it. `rounds_s`: the medians of the rounds, in order.
    """

    seconds: float
    p10_s: float
    p90_s: float
    repeats: int
    rounds_s: tuple[float, ...]

    @property
    def spread(self) -> float:
        """Variation between calls: the larger of P90 ÷ P10 within a round and between rounds; 1 without
        noise.
        """
        high, low = (_quantile(self.rounds_s, share) for share in (0.9, 0.1))
        return max(self.p90_s / self.p10_s, high / low)


def _quantile(values: Sequence[float], share: float) -> float:
    """Quantile `share` (0…1), linear between the sorted values."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    lower = int(position)
    upper = min(lower + 1, len(ordered) - 1)
    return ordered[lower] + (position - lower) * (ordered[upper] - ordered[lower])


@dataclass(frozen=True)
class Measurements:
    """All points of a file; `sessions` records dates, clocks and what was left out, with reasons."""

    device: DeviceNotes
    points: tuple[Measurement, ...]
    sessions: tuple[Mapping[str, Any], ...] = ()

    def of(self, bench: str, op: str | None = None) -> tuple[Measurement, ...]:
        """The points of a bench, or of one of its ops."""
        return tuple(x for x in self.points if x.bench == bench and op in (None, x.op))


@dataclass
class Rounds:
    """The rounds of every point, in the order in which points first appear.

    Round 0 of a known point starts a new series. The old series counts until the new one is half as long, so
    that an interruption loses nothing.
    """

    of: dict[str, list[MeasurementRow]] = field(default_factory=dict)
    _anew: dict[str, list[MeasurementRow]] = field(default_factory=dict)

    def add(self, row: MeasurementRow) -> None:
        """Add the next row of a file."""
        if row.key not in self.of:
            self.of[row.key] = [row]
        elif row.round == 0:
            self._anew[row.key] = [row]
        elif row.key in self._anew:
            self._anew[row.key].append(row)
        else:
            self.of[row.key].append(row)
        if 2 * len(self._anew.get(row.key, ())) >= len(self.of[row.key]):
            self.of[row.key] = self._anew.pop(row.key)


def over_rounds(rounds: Sequence[MeasurementRow]) -> Measurement:
    """The measurement of a point from its rounds."""
    first = rounds[0]
    return Measurement(
        *(first.bench, first.op, dict(first.shape), first.dtype, first.bytes, first.flops),
        seconds=median(row.seconds for row in rounds),
        p10_s=median(row.p10_s for row in rounds),
        p90_s=median(row.p90_s for row in rounds),
        repeats=sum(row.repeats for row in rounds),
        rounds_s=tuple(row.seconds for row in rounds),
    )


def measurements_path(profile: Path) -> Path:
    """The path of a profile's measurements, next to it."""
    return profile.with_name(f"{profile.stem}.measurements.csv")


@dataclass
class MeasurementFile:
    """A file that grows row by row; each row is on disk when `add` returns."""

    path: Path
    device: DeviceNotes
    rounds: Rounds = field(default_factory=Rounds)
    sessions: list[Mapping[str, Any]] = field(default_factory=list)

    @classmethod
    def open(cls, path: Path, device: DeviceNotes) -> MeasurementFile:
        """Open a new file, or an existing one of the same device. Raises InputError, OSError."""
        if not path.exists() or path.stat().st_size == 0:
            with path.open("x" if not path.exists() else "w", encoding="utf-8") as file:
                file.write(_comment("device", asdict(device)) + ",".join(COLUMNS) + "\n")
            return cls(path, device)
        file_device, rows, sessions = _read(path)
        _check_same_device(path, file_device, device)
        _drop_incomplete_line(path)
        with path.open("a", encoding="utf-8"):  # fails at once if the file is not writable
            return cls(path, file_device, rows, sessions)

    def add(self, row: MeasurementRow) -> None:
        """Append a row; `rounds` gets it with the digits of the file."""
        values = asdict(row) | {"shape": json.dumps(dict(row.shape))}
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow([_text(values[name]) for name in COLUMNS])
        self._append(line.getvalue())
        self.rounds.add(_row(line.getvalue().rstrip("\n")))

    def add_session(self, session: Mapping[str, Any]) -> None:
        """Append the record of one run: dates, clocks, notes."""
        self._append(_comment("session", session))
        self.sessions.append(session)

    def _append(self, line: str) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line)

    @property
    def measurements(self) -> Measurements:
        """All measurements in the file."""
        return _measurements(self.device, self.rounds, self.sessions)

    @property
    def points(self) -> Mapping[str, list[MeasurementRow]]:
        """The rows that count, by key of their point."""
        return self.rounds.of


def read_measurements(path: Path) -> Measurements:
    """The measurements of a file; an incomplete last line is ignored. Raises InputError."""
    device, rows, sessions = _read(path)
    return _measurements(device, rows, sessions)


def _measurements(device: DeviceNotes, rounds: Rounds, sessions: Iterable[Mapping[str, Any]]) -> Measurements:
    return Measurements(device, tuple(over_rounds(rows) for rows in rounds.of.values()), tuple(sessions))


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _comment(key: str, content: Mapping[str, Any]) -> str:
    return f"# {json.dumps({key: content}, ensure_ascii=False)}\n"


def _drop_incomplete_line(path: Path) -> None:
    """Remove an incomplete last line, left by a killed run."""
    text = path.read_bytes()
    complete = text.rfind(b"\n") + 1
    if complete < len(text):
        with path.open("r+b") as file:
            file.truncate(complete)


def _read(path: Path) -> tuple[DeviceNotes, Rounds, list[Mapping[str, Any]]]:
    """Device, rounds and sessions of a file, without an incomplete last line."""
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise _damaged(path, 1, "is not UTF-8 text") from error
    except OSError as error:
        raise InputError(Problem(str(path), message=f"cannot be read: {reason(error)}")) from error
    device: DeviceNotes | None = None
    rows = Rounds()
    sessions: list[Mapping[str, Any]] = []
    for number, line in _complete_lines(text):
        try:
            if line.startswith("#"):
                content = json.loads(line[1:])
                if "device" in content:
                    device = DeviceNotes(**{"revision": 0, **content["device"]})
                else:
                    sessions.append(dict(content["session"].items()))
            elif number > 2:
                rows.add(_row(line))
            elif line.split(",") != list(COLUMNS):
                raise ValueError(line)
        except (ValueError, TypeError, KeyError, AttributeError, csv.Error) as error:
            raise _damaged(path, number, "is not a line of measurements") from error
        if device is None:
            raise _damaged(path, number, "has no device in its first line")
    if device is None:
        raise _damaged(path, 1, "has no device in its first line")
    return device, rows, sessions


def _complete_lines(text: str) -> Iterator[tuple[int, str]]:
    *lines, _ = text.split("\n")
    return ((number, line) for number, line in enumerate(lines, 1) if line)


def _row(line: str) -> MeasurementRow:
    (cells,) = csv.reader([line])
    values: dict[str, Any] = dict(zip(COLUMNS, cells, strict=True))
    shape = json.loads(values["shape"])
    if not shape or any(type(size) is not int or size < 0 for size in shape.values()):
        raise ValueError(line)
    values |= {"shape": shape, "repeats": int(values["repeats"]), "round": int(values["round"])}
    values |= {name: float(values[name]) for name in ("bytes", "flops", "seconds", "p10_s", "p90_s")}
    row = MeasurementRow(**values)
    if not 0 < row.p10_s <= row.seconds <= row.p90_s < math.inf or not 0 <= row.bytes + row.flops < math.inf:
        raise ValueError(line)
    return row


def _damaged(path: Path, line: int, message: str) -> InputError:
    allowed = "measurements as written by `decodesim calibrate`; delete the file to measure again"
    return InputError(Problem(str(path), line, message=message, allowed=allowed))


def _check_same_device(path: Path, stored: DeviceNotes, current: DeviceNotes) -> None:
    """Raise InputError if the file is of another device, or of the same device with another setup."""
    names = [field.name for field in fields(DeviceNotes)]
    pairs = [(name, getattr(stored, name), getattr(current, name)) for name in names]
    differences = [f"{name} {old!r} there, {new!r} here" for name, old, new in pairs if old != new]
    if differences:
        message = f"holds measurements of another device: {'; '.join(differences)}"
        allowed = "another -o, or delete the file to measure again"
        raise InputError(Problem(str(path), message=message, allowed=allowed))
