"""From timings to a profile on a device that is known exactly: outliers, misfits, noise, a late end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from calibration.measurements import read_measurements
from calibration.microbench import session as sessions
from calibration.microbench.calibrate import BusyError, Calibration, measure_and_fit
from calibration.microbench.plan import BenchPlan
from calibration.microbench.point import BenchPoint
from calibration.microbench.session import MORE_ROUNDS
from calibration.microbench.timing import Timed, Work
from simulator.costs.profiles import load_profile
from simulator.errors import InputError
from tests.microbench.tiny import GRID, tiny_device
from tests.synthetic_device import Device

Times = Callable[[str, str, Mapping[str, int], int], tuple[float, float]]
"""(bench, op, shape, visit) → what the time is multiplied by, and P90 ÷ P10 of it."""


def steady(*_: object) -> tuple[float, float]:
    return 1.0, 1.02


def plan_of() -> BenchPlan:
    """Every operator of the made-up device."""
    points = []
    for bench, op, shape, moved, flops, us in Device().points():

        def prepare(_: object, name: tuple[object, ...] = (bench, op, shape, us)) -> Work:
            return Work(lambda _: name)

        points.append(BenchPoint(bench, op, shape, "bf16", moved, flops, 1.0, prepare))
    return BenchPlan(tuple(points), replace(GRID, rounds=3, max_spread=1.6), (), ())


def calibrated(
    monkeypatch: pytest.MonkeyPatch, profile: Path, times: Times = steady, limit_s: float = 1e9
) -> tuple[Calibration, dict[str, int]]:
    """What comes of these times, and the visits of each point."""
    visits: dict[str, int] = {}

    def timed(work: Work, *_: object) -> Timed:
        bench, op, shape, us = work.run(0)  # type: ignore[misc]
        key = f"{bench}/{op} {sorted(shape.items())}"
        factor, spread = times(bench, op, shape, visits.get(key, 0))
        visits[key] = visits.get(key, 0) + 1
        seconds = us * 1e-6 * factor
        return Timed(seconds, seconds, seconds * spread, 10)

    monkeypatch.setattr(sessions, "time_work", timed)
    created = measure_and_fit(
        tiny_device(), plan_of(), profile, lambda *_: None, lambda _: None, limit_s=limit_s
    )
    return created, visits


def test_a_steady_device_becomes_a_profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    profile, visits = calibrated(monkeypatch, tmp_path / "here.json")
    assert profile.left_out == ()
    assert set(visits.values()) == {3}
    loaded = load_profile(str(tmp_path / "here.json"))
    assert {loaded.statuses[name] for name in ("gemm/bf16", "attention/bf16", "elementwise")} == {"measured"}
    assert loaded.provenance["measurements"] == "here.measurements.csv"


def test_a_busy_device_is_refused_and_its_measurements_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def shared(bench: str, *_: object) -> tuple[float, float]:
        return 1.0, 3.0 if bench == "attention" else 1.02

    with pytest.raises(
        BusyError, match=r"busy, shared or throttled: 100 of \d+ points vary by more than 1.6"
    ):
        calibrated(monkeypatch, tmp_path / "here.json", shared)
    assert not (tmp_path / "here.json").exists()
    assert len(read_measurements(tmp_path / "here.measurements.csv").of("attention")) == 100
    profile, visits = calibrated(monkeypatch, tmp_path / "here.json")  # once it is quiet
    assert set(visits.values()) == {3}
    assert all(key.startswith("attention") for key in visits)
    assert profile.left_out == ()


def test_a_busy_device_is_noticed_among_what_was_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The time is over after a few visits: those count, not those that were planned."""
    begun = iter([0.0] * 31 + [10.0] * 10**6)
    monkeypatch.setattr(sessions.time, "monotonic", lambda: next(begun))
    with pytest.raises(BusyError, match="of 30 points vary"):
        calibrated(monkeypatch, tmp_path / "here.json", lambda *_: (1.0, 3.0), limit_s=5.0)


def test_what_does_not_fit_is_no_busy_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def wild(bench: str, _: str, shape: Mapping[str, int], __: int) -> tuple[float, float]:
        odd = bench in ("linear", "head") and shape.get("m", shape.get("rows", 0)) in (2, 8, 32)
        return 3.0 if odd else 1.0, 1.02

    with pytest.raises(InputError, match="gemm/bf16: median error") as error:
        calibrated(monkeypatch, tmp_path / "here.json", wild)
    assert not isinstance(error.value, BusyError)
    assert not (tmp_path / "here.json").exists()
    assert read_measurements(tmp_path / "here.measurements.csv").of("linear")


def test_a_part_that_does_not_fit_is_left_out_of_the_profile(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def wild(bench: str, op: str, shape: Mapping[str, int], _: int) -> tuple[float, float]:
        odd = bench == "prepare" and shape["batch"] in (2, 8)
        return 9.0 if odd else 1.0, 1.02

    profile, _ = calibrated(monkeypatch, tmp_path / "here.json", wild)
    assert [line.partition(":")[0] for line in profile.left_out] == ["pass"]
    assert "pass" not in {part["name"] for part in profile.fitted.profile["parts"]}
    assert load_profile(str(tmp_path / "here.json")).statuses["gemm/bf16"] == "measured"


def test_an_outlier_is_measured_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def once(bench: str, op: str, shape: Mapping[str, int], visit: int) -> tuple[float, float]:
        outlier = (bench, op, shape.get("m")) == ("linear", "o", 16)
        return 2.0 if outlier and visit < 3 else 1.0, 1.02

    _, visits = calibrated(monkeypatch, tmp_path / "here.json", once)
    again = {key for key, count in visits.items() if count == 3 + MORE_ROUNDS}
    assert any(key.startswith("linear/o [('k', 576), ('m', 16)") for key in again)
    assert len(again) < 15
