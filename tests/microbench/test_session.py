"""Sessions: rounds spread out, kept as they are measured, gone on with, begun anew where they vary."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from calibration.measurements import MeasurementFile, read_measurements
from calibration.microbench import session as sessions
from calibration.microbench.device import Device, open_device
from calibration.microbench.plan import BenchPlan
from calibration.microbench.point import BenchPoint
from calibration.microbench.session import MORE_ROUNDS, Session
from calibration.microbench.timing import Timed, Work
from simulator.errors import InputError
from tests.microbench.tiny import GRID, tiny_device

NAMES = tuple("abcdef")


def points(prepare: Callable[[str], Work] = lambda _: Work(lambda _: None)) -> tuple[BenchPoint, ...]:
    return tuple(
        BenchPoint("linear", name, {"m": 1}, "bf16", 1.0, 1.0, 1.0, lambda _, name=name: prepare(name))  # type: ignore[misc]
        for name in NAMES
    )


def plan_of(measured: tuple[BenchPoint, ...], max_spread: float = 1e9) -> BenchPlan:
    return BenchPlan(measured, replace(GRID, rounds=3, max_spread=max_spread), (), ())


def open_file(tmp_path: Path) -> MeasurementFile:
    return MeasurementFile.open(tmp_path / "x.csv", tiny_device().notes)


def session_of(
    tmp_path: Path,
    plan: BenchPlan,
    progress: Callable[[int, int, str], None] = lambda *_: None,
    limit_s: float = math.inf,
) -> Session:
    return Session(tiny_device(), open_file(tmp_path), plan, progress, limit_s)


def rounds(tmp_path: Path) -> dict[str, int]:
    return {point.op: len(point.rounds_s) for point in read_measurements(tmp_path / "x.csv").points}


def test_each_round_visits_every_point_in_another_order(tmp_path: Path) -> None:
    order: list[str] = []
    between: list[tuple[float, int]] = []
    plan = plan_of(points())
    session = session_of(tmp_path, plan, lambda _, __, what: order.append(what[-1]))
    session.measure(plan.points, lambda share: between.append((share, len(order))))
    turns = [tuple(order[i : i + 6]) for i in range(0, 18, 6)]
    assert [set(turn) for turn in turns] == [set(NAMES)] * 3
    assert len(set(turns)) == 3
    assert between == [((i % 6 + 1) / 6, i + 1) for i in range(18)]
    assert rounds(tmp_path) == dict.fromkeys(NAMES, 3)


def test_what_an_interrupt_leaves_is_gone_on_with(tmp_path: Path) -> None:
    plan = plan_of(points())

    def interrupt(done: int, total: int, what: str) -> None:
        assert total == 18
        if done == 8:
            raise KeyboardInterrupt

    session = session_of(tmp_path, plan, interrupt)
    with pytest.raises(KeyboardInterrupt), session.noted():
        session.measure(plan.points)
    assert sum(rounds(tmp_path).values()) == 8
    totals: list[int] = []
    second = session_of(tmp_path, plan, lambda _, total, __: totals.append(total))
    with second.noted():
        second.measure(plan.points)
    assert totals == [10] * 10
    assert rounds(tmp_path) == dict.fromkeys(NAMES, 3)
    assert [entry["how"] for entry in read_measurements(tmp_path / "x.csv").sessions] == [
        "interrupted",
        "complete",
    ]
    session_of(tmp_path, plan, lambda *_: pytest.fail("nothing is left to measure")).measure(plan.points)


def test_points_that_vary_get_more_rounds_and_begin_anew_in_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = True
    measured: list[str] = []

    def fake(work: Work, *_: object) -> Timed:
        name = str(work.run(0))
        measured.append(name)
        return Timed(1e-5, 1e-5, 9e-5 if busy and name == "b" else 1e-5, 5)

    monkeypatch.setattr(sessions, "time_work", fake)
    plan = plan_of(points(lambda name: Work(lambda _: name)), max_spread=1.6)
    first = session_of(tmp_path, plan)
    first.measure(plan.points)
    assert measured.count("b") == 3 + MORE_ROUNDS
    assert measured.count("a") == 3
    assert [point.op for point in first.wide(plan.points)] == ["b"]
    busy = False
    measured.clear()
    second = session_of(tmp_path, plan)
    second.measure(plan.points)
    assert measured == ["b"] * 3
    assert second.wide(plan.points) == []
    assert rounds(tmp_path) == dict.fromkeys(NAMES, 3)


def test_points_that_the_device_cannot_hold_are_left_out(tmp_path: Path) -> None:
    def prepare(name: str) -> Work:
        if name == "c":
            raise torch.OutOfMemoryError
        return Work(lambda _: None)

    plan = plan_of(points(prepare))
    session = session_of(tmp_path, plan)
    session.measure(plan.points)
    assert set(rounds(tmp_path)) == set(NAMES) - {"c"}
    assert [line for line in session.left_out if line.startswith("linear/c: OutOfMemoryError")]


def test_memory_that_others_hold_is_let_go_before_a_point_is_given_up(tmp_path: Path) -> None:
    tried: list[str] = []

    def prepare(name: str) -> Work:
        tried.append(name)
        if tried.count("c") % 2 and name == "c":
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")
        return Work(lambda _: None)

    plan = plan_of(points(prepare))
    session = session_of(tmp_path, plan)
    session.measure(plan.points)
    assert rounds(tmp_path) == dict.fromkeys(NAMES, 3)
    assert session.left_out == []


@pytest.mark.parametrize(
    "error", [RuntimeError("CUBLAS_STATUS_NOT_SUPPORTED\nand more"), AttributeError("_grouped_mm")]
)
def test_an_operator_that_fails_leaves_the_rest_to_be_measured(tmp_path: Path, error: Exception) -> None:
    tried: list[str] = []

    def prepare(name: str) -> Work:
        tried.append(name)
        if name == "c":
            raise error
        return Work(lambda _: None)

    plan = replace(plan_of(points(prepare)), grid=replace(GRID, rounds=6))
    session = session_of(tmp_path, plan)
    session.measure(plan.points)
    assert rounds(tmp_path) == dict.fromkeys(set(NAMES) - {"c"}, 6)
    assert tried.count("c") == sessions.MAX_FAILURES
    assert session.left_out == [f"linear/c: {type(error).__name__}: {str(error).splitlines()[0]}"]


def test_processes_of_an_all_reduce_that_die_leave_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object) -> None:
        raise OSError("process 1 terminated with signal SIGKILL")

    monkeypatch.setattr(sessions, "allreduce_rows", dies)
    device = tiny_device()
    two = replace(device, notes=replace(device.notes, count=2))
    plan = replace(plan_of(points()), groups=(2,))
    session = Session(two, MeasurementFile.open(tmp_path / "x.csv", two.notes), plan, lambda *_: None)
    session.measure_groups()
    assert session.left_out == ["allreduce: OSError: process 1 terminated with signal SIGKILL"]


def test_what_varies_is_begun_anew_by_the_next_run_alone_and_counts_when_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = iter([9e-5] * 100)

    def fake(*_: object) -> Timed:
        each = next(seconds)
        return Timed(each, each, 9 * each, 5)

    monkeypatch.setattr(sessions, "time_work", fake)
    plan = plan_of(points()[:1], max_spread=1.6)
    first = session_of(tmp_path, plan)
    first.measure(plan.points)
    first.measure(plan.points)  # as a part of the plan and then as all of it
    assert rounds(tmp_path) == {"a": 3 + 2 * MORE_ROUNDS}
    seconds = iter([1e-5] * 2)
    with pytest.raises(StopIteration):
        session_of(tmp_path, plan).measure(plan.points)
    point = read_measurements(tmp_path / "x.csv").points[0]
    assert point.rounds_s == (9e-5,) * (3 + 2 * MORE_ROUNDS)  # two of three new rounds are no measurement yet


def test_after_the_time_nothing_more_is_begun(tmp_path: Path) -> None:
    plan = plan_of(points())
    session = session_of(tmp_path, plan, limit_s=0.0)
    session.measure(plan.points)
    assert rounds(tmp_path) == {}
    assert session.left_out == ["18 visits of points: the time limit was reached"]


def test_no_cuda_is_said_at_once() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises(InputError, match=r"CUDA is not available.*--device cpu"):
        open_device("cuda")


def test_the_device_says_what_it_is() -> None:
    device = open_device("cpu")
    assert device.notes.threads == torch.get_num_threads() >= 1
    assert device.notes.cache_bytes >= 1 << 18
    assert 0 < device.free_bytes <= device.notes.memory_bytes
    assert device.copies_of(device.notes.cache_bytes) == 2
    assert Device.copies_of(device, device.notes.cache_bytes / 8) == 16
