"""A session: the plan gone through round by round, each row kept as it is measured."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version

import torch

from calibration.measurements import MeasurementFile, MeasurementRow, over_rounds
from calibration.microbench.benches.collectives import allreduce_rows
from calibration.microbench.device import Device
from calibration.microbench.lab import Lab
from calibration.microbench.plan import BenchPlan
from calibration.microbench.point import BenchPoint
from calibration.microbench.timing import Timed, time_work

Progress = Callable[[int, int, str], None]
"""Called with visits done, visits in all, what is measured now."""
MORE_ROUNDS = 2
"""Rounds that a point gets again when its repeats differ too much, or its fit asks for it."""
MOST_FAILURES = 3
"""Visits of one op that may fail before it is left out altogether."""
_SEED = 4


class Session:
    """Measures points on a device and appends them to a file.

    A round visits every point once, in an order of its own: what slows the machine down for a minute touches
    a few rounds of many points, and the median over rounds leaves it alone. Rounds that the file has already
    are not measured again. After `limit_s` nothing more is begun.
    """

    def __init__(
        self,
        device: Device,
        file: MeasurementFile,
        plan: BenchPlan,
        progress: Progress,
        limit_s: float = math.inf,
    ) -> None:
        self._device, self._file, self._plan, self._progress = device, file, plan, progress
        self._ends_s = time.monotonic() + limit_s
        self._missed = 0
        self._lab = Lab(device)
        self._order = random.Random(_SEED)
        self._old = set(file.points)
        self._failures: dict[str, list[str]] = {}

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Writes what the run has to say into the file, however it ends."""
        begun, before = _now(), self._device.clocks()
        ended = "interrupted"
        try:
            yield
            ended = "complete"
        finally:
            self._file.add_session(
                {"version": version("decodesim"), "begun": begun, "ended": _now(), "how": ended}
                | {"left_out": self.left_out}
                | {"clocks_before": before, "clocks_after": self._device.clocks()}
            )

    @property
    def left_out(self) -> list[str]:
        """What was asked for and could not be measured, and why."""
        failed = [f"{what}: {errors[-1]}" for what, errors in sorted(self._failures.items())]
        late = [f"{self._missed} visits of points: the time was over"] if self._missed else []
        return [*self._plan.left_out, *failed, *late]

    def measure(self, points: Sequence[BenchPoint], between: Callable[[float], None] | None = None) -> None:
        """All rounds of these points that the file lacks, then a few more of those that vary too much.

        Points that an earlier run left varying too much are begun anew. `between` is called after each visit
        of a point with the share of the round that is done, up to 1.
        """
        wanted = self._plan.grid.rounds
        whole = {point.key for point in self.wide(points) if self._rounds_of(point) >= wanted}
        anew = whole & self._old
        self._old -= anew
        self._visit([(point, wanted - self._rounds_of(point)) for point in points], anew, between)
        self.again(self.wide(points))

    def again(self, points: Sequence[BenchPoint]) -> None:
        """A few more rounds of these points."""
        self._visit([(point, MORE_ROUNDS) for point in points])

    def measure_groups(self) -> None:
        """All-reduces of the plan's groups that the file lacks."""
        sizes, kind = self._plan.grid.message_bytes, self._device.notes.kind
        done = {one.shape["gpus"] for one in self._file.measurements.of("allreduce")}
        for gpus in self._plan.groups:
            if gpus in done or self._late():
                continue
            try:
                rows = allreduce_rows(kind, gpus, sizes)
            except Exception as error:  # of whatever kind in one of the processes: the rest is measured
                self._failed("allreduce", error)
            else:
                for row in rows:
                    self._file.add(row)

    def measured(self, points: Sequence[BenchPoint]) -> list[BenchPoint]:
        """Those with a row at least."""
        return [point for point in points if point.key in self._file.points]

    def wide(self, points: Sequence[BenchPoint]) -> list[BenchPoint]:
        """Those whose repeats differ by more than the grid allows."""
        found = [(point, over_rounds(self._file.points[point.key])) for point in self.measured(points)]
        return [point for point, one in found if one.spread > self._plan.grid.widest]

    def _visit(
        self,
        lacking: Sequence[tuple[BenchPoint, int]],
        anew: Set[str] = frozenset(),
        between: Callable[[float], None] | None = None,
    ) -> None:
        """Points with the rounds that each lacks; those in `anew` (keys) lack all, and begin at round 0."""
        wanted = [(point, self._plan.grid.rounds if point.key in anew else lacks) for point, lacks in lacking]
        total, done = sum(max(0, rounds) for _, rounds in wanted), 0
        for number in range(max((rounds for _, rounds in wanted), default=0)):
            turn = [point for point, rounds in wanted if rounds > number]
            self._order.shuffle(turn)
            for visited, point in enumerate(turn):
                self._progress(done, total, f"{point.bench} {point.op}")
                at = number if point.key in anew else self._rounds_of(point)
                self._measure(point, at)
                done += 1
                if between is not None:
                    between((visited + 1) / len(turn))

    def _measure(self, point: BenchPoint, number: int) -> None:
        """One visit of a point, as round `number` of it."""
        name = f"{point.bench}/{point.op}"
        if self._late() or len(self._failures.get(name, ())) >= MOST_FAILURES:
            return
        try:
            timed = self._timed(point)
        except (RuntimeError, AttributeError) as error:  # this torch, this device: the rest is measured
            self._failed(name, error)
            return
        what = (point.bench, point.op, point.shape, point.dtype, point.bytes, point.flops)
        self._file.add(MeasurementRow(*what, *timed, round=number))

    def _timed(self, point: BenchPoint) -> Timed:
        """Seconds of a point; when memory is short, once more after all that others hold is let go."""
        try:
            return time_work(point.prepare(self._lab), self._plan.grid.effort, self._device.on_gpu)
        except RuntimeError as error:
            if not isinstance(error, torch.OutOfMemoryError) and "allocate memory" not in str(error):
                raise
            self._lab.forget()
            return time_work(point.prepare(self._lab), self._plan.grid.effort, self._device.on_gpu)

    def _failed(self, name: str, error: Exception) -> None:
        first = str(error).strip().partition("\n")[0]
        self._failures.setdefault(name, []).append(f"{type(error).__name__}: {first}")

    def _late(self) -> bool:
        """Whether the time is over; what is asked for then counts as missed."""
        if time.monotonic() <= self._ends_s and not self._missed:
            return False
        self._missed += 1
        return True

    def _rounds_of(self, point: BenchPoint) -> int:
        return len(self._file.points.get(point.key, ()))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
