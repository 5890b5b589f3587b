"""The file of measurements: what is written is read, whatever ended the run that wrote it."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.measurements import (
    DeviceNotes,
    MeasurementFile,
    MeasurementRow,
    measurements_path,
    over_rounds,
    read_measurements,
)
from simulator.errors import InputError

DEVICE = DeviceNotes("cpu", 'a "CPU", fast', None, 1, 2**34, 2**25, 2, "", "2.9", "Linux")
ROW = MeasurementRow("linear", "qkv", {"n": 96, "k": 64, "m": 8}, "bf16", 1e4, 2e5, 3e-5, 2e-5, 4e-5, 20, 0)


def filled(path: Path, *rows: MeasurementRow) -> MeasurementFile:
    file = MeasurementFile.open(path, DEVICE)
    for row in rows:
        file.add(row)
    return file


def in_round(number: int, seconds: float) -> MeasurementRow:
    return replace(ROW, round=number, seconds=seconds, p10_s=seconds * 0.9, p90_s=seconds * 1.2)


def test_a_file_lies_beside_its_profile() -> None:
    assert measurements_path(Path("runs/my.gpu.json")) == Path("runs/my.gpu.measurements.csv")


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    file = filled(path, in_round(0, 3e-5), replace(ROW, op="o", dtype="fp8"), in_round(1, 5e-5))
    file.add_session({"begun": "2026", "left_out": ["fp8: none"], "how": "complete"})
    result = read_measurements(path)
    assert result == file.measurements
    assert result.device == DEVICE
    assert [(point.op, point.dtype, point.rounds_s) for point in result.points] == [
        ("qkv", "bf16", (3e-5, 5e-5)),
        ("o", "fp8", (3e-5,)),
    ]
    assert result.of("linear", "qkv")[0].seconds == pytest.approx(4e-5)
    assert result.of("attention") == ()
    assert result.sessions[0]["left_out"] == ["fp8: none"]


def test_a_slow_round_leaves_the_point_alone() -> None:
    quiet = [in_round(number, 1e-5 * (1 + 0.01 * number)) for number in range(5)]
    disturbed = [*quiet[:2], in_round(2, 9e-5), *quiet[3:]]
    assert over_rounds(disturbed).seconds == pytest.approx(over_rounds(quiet).seconds, rel=0.02)


def test_the_spread_is_within_rounds_or_between_them() -> None:
    steady = [in_round(number, 1e-5) for number in range(3)]
    assert over_rounds(steady).spread == pytest.approx(1.2 / 0.9)
    moving = [
        replace(row, seconds=s, p10_s=s, p90_s=s) for row, s in zip(steady, (1e-5, 2e-5, 3e-5), strict=True)
    ]
    assert over_rounds(moving).spread == pytest.approx(2.8 / 1.2)


def test_round_0_begins_a_point_anew_once_the_new_rounds_are_half_as_many(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    file = filled(path, in_round(0, 9e-5), in_round(1, 8e-5), in_round(2, 9e-5), in_round(0, 1e-5))
    assert file.measurements.points[0].rounds_s == (9e-5, 8e-5, 9e-5)
    file.add(in_round(1, 2e-5))
    file.add(in_round(2, 3e-5))
    assert file.measurements.points[0].rounds_s == (1e-5, 2e-5, 3e-5)
    assert read_measurements(path) == file.measurements


def test_a_second_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    filled(path, in_round(0, 1e-5))
    filled(path, in_round(1, 2e-5))
    assert read_measurements(path).points[0].rounds_s == (1e-5, 2e-5)


@given(cut=st.integers(1, 200))
def test_a_run_killed_while_writing_leaves_whole_rows(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("cut") / "x.csv"
    filled(path, in_round(0, 1e-5), in_round(1, 2e-5))
    text = path.read_bytes()
    last = text.rstrip().rfind(b"\n") + 1
    path.write_bytes(text[: max(last, len(text) - cut)])
    rounds_s = read_measurements(path).points[0].rounds_s
    assert rounds_s[0] == 1e-5
    filled(path, in_round(len(rounds_s), 3e-5))
    assert read_measurements(path).points[0].rounds_s == (*rounds_s, 3e-5)


def test_another_device_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    filled(path, ROW)
    with pytest.raises(InputError, match=r"another device: threads 2 there, 1 here.*another -o") as error:
        MeasurementFile.open(path, replace(DEVICE, threads=1))
    assert str(path) in str(error.value)
    assert read_measurements(path).points
    with pytest.raises(InputError, match="another device: revision 2 there, 3 here"):
        MeasurementFile.open(path, replace(DEVICE, revision=3))


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1, "bench,op"),
        (1, '# {"device": {"kind": "cpu"}}'),
        (1, "# {"),
        (2, "bench,op,shape"),
        (3, "linear,qkv"),
        (3, 'linear,qkv,"[1]",bf16,1,1,3e-05,2e-05,4e-05,20,0'),
        (3, 'linear,qkv,"{""n"": 1}",bf16,1,1,nan,2e-05,4e-05,20,0'),
        (3, 'linear,qkv,"{""n"": 1}",bf16,1,1,3e-05,4e-05,2e-05,20,0'),
        (3, 'linear,qkv,"{""n"": 1.5}",bf16,1,1,3e-05,2e-05,4e-05,20,0'),
        (3, "linear,qkv,{},bf16,1,1,3e-05,2e-05,4e-05,20,0"),
        (3, 'linear,qkv,"{""n"": 1}",bf16,nan,1,3e-05,2e-05,4e-05,20,0'),
        (3, "# {}"),
        (3, '# {"session": 3}'),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, number: int, text: str) -> None:
    path = tmp_path / "x.csv"
    filled(path, ROW)
    lines = path.read_text("utf-8").split("\n")
    path.write_text("\n".join([*lines[: number - 1], text, *lines[number:]]), "utf-8")
    with pytest.raises(InputError) as error:
        read_measurements(path)
    assert error.value.problems[0].file == str(path)
    assert error.value.problems[0].line == number


def test_what_is_no_text_is_said(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is not UTF-8 text"):
        read_measurements(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_measurements(tmp_path / "nowhere.csv")
