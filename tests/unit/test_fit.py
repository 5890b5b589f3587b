"""The fit of a device that is known exactly: parameters within intervals, passes, refusals, bad input."""

import json
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from calibration.fit import FittedProfile, fit_profile
from calibration.fit.in_place import one_layer
from calibration.fit.parts import LIMITS
from calibration.fit.solve import FormParameter, solve
from calibration.profile_json import dumps
from simulator.costs.cost import CostModel
from simulator.costs.profiles import Profile, load_profile, parse_profile
from simulator.engines.presets import load_preset
from simulator.errors import InputError
from tests.synthetic_device import LAYER, MODEL, Device, line, measured

UNSEEN = [(1, 1, 256), (3, 4, 512), (6, 2, 1024), (12, 6, 512), (16, 1, 1024), (16, 7, 1024), (5, 7, 300)]
"""(batch, query tokens, context) that no bench has timed."""


@pytest.fixture(scope="module")
def fitted() -> FittedProfile:
    return fit_profile(measured(), "mine")


@pytest.fixture(scope="module")
def profile(fitted: FittedProfile) -> Profile:
    return fitted.parsed


def step_us(profile: Profile, batch: int, queries: int, context: int, sampling: str = "greedy") -> float:
    cost = CostModel(MODEL, None, profile, 1, 1, 1, "bf16", load_preset("torch-2")[0], sampling)
    rows = batch * queries
    step = cost.target_pass(rows, batch, batch * context, queries, logit_rows=rows, mode="eager")
    return 1e6 * (step.duration_s + cost.sample(rows, batch).duration_s)


@pytest.mark.parametrize(("sampling", "op"), [("greedy", "accept_greedy"), ("sampled", "accept_sampled")])
def test_passes_that_nobody_timed_are_predicted(profile: Profile, sampling: str, op: str) -> None:
    errors = [step_us(profile, *step, sampling) / Device().step_us(*step, op) - 1 for step in UNSEEN]
    assert np.abs(errors).max() < 0.012
    assert abs(np.mean(errors)) < 0.005


def test_a_draft_pass_is_predicted(profile: Profile) -> None:
    from simulator.models.drafter import drafter_from_model

    two = replace(MODEL, layers=(replace(MODEL.layers[0], count=2),))
    preset = load_preset("torch-2")[0]
    cost = CostModel(
        MODEL, drafter_from_model(two, MODEL), profile, 1, 1, 1, "bf16", preset, "sampled", "sampled"
    )
    result = cost.draft_pass(6, 6, 6 * 512, 1, logit_rows=6).duration_s * 1e6
    device = Device()
    true = (
        2 * device.layer_us(6, 1, 512)
        + device.prepare_us(6)
        + device.head_us(6)
        + line(device.samplers["sample"], 6)
    )
    assert result == pytest.approx(true, rel=0.012)


def intervals(fitted: FittedProfile, name: str) -> Mapping[str, list[float]]:
    result = next(part for part in fitted.profile["parts"] if part["name"] == name)
    return result["residual"]["intervals"]


def test_parameters_lie_within_their_intervals(fitted: FittedProfile, profile: Profile) -> None:
    """Efficiencies are of the device as it was measured: its bandwidth and its best matrix."""
    true, gpu = Device(), profile.gpu
    memory, compute = (
        true.gemm.bandwidth_bytes_per_s / gpu.hbm_bandwidth_bytes_per_s,
        (true.gemm.flops_per_s / gpu.peak_flops_per_s["bf16"]),
    )
    expected = {
        ("gemm/bf16", "start_us"): true.gemm.start_us,
        ("gemm/bf16", "memory_efficiency"): true.gemm.memory_efficiency * memory,
        ("gemm/bf16", "compute_efficiency"): true.gemm.compute_efficiency * compute,
        ("gemm/bf16", "smoothness"): true.gemm.smoothness,
        ("attention/bf16", "start_us"): true.attention.start_us,
        ("attention/bf16", "memory_efficiency"): true.attention.memory_efficiency * memory,
        ("attention/bf16", "compute_efficiency"): true.attention.compute_efficiency * compute,
        ("attention/bf16", "per_query_us"): true.attention.per_query_us,
        ("pass", "start_us"): true.prepare_us(0),
        ("sampler", "per_row_us"): true.samplers["accept_sampled"][1],
        ("sampler", "per_sequence_us"): true.per_sequence["accept_sampled"],
        ("elementwise", "per_row_us"): true.rest[1],
        ("draft_sampler", "per_row_us"): true.samplers["sample"][1],
    }
    outside = []
    for (part, name), value in expected.items():
        low, high = intervals(fitted, part)[name]
        assert high - low < 0.25 * value, (part, name)
        middle, half = (low + high) / 2, (high - low) / 2
        if abs(value - middle) > half:
            outside.append((part, name))
        assert abs(value - middle) < 2.5 * half, (part, name)
    assert len(outside) <= 2, outside  # of thirteen at 95 %


def test_intervals_cover_what_is_true() -> None:
    x = np.array([1.0, 2, 4, 8, 16, 32, 64, 128])
    parameters = (FormParameter("start", 5.0, 0.0, 500.0), FormParameter("each", 1.0, 0.0, 100.0))
    rng, inside = np.random.default_rng(3), 0
    for _ in range(300):
        times = (20 + 3 * x) * np.exp(0.03 * rng.standard_normal(len(x)))
        solved = solve(parameters, lambda v: v["start"] + v["each"] * x, times)
        inside += sum(
            low <= true <= high for true, (low, high) in zip((20, 3), solved.intervals.values(), strict=True)
        )
    assert 0.92 < inside / 600 < 0.98


def test_a_point_far_off_is_found_and_left_out() -> None:
    x = np.linspace(1, 40, 30)
    times = 20 + 3 * x
    times[7] *= 1.8
    parameters = (FormParameter("start", 5.0, 0.0, 500.0), FormParameter("each", 1.0, 0.0, 100.0))
    solved = solve(parameters, lambda v: v["start"] + v["each"] * x, times)
    assert np.flatnonzero(solved.outliers).tolist() == [7]
    assert solved.values == pytest.approx({"start": 20, "each": 3}, rel=1e-3)


@pytest.mark.parametrize(
    ("bench", "shape"),
    [
        ("linear", {"n": 3072, "k": 576, "m": 16}),
        ("attention", {"batch": 4, "queries": 3, "context": 384}),
        ("layer", {"batch": 8, "queries": 2, "context": 768}),
        ("prepare", {"batch": 4, "queries": 3}),
    ],
)
def test_a_slow_point_is_to_be_measured_again(bench: str, shape: dict[str, int]) -> None:
    def slow(of: str, _: str, at: Mapping[str, int]) -> float:
        return 1.6 if of == bench and shape.items() <= at.items() else 1.0

    result = {
        (suspect.bench, tuple(suspect.shape.items()))
        for suspect in fit_profile(measured(disturb=slow), "mine").suspects
    }
    assert any(of == bench and shape.items() <= dict(at).items() for of, at in result)
    assert len(result) <= 8  # with some that lean on it


def test_nothing_is_suspected_of_a_quiet_device(fitted: FittedProfile) -> None:
    assert fitted.suspects == ()
    assert fitted.refused == ()


def test_measurements_that_make_no_sense_are_refused() -> None:
    rng = np.random.default_rng(1)
    wild = measured(disturb=lambda *_: float(np.exp(0.6 * rng.standard_normal())))
    refused = fit_profile(wild, "mine").refused
    assert any(line.startswith("gemm/bf16: median error") and "limit of 10 %" in line for line in refused)
    assert any(line.startswith("elementwise") for line in refused)


def test_every_limit_is_stated_for_a_part_that_is_fitted(fitted: FittedProfile) -> None:
    families = {part["name"].partition("/")[0] for part in fitted.profile["parts"]}
    assert {name for name in families if name not in LIMITS} == {"memory", "launch"}


def test_a_layer_that_is_faster_than_its_parts_has_a_rest_of_nearly_nothing() -> None:
    quick = fit_profile(measured(disturb=lambda bench, *_: 0.5 if bench == "layer" else 1.0), "mine")
    assert any(line.startswith("elementwise") for line in quick.refused)


def test_dips_stay_where_the_data_insist_and_go_where_they_are_noise() -> None:
    def dips(bench: str, _: str, shape: Mapping[str, int]) -> float:
        return 1.5 if bench in ("linear", "head") and shape.get("m", shape.get("rows")) in (2, 32) else 1.0

    gemm = fit_profile(measured(disturb=dips), "mine").parsed.gemm("bf16")
    assert not gemm.rises
    assert gemm.time_us(3072, 576, 32) > 0.95 * 1.5 * Device().gemm.time_us(3072, 576, 32)
    noisy = fit_profile(measured(noise=0.03, seed=5), "mine").parsed.gemm("bf16")
    assert noisy.rises
    assert (np.diff(noisy.time_us(3072, 576, np.arange(1, 129))) >= 0).all()


def test_a_profile_goes_to_its_file_and_back(fitted: FittedProfile, tmp_path) -> None:
    text = dumps(fitted.profile)
    (tmp_path / "mine.json").write_text(text, "utf-8")
    read = load_profile("mine.json", tmp_path)
    assert json.loads(text) == json.loads(dumps(json.loads(text)))
    assert dumps(json.loads(text)) == text
    assert step_us(read, 3, 4, 512) == step_us(fitted.parsed, 3, 4, 512)
    assert {name for name, status in read.statuses.items() if status == "assumed"} == {"launch"}
    for name in ("device", "torch", "driver", "threads", "date", "sessions", "measurements"):
        assert name in read.provenance


def test_an_older_schema_says_what_to_do(fitted: FittedProfile) -> None:
    old = dumps(fitted.profile | {"schema": "decodesim/profile-0"})
    with pytest.raises(InputError, match=r"decodesim calibrate.*measurements beside"):
        parse_profile(old, "mine.json")


@pytest.mark.parametrize("benches", [{"memory", "linear"}, {"memory", "linear", "attention", "sampler"}])
def test_what_was_measured_before_an_interruption_makes_a_profile(benches: set[str]) -> None:
    part = fit_profile(measured(keep=lambda bench, *_: bench in benches), "mine")
    statuses = part.parsed.statuses
    assert statuses["gemm/bf16"] == "measured"
    assert statuses["elementwise"] == "assumed"
    assert (statuses["attention/bf16"] == "measured") == ("attention" in benches)


def test_gaps_are_filled_along_the_form() -> None:
    def keep(bench: str, _: str, shape: Mapping[str, int]) -> bool:
        lost = bench == "linear" and shape == {"n": 3072, "k": 576, "m": 16}
        return not lost and not (bench == "attention" and shape["batch"] == 16 and shape["context"] == 1280)

    gemm = fit_profile(measured(keep=keep), "mine").parsed
    assert float(gemm.gemm("bf16").time_us(3072, 576, 16)) == pytest.approx(
        float(Device().gemm.time_us(3072, 576, 16)), rel=0.02
    )
    big = float(gemm.attention("bf16").time_us(16, 1280, 3, 64, 3 * 5))
    assert big == pytest.approx(Device().attention_us(16, 5, 1280), rel=0.02)


def test_more_heads_of_a_kv_head_count_as_more_queries() -> None:
    here, form = measured(), Device().attention
    more = [
        replace(
            p,
            shape={**p.shape, "heads": 18},
            seconds=1e-6
            * float(form.time_us(p.shape["batch"], p.shape["context"], 3, 64, 2 * p.shape["queries"])),
        )
        for p in here.of("attention")
    ]
    part = fit_profile(replace(here, points=(*here.points, *more)), "mine")
    table = next(entry for entry in part.profile["parts"] if entry["name"] == "attention/bf16")["table"]
    assert table["queries"] == [1, 2, 3, 4, 5, 6, 8, 10, 16]
    wide = float(part.parsed.attention("bf16").time_us(4, 384, 3, 64, 3 * 16))
    assert wide == pytest.approx(Device().attention_us(4, 16, 384), rel=0.02)
    assert part.refused == ()


@pytest.mark.parametrize("benches", [set(), {"memory"}, {"layer", "prepare"}])
def test_nothing_to_describe_the_device_by_is_said(benches: set[str]) -> None:
    with pytest.raises(InputError, match="mine: the measurements do not make a profile"):
        fit_profile(measured(keep=lambda bench, *_: bench in benches), "mine")


def test_a_known_gpu_is_described_by_its_datasheet_and_inherits_from_its_own_profile() -> None:
    here = measured()
    gpu = fit_profile(replace(here, device=replace(here.device, kind="cuda", gpu="h200-sxm")), "mine")
    assert gpu.profile["gpu"] == gpu.profile["inherits"] == "h200-sxm"
    assert "from h200-sxm" in gpu.parsed.parts["mla/bf16"].note


def test_whole_passes_are_checked_and_never_fitted() -> None:
    names = ("stack", "draft_loop")
    slow = fit_profile(measured(disturb=lambda bench, *_: 3.0 if bench in names else 1.0), "mine").profile
    true = fit_profile(measured(), "mine").profile
    assert slow["parts"] == true["parts"]
    errors = [[check["error_percent"] for check in result["provenance"]["checks"]] for result in (true, slow)]
    assert len(errors[0]) == 4
    assert max(map(abs, errors[0])) < 1.5
    assert errors[1] == pytest.approx([100 * ((1 + error / 100) / 3 - 1) for error in errors[0]], abs=0.02)


def test_target_and_drafter_have_a_rest_of_their_own() -> None:
    """A wide layer of as many points, whose rest no scaling of the narrow one's would give."""
    wide = {"hidden": 1152, "heads": 9, "kv_heads": 3, "head_dim": 64, "intermediate": 3072}
    here, gemm, points = measured(), Device().gemm, []
    kind = tuple(wide[name] for name in ("hidden", "heads", "kv_heads", "head_dim", "intermediate"))
    matrices = one_layer(kind).matrices
    for matrix in matrices:
        for p in here.of("linear", "qkv"):
            us = float(gemm.time_us(matrix.n, matrix.k, p.shape["m"]))
            points.append(
                replace(p, shape={"n": matrix.n, "k": matrix.k, "m": p.shape["m"]}, seconds=us * 1e-6)
            )
    for p in here.of("layer"):
        tokens = p.shape["batch"] * p.shape["queries"]
        us = sum(
            matrix_part.count * float(gemm.time_us(matrix_part.n, matrix_part.k, tokens))
            for matrix_part in matrices
        )
        us += (
            Device().attention_us(p.shape["batch"], p.shape["queries"], p.shape["context"])
            + 400
            + 1.0 * tokens
        )
        points.append(replace(p, shape=p.shape | wide, seconds=us * 1e-6))
    both = fit_profile(replace(here, points=(*points, *here.points)), "mine").parsed
    narrow = one_layer((576, 9, 3, 64, 1536)).traffic_bytes_per_token
    rests = [both.rest_of_layer(traffic) for traffic in (narrow, one_layer(kind).traffic_bytes_per_token)]
    assert rests[0].time_us(32, narrow) == pytest.approx(line(Device().rest, 32), rel=0.1)
    assert rests[1].time_us(32, rests[1].width) == pytest.approx(432, rel=0.1)
    assert rests[1].width == both.parts["elementwise"].number("traffic_bytes_per_token")


def test_a_layer_whose_matrices_were_not_timed_makes_no_rest() -> None:
    head_alone = measured(keep=lambda bench, op, _: bench != "linear" or op == "lm_head")
    result = fit_profile(head_alone, "mine")
    assert result.parsed.statuses["elementwise"] == "assumed"
    assert any("small kernels are inherited" in note for note in result.notes)
    assert result.profile["provenance"]["checks"] == []


def test_a_row_without_its_sizes_is_said() -> None:
    here = measured()
    broken = replace(here.points[5], shape={"n": 4})
    with pytest.raises(InputError, match="a row of the measurements lacks"):
        fit_profile(replace(here, points=(*here.points, broken)), "mine")


def test_a_layer_of_another_width_takes_the_rest_by_its_traffic() -> None:
    here = measured()
    wide = [replace(p, shape={**p.shape, "hidden": 1152, "intermediate": 3072}) for p in here.of("layer")][:3]
    both = fit_profile(replace(here, points=(*here.points, *wide)), "mine")
    alone = fit_profile(here, "mine")
    rests = [next(p for p in fit.profile["parts"] if p["name"] == "elementwise") for fit in (both, alone)]
    assert rests[0]["table"] == rests[1]["table"]
    assert LAYER["hidden"] == 576
