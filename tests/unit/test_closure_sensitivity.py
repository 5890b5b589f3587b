"""Whether the closed loop would notice an operator that is off by half.

The device is made up: every point of the quick calibration takes a start, its bytes and its FLOPs, and a
layer what its parts take and something more. Measured are the very steps that its profile predicts.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from calibration.measurements import Measurement, Measurements, measurements_path

if TYPE_CHECKING:
    from calibration.closure.measured import Measured
    from calibration.decoder.shape import DecoderShape
    from calibration.microbench.point import Point as BenchPoint

START_S, BYTES_PER_S, FLOPS_PER_S, REST_S = 15e-6, 1.2e10, 2.5e11, 300e-6
STARTS = {"layer": 5, "launch": 0}
"""Operators that start in one call: a layer has four matrices and its attention."""


def seconds_of(point: BenchPoint) -> float:
    """What a point takes on the made-up device."""
    rest = REST_S if point.bench == "layer" else 0.0
    return START_S * STARTS.get(point.bench, 1) + rest + point.bytes / BYTES_PER_S + point.flops / FLOPS_PER_S


@pytest.fixture(scope="module")
def shape() -> DecoderShape:
    """SmolLM2 without its weights."""
    from calibration.decoder.shape import DecoderShape
    from simulator.models.catalogue import load_model

    return DecoderShape.of(load_model("smollm2-135m-instruct"))


@pytest.fixture(scope="module")
def fitted(shape: DecoderShape) -> dict[str, Any]:
    """The profile of the made-up device."""
    from calibration.fit import fit_profile
    from calibration.microbench.calibrate import Request, plan_of
    from calibration.microbench.device import open_device
    from simulator.models.catalogue import load_model

    device = open_device("cpu")
    plan = plan_of(device, Request("cpu", load_model(shape.name), quick=True))
    points = []
    for point in plan.points:
        took = seconds_of(point)
        where = (point.bench, point.op, dict(point.shape), point.dtype, point.bytes, point.flops)
        points.append(Measurement(*where, took, took, took, 5, (took,) * 3))
    found = fit_profile(Measurements(device.notes, tuple(points)), "made-up")
    assert found.refused == ()
    return dict(found.profile)


def written(profile: dict[str, Any], folder: Path) -> Path:
    """The profile as a file, beside it measurements of nothing."""
    from calibration.measurements import MeasurementFile
    from calibration.microbench.device import open_device
    from calibration.profile_json import dumps

    path = folder / "made-up.json"
    path.write_text(dumps(profile), "utf-8")
    MeasurementFile.open(measurements_path(path), open_device("cpu").notes)
    return path


def as_predicted(profile: Path, shape: DecoderShape) -> list[Measured]:
    """Points whose steps take what the profile says, at acceptances around where they break even."""
    from calibration.closure.measured import Measured, Pair, bracket
    from calibration.closure.points import QUICK
    from calibration.closure.predicted import predict
    from simulator.theory import tokens_per_verify

    found = []
    for point in QUICK:
        k = point.draft_length
        unknown = Pair(0.5, 1.0, 1.0, 0.0, 1.0, 0.0, (0.0,) * k, point.context + 8, point.context + 8)
        its = predict(Measured(point, (unknown,)), profile, shape)
        accept_s = its.cycle_s - its.verify_s - k * its.draft_pass_s
        pair = replace(
            unknown,
            plain_pass_s=its.plain_pass_s,
            plain_accept_s=its.plain_s - its.plain_pass_s,
            verify_s=its.verify_s,
            accept_s=accept_s,
            drafts_s=(its.draft_pass_s,) * k,
        )
        alphas = bracket(point, [pair])
        pairs = [replace(pair, alpha=alpha, tokens=tokens_per_verify(alpha, k)) for alpha in alphas]
        found.append(Measured(point, tuple(pairs)))
    return found


def missed(measured: list[Measured], profile: Path, shape: DecoderShape) -> set[str]:
    """The targets that are not met."""
    from calibration.closure.closure import compare
    from calibration.closure.compared import Summary

    summary = Summary(tuple(compare(measured, profile, shape)), 2)
    return {target.name for target in summary.targets if not target.met}


def scaled(profile: dict[str, Any], name: str) -> dict[str, Any]:
    """The profile with one operator taking half as long again."""
    parts = []
    for part in profile["parts"]:
        if part["name"] == name:
            table = {key: _times(value) if key == "us" else value for key, value in part["table"].items()}
            part = {**part, "table": table}
        parts.append(part)
    return {**profile, "parts": parts}


def _times(values: Any) -> Any:
    return [_times(value) for value in values] if isinstance(values, list) else 1.5 * values


def test_a_profile_closes_on_its_own_steps_and_on_none_with_an_operator_off_by_half(
    fitted: dict[str, Any], shape: DecoderShape, tmp_path: Path
) -> None:
    profile = written(fitted, tmp_path)
    measured = as_predicted(profile, shape)
    assert missed(measured, profile, shape) == set()
    for name in ("gemm/bf16", "elementwise"):
        folder = tmp_path / name.replace("/", "-")
        folder.mkdir()
        broken = missed(measured, written(scaled(fitted, name), folder), shape)
        assert "step time, median" in broken, name
