"""Measurements of one device and their file: what benches write and the fit reads. No torch here.

A file is a CSV: a first line `# {device}`, then a row per point and round, written as it is measured, and a
line `# {session}` for every run that added to it. What an interrupted run leaves, the next one goes on with.
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
"""Raised when a bench times otherwise than before: what it measured is no longer the same thing."""


@dataclass(frozen=True)
class DeviceNotes:
    """What a figure holds for. All of it must agree before measurements are put together; the revision is
    that of the benches.

    `kind` is cpu or cuda; `gpu` the catalogue name where the simulator knows the device; `cache_bytes` the
    last-level cache; `threads` of torch on the host; `count` devices of this name.
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
    """One operator at one shape. bytes and flops are what one call must move and compute; `shape` has whole
    numbers only.
    """

    bench: str
    op: str
    shape: Mapping[str, int]
    dtype: str
    bytes: float
    flops: float

    @property
    def key(self) -> str:
        """What makes two of them the same point."""
        return f"{self.bench}/{self.op} {self.dtype} {json.dumps(dict(sorted(self.shape.items())))}"


@dataclass(frozen=True)
class MeasurementRow(Operation):
    """One point in one round: seconds of one call (one layer, one pass), median with P10 and P90."""

    seconds: float
    p10_s: float
    p90_s: float
    repeats: int
    round: int


@dataclass(frozen=True)
class Measurement(Operation):
    """One point over all its rounds: each figure is the median of the rounds', so that a slow minute of a
    busy machine leaves it alone. `rounds_s` are the rounds' medians, in order.
    """

    seconds: float
    p10_s: float
    p90_s: float
    repeats: int
    rounds_s: tuple[float, ...]

    @property
    def spread(self) -> float:
        """How much a call differs from another: P90 ÷ P10 within a round or between rounds, what is more.

        1 on a device that does nothing else.
        """
        high, low = (_quantile(self.rounds_s, at) for at in (0.9, 0.1))
        return max(self.p90_s / self.p10_s, high / low)


def _quantile(values: Sequence[float], at: float) -> float:
    """Linear between the sorted values."""
    ordered = sorted(values)
    place = at * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


@dataclass(frozen=True)
class Measurements:
    """All points of a file; `sessions` says when, at which clocks, and what was left out and why."""

    device: DeviceNotes
    points: tuple[Measurement, ...]
    sessions: tuple[Mapping[str, Any], ...] = ()

    def of(self, bench: str, op: str | None = None) -> tuple[Measurement, ...]:
        """The points of a bench, or of one op of it."""
        return tuple(x for x in self.points if x.bench == bench and op in (None, x.op))


@dataclass
class Rounds:
    """The rounds of every point, in the order in which points were first met.

    Round 0 of a known point begins it anew. What was measured before counts until the new series is half as
    long: an interrupt in between loses nothing.
    """

    of: dict[str, list[MeasurementRow]] = field(default_factory=dict)
    _anew: dict[str, list[MeasurementRow]] = field(default_factory=dict)

    def add(self, row: MeasurementRow) -> None:
        """The next row of a file."""
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
    """One point of its rounds."""
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
    """Where the measurements of a profile lie: beside it."""
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
        """A new file, or the one that is there when it is of the same device. Raises InputError, OSError."""
        if not path.exists() or path.stat().st_size == 0:
            with path.open("x" if not path.exists() else "w", encoding="utf-8") as file:
                file.write(_comment("device", asdict(device)) + ",".join(COLUMNS) + "\n")
            return cls(path, device)
        known, rows, sessions = _read(path)
        _same_device(path, known, device)
        _drop_half_a_line(path)
        with path.open("a", encoding="utf-8"):  # says at once when it may not be written
            return cls(path, known, rows, sessions)

    def add(self, row: MeasurementRow) -> None:
        """Append a row, with the digits that the file has."""
        values = asdict(row) | {"shape": json.dumps(dict(row.shape))}
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow([_text(values[name]) for name in COLUMNS])
        self._append(line.getvalue())
        self.rounds.add(_row(line.getvalue().rstrip("\n")))

    def add_session(self, session: Mapping[str, Any]) -> None:
        """Append what one run has to say: dates, clocks, notes."""
        self._append(_comment("session", session))
        self.sessions.append(session)

    def _append(self, line: str) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line)

    @property
    def measurements(self) -> Measurements:
        """All that is in it."""
        return _measurements(self.device, self.rounds, self.sessions)

    @property
    def points(self) -> Mapping[str, list[MeasurementRow]]:
        """The rounds that count, by the key of their point."""
        return self.rounds.of


def read_measurements(path: Path) -> Measurements:
    """The measurements of a file, as far as they were written. Raises InputError."""
    device, rows, sessions = _read(path)
    return _measurements(device, rows, sessions)


def _measurements(device: DeviceNotes, rounds: Rounds, sessions: Iterable[Mapping[str, Any]]) -> Measurements:
    return Measurements(device, tuple(over_rounds(rows) for rows in rounds.of.values()), tuple(sessions))


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _comment(what: str, content: Mapping[str, Any]) -> str:
    return f"# {json.dumps({what: content}, ensure_ascii=False)}\n"


def _drop_half_a_line(path: Path) -> None:
    """What a killed run began to write and did not end."""
    text = path.read_bytes()
    whole = text.rfind(b"\n") + 1
    if whole < len(text):
        with path.open("r+b") as file:
            file.truncate(whole)


def _read(path: Path) -> tuple[DeviceNotes, Rounds, list[Mapping[str, Any]]]:
    """Device, rows and sessions of a file; half a last line counts as not written."""
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise _damaged(path, 1, "is not UTF-8 text") from error
    except OSError as error:
        raise InputError(Problem(str(path), message=f"cannot be read: {reason(error)}")) from error
    device: DeviceNotes | None = None
    rows = Rounds()
    sessions: list[Mapping[str, Any]] = []
    for number, line in _whole_lines(text):
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
            raise _damaged(path, number, "is no line of measurements") from error
        if device is None:
            raise _damaged(path, number, "has no device in its first line")
    if device is None:
        raise _damaged(path, 1, "has no device in its first line")
    return device, rows, sessions


def _whole_lines(text: str) -> Iterator[tuple[int, str]]:
    *whole, _ = text.split("\n")
    return ((number, line) for number, line in enumerate(whole, 1) if line)


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


def _damaged(path: Path, line: int, what: str) -> InputError:
    allowed = "measurements as `decodesim calibrate` writes them; without the file it measures anew"
    return InputError(Problem(str(path), line, message=what, allowed=allowed))


def _same_device(path: Path, known: DeviceNotes, now: DeviceNotes) -> None:
    """Raises InputError when the file is of another device, or of the same one set up otherwise."""
    differs = [
        f"{one.name} {getattr(known, one.name)!r} there, {getattr(now, one.name)!r} here"
        for one in fields(DeviceNotes)
        if getattr(known, one.name) != getattr(now, one.name)
    ]
    if differs:
        message = f"holds measurements of another device: {'; '.join(differs)}"
        allowed = "another -o, or remove the file to measure anew"
        raise InputError(Problem(str(path), message=message, allowed=allowed))
