"""A measurement session: visits all points of the plan round by round and stores every row at once."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING

import torch

from calibration.measurements import MeasurementFile, MeasurementRow, over_rounds
from calibration.microbench.benches.collectives import allreduce_rows
from calibration.microbench.device import Device
from calibration.microbench.lab import Lab
from calibration.microbench.plan import BenchPlan
from calibration.microbench.point import BenchPoint
from calibration.microbench.timing import Timed, time_work

if TYPE_CHECKING:
    from simulator.runs.replications import Progress


MORE_ROUNDS = 2
"""Additional rounds for a point whose repeats vary too much, or that the fit suspects."""
MAX_FAILURES = 3
"""Failed visits after which an op is left out."""
_SEED = 4


class Session:
    """Measures points on a device and appends them to a file.

    A round visits every point once, in random order. So a disturbance of a minute affects a few rounds of
    many points, and the median over rounds ignores it. Rounds that are already in the file are not measured
    again. After `limit_s` no further visit starts.
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
        """Write the record of the session to the file, however it ends."""
        begun, clocks_before = _now(), self._device.clocks()
        outcome = "interrupted"
        try:
            yield
            outcome = "complete"
        finally:
            self._file.add_session(
                {"version": version("decodesim"), "begun": begun, "ended": _now(), "how": outcome}
                | {"left_out": self.left_out}
                | {"clocks_before": clocks_before, "clocks_after": self._device.clocks()}
            )

    @property
    def left_out(self) -> list[str]:
        """What was requested and could not be measured, with reasons."""
        failed = [f"{name}: {errors[-1]}" for name, errors in sorted(self._failures.items())]
        late = [f"{self._missed} visits of points: the time limit was reached"] if self._missed else []
        return [*self._plan.left_out, *failed, *late]

    def measure(self, points: Sequence[BenchPoint], between: Callable[[float], None] | None = None) -> None:
        """Measure all rounds that the file lacks, then a few more of points that vary too much.

        Points from an earlier run that vary too much are measured from the start. `between` is called after
        each visit of a point with the share of the round that is done, up to 1.
        """
        rounds = self._plan.grid.rounds
        complete = {point.key for point in self.wide(points) if self._rounds_of(point) >= rounds}
        restarted = complete & self._old
        self._old -= restarted
        self._visit([(point, rounds - self._rounds_of(point)) for point in points], restarted, between)
        self.again(self.wide(points))

    def again(self, points: Sequence[BenchPoint]) -> None:
        """Measure a few more rounds of these points."""
        self._visit([(point, MORE_ROUNDS) for point in points])

    def measure_groups(self) -> None:
        """Measure the all-reduces of the plan's groups that the file lacks."""
        sizes, kind = self._plan.grid.message_bytes, self._device.notes.kind
        done = {measurement.shape["gpus"] for measurement in self._file.measurements.of("allreduce")}
        for gpus in self._plan.groups:
            if gpus in done or self._late():
                continue
            try:
                rows = allreduce_rows(kind, gpus, sizes)
            except (
                Exception
            ) as error:  # an error of any kind in one of the processes; the rest is still measured
                self._failed("allreduce", error)
            else:
                for row in rows:
                    self._file.add(row)

    def measured(self, points: Sequence[BenchPoint]) -> list[BenchPoint]:
        """The points with at least one row."""
        return [point for point in points if point.key in self._file.points]

    def wide(self, points: Sequence[BenchPoint]) -> list[BenchPoint]:
        """The points whose repeats vary by more than the grid allows."""
        medians = [(point, over_rounds(self._file.points[point.key])) for point in self.measured(points)]
        return [point for point, measurement in medians if measurement.spread > self._plan.grid.max_spread]

    def _visit(
        self,
        missing: Sequence[tuple[BenchPoint, int]],
        restarted: Set[str] = frozenset(),
        between: Callable[[float], None] | None = None,
    ) -> None:
        """Visit points for the rounds that each lacks; those in `restarted` (keys) lack all and start at
        round 0.
        """
        visits = [
            (point, self._plan.grid.rounds if point.key in restarted else rounds) for point, rounds in missing
        ]
        total, done = sum(max(0, rounds) for _, rounds in visits), 0
        for number in range(max((rounds for _, rounds in visits), default=0)):
            round_points = [point for point, rounds in visits if rounds > number]
            self._order.shuffle(round_points)
            for visited, point in enumerate(round_points):
                self._progress(done, total, f"{point.bench} {point.op}")
                self._measure(point, number if point.key in restarted else self._rounds_of(point))
                done += 1
                if between is not None:
                    between((visited + 1) / len(round_points))

    def _measure(self, point: BenchPoint, number: int) -> None:
        """Measure one visit of a point, as its round `number`."""
        name = f"{point.bench}/{point.op}"
        if self._late() or len(self._failures.get(name, ())) >= MAX_FAILURES:
            return
        try:
            timed = self._timed(point)
        except (RuntimeError, AttributeError) as error:  # unsupported here; the rest is still measured
            self._failed(name, error)
            return
        operation = (point.bench, point.op, point.shape, point.dtype, point.bytes, point.flops)
        self._file.add(MeasurementRow(*operation, *timed, round=number))

    def _timed(self, point: BenchPoint) -> Timed:
        """Time a point; if memory is short, try again after freeing the memory of other points."""
        try:
            return time_work(point.prepare(self._lab), self._plan.grid.effort, self._device.on_gpu)
        except RuntimeError as error:
            if not isinstance(error, torch.OutOfMemoryError) and "allocate memory" not in str(error):
                raise
            self._lab.forget()
            return time_work(point.prepare(self._lab), self._plan.grid.effort, self._device.on_gpu)

    def _failed(self, name: str, error: Exception) -> None:
        first_line = str(error).strip().partition("\n")[0]
        self._failures.setdefault(name, []).append(f"{type(error).__name__}: {first_line}")

    def _late(self) -> bool:
        """Whether the time limit is reached; the visit then counts as missed."""
        if time.monotonic() <= self._ends_s and not self._missed:
            return False
        self._missed += 1
        return True

    def _rounds_of(self, point: BenchPoint) -> int:
        return len(self._file.points.get(point.key, ()))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
