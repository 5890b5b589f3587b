"""Profiles: what ships, what is inherited and said so, and broken files as input errors."""

import json
from importlib import resources
from typing import Any

import numpy as np
import pytest

from simulator.costs.profile_file import AXES
from simulator.costs.profiles import load_profile, parse_profile, profile_names
from simulator.errors import InputError
from simulator.gpu import GPUS, gpu

FOLDER = resources.files("simulator").joinpath("data", "profiles")


def text_of(name: str = "h100-sxm") -> str:
    return FOLDER.joinpath(f"{name}.json").read_text("utf-8")


@pytest.mark.parametrize("name", ["h100-sxm", "h200-sxm"])
def test_shipped_profiles_carry_their_provenance(name):
    profile = load_profile(name)
    assert name in profile_names()
    origin = profile.provenance
    assert origin["package"] == "aiconfigurator-core"
    assert origin["version"] == "0.12.0"
    assert origin["licence"] == "Apache-2.0"
    assert origin["modified"] == "filtered, smoothed, fitted"
    assert origin["date"]
    assert len(origin["files"]) >= 8
    for file in origin["files"]:
        assert len(file["sha256"]) == 64
        assert file["framework"]
        assert file["version"]
    assert 50_000 < len(text_of(name).encode()) < 200_000
    assert len(profile.sha256) == 64


@pytest.mark.parametrize("name", ["h100-sxm", "h200-sxm"])
def test_shipped_parts_are_measured_with_held_out_errors(name):
    profile = load_profile(name)
    assumed = {part for part, status in profile.statuses.items() if status == "assumed"}
    assert assumed == {"elementwise", "sampler"}
    for part in profile.parts.values():
        assert part.source
        if part.name.startswith(("gemm", "attention", "experts", "mla")):
            assert "folds" in part.residual["split"]
            assert part.residual["mape_percent"] < 16


@pytest.mark.parametrize("name", sorted(set(GPUS) - {"h100-sxm", "h200-sxm"}))
def test_a_gpu_without_tables_inherits_and_says_so(name):
    profile, base = load_profile(name), load_profile("h100-sxm")
    assert profile.gpu is gpu(name)
    assert set(profile.statuses.values()) == {"inherited", "assumed"}
    assert all("h100-sxm" in part.note for part in profile.parts.values())
    slower = base.gpu.hbm_bandwidth_bytes_per_s / profile.gpu.hbm_bandwidth_bytes_per_s
    read = [float(x.gemm("bf16").time_us(16384, 8192, 1)) for x in (profile, base)]
    assert read[0] / read[1] == pytest.approx(slower, rel=0.06)
    cached = [float(x.attention("bf16").time_us(256, 16384, 8, 128)) for x in (profile, base)]
    assert cached[0] / cached[1] == pytest.approx(slower, rel=0.03)


def test_fp8_weights_without_fp8_arithmetic_are_widened():
    a100, base = load_profile("a100-sxm-80gb"), load_profile("h100-sxm")
    assert len(a100.gemm("fp8").shapes) == 0
    assert a100.gemm("fp8").form.flops_per_s == gpu("a100-sxm-80gb").peak_flops_per_s["bf16"]
    assert len(base.gemm("fp8").shapes) > 300


def test_a_slower_link_slows_the_all_reduce_only_beyond_its_start():
    pcie, base = load_profile("h100-pcie").allreduce(), load_profile("h100-sxm").allreduce()
    assert pcie.time_us(256, 8) == pytest.approx(base.time_us(256, 8), rel=0.01)
    ratio = 900e9 / gpu("h100-pcie").pcie_bandwidth_bytes_per_s
    assert pcie.time_us(1e8, 8) / base.time_us(1e8, 8) == pytest.approx(ratio, rel=0.02)


def test_a_users_profile_takes_missing_parts_from_the_one_it_names(tmp_path):
    data = json.loads(text_of())
    parts = [part for part in data["parts"] if part["name"] in ("gemm/bf16", "attention/bf16")]
    own_profile = {**data, "name": "mine", "gpu": "h200-sxm", "inherits": "h100-sxm", "parts": parts}
    (tmp_path / "mine.json").write_text(json.dumps(own_profile), encoding="utf-8")
    profile = load_profile("mine.json", tmp_path)
    assert profile.statuses["gemm/bf16"] == "measured"
    assert profile.statuses["gemm/fp8"] == "inherited"
    assert set(profile.parts) == set(load_profile("h100-sxm").parts)
    assert np.isfinite(profile.experts("fp8_block").time_us(64, 4096, 1536, 8, 128))


def test_a_profile_may_describe_a_gpu_of_its_own(tmp_path):
    data = json.loads(text_of())
    h100 = gpu("h100-sxm")
    own = {
        "name": "mine",
        "title": "a GPU under test",
        "memory_bytes": h100.memory_bytes,
        "hbm_bandwidth_bytes_per_s": 3e12,
        "peak_flops_per_s": {"bf16": 9e14},
        "l2_bytes": h100.l2_bytes,
        "sms": 132,
        "nvlink_bandwidth_bytes_per_s": 9e11,
        "interconnect": "NVLink",
    }
    profile = parse_profile(json.dumps({**data, "gpu": own}), "mine.json")
    assert profile.gpu.title == "a GPU under test"
    with pytest.raises(InputError, match=r"mine\.json.*sms"):
        parse_profile(json.dumps({**data, "gpu": {**own, "sms": 0}}), "mine.json")


def _small() -> dict[str, Any]:
    """The shipped profile with the first rows of every table: a quick one to break."""
    data = json.loads(text_of())
    for part in data["parts"]:
        table, axes = part["table"], AXES.get(part["name"].partition("/")[0], ())
        if axes and table:
            cut = tuple(slice(2) if axis != "knots" else slice(None) for axis in axes)
            table["us"] = np.array(table["us"])[cut].tolist()
            part["table"] |= {axis: table[axis][chosen] for axis, chosen in zip(axes, cut, strict=True)}
    return data


SMALL: dict[str, Any] = _small()


def _changed(**changes: object) -> str:
    return json.dumps({**SMALL, **changes})


def _with_part(part_name: str, /, **changes: object) -> str:
    parts = [{**part, **changes} if part["name"] == part_name else part for part in SMALL["parts"]]
    return _changed(parts=parts)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "a JSON object is expected"),
        (_changed(schema="decodesim/profile-2"), r":1:12: schema: .*profile-2.*profile-1"),
        (_changed(gpu="h900"), "unknown GPU"),
        (_changed(gpu=7), "gpu must be a name or an object"),
        (_changed(parts=[]), "lacks gemm/bf16"),
        (_with_part("gemm/bf16", status="guessed"), r"\.status: .*one of measured, inherited, assumed"),
        (_with_part("gemm/bf16", coefficients={}), r"coefficients\.start_us: is missing"),
        (
            _with_part("gemm/bf16", coefficients={"start_us": -1}),
            r"start_us: is not usable \(got -1\), a finite number",
        ),
        (_with_part("gemm/bf16", table={"knots": [1], "shapes": [[1, 1]], "us": [[-1]]}), "positive"),
        (_with_part("attention/bf16", table={}), "is missing"),
        (_with_part("gemm/fp8", name="gemm/fp5"), "unknown weight format"),
        (_with_part("gemm/fp8", name="gemm/bf16"), "stands twice"),
        (
            _with_part("sampler", coefficients={"start_us": 1, "memory_efficiency": 0, "passes": 1}),
            "no finite",
        ),
        (_with_part("elementwise", coefficients={}), r"memory_efficiency: is missing"),
        (
            _with_part("mla/bf16", table={"rows": [2, 1], "batches": [1], "contexts": [1]}),
            r"table\.rows: does not",
        ),
        (
            _with_part("mla/bf16", table={"rows": [1], "batches": [1], "contexts": [1], "us": [[1]]}),
            r"table\.us: has another shape than its axes \(got '1 × 1'\), 1 × 1 × 1",
        ),
        (_with_part("allreduce", table={"x": 5}), r"allreduce|table\.x: is not usable"),
        (_changed(inherits="h900", parts=[]), "inherits: unknown profile"),
        (_changed(provenance=5), "provenance: is missing or not usable"),
        (_changed(parts=[5]), r"parts\[0\]: is no part"),
        (json.dumps({"schema": "decodesim/profile-1"}), "gpu: is missing"),
    ],
)
def test_a_broken_profile_is_an_input_error(text, message):
    with pytest.raises(InputError, match=message) as error:
        parse_profile(text, "mine.json")
    assert "mine.json" in str(error.value)


@pytest.mark.parametrize("name", [part["name"] for part in SMALL["parts"]])
def test_a_profile_without_one_part_is_whole_or_says_what_it_lacks(name):
    """Formats fall back to bf16, exchanges to all-reduces; nothing else may be missing, and nothing ends in a
    KeyError later.
    """
    parts = [part for part in SMALL["parts"] if part["name"] != name]
    fewer = _changed(parts=parts)
    if name.partition("/")[2] in ("", "bf16") and name != "exchange":
        with pytest.raises(InputError, match=f"parts: lacks {name}, these parts, or inherits"):
            parse_profile(fewer, "mine.json")
        fewer = _changed(parts=parts, inherits="h100-sxm")
    assert np.isfinite(parse_profile(fewer, "mine.json").experts("int4").time_us(64, 4096, 1536, 8, 128))


def test_all_that_is_wrong_with_a_profile_is_said_at_once():
    data = json.loads(_with_part("gemm/bf16", status="guessed", coefficients={"start_us": "x"}))
    data |= {"name": 5, "gpu": "h900"}
    with pytest.raises(InputError) as error:
        parse_profile(json.dumps(data, indent=1), "mine.json")
    fields = [(problem.field, problem.line is not None) for problem in error.value.problems]
    assert fields == [("name", True), ("gpu", True), ("parts[0].status", True)]


@pytest.mark.parametrize("value", [-1, 0, "x", None, float("inf"), float("nan"), {}, []])
@pytest.mark.parametrize("field", ["memory_bytes", "hbm_bandwidth_bytes_per_s", "sms", "peak_flops_per_s"])
def test_a_gpu_with_an_impossible_figure(field, value):
    h100 = gpu("h100-sxm")
    names = "name title memory_bytes hbm_bandwidth_bytes_per_s l2_bytes sms nvlink_bandwidth_bytes_per_s"
    own = {name: getattr(h100, name) for name in (*names.split(), "interconnect")}
    own |= {"peak_flops_per_s": {"bf16": 9e14}, field: {"bf16": value} if field.startswith("peak") else value}
    with pytest.raises(InputError, match=r"mine\.json:1:\d+: gpu"):
        parse_profile(_changed(gpu=own), "mine.json")


def test_an_unknown_name_lists_the_known_ones(tmp_path):
    with pytest.raises(InputError, match=r"known: .*h100-sxm"):
        load_profile("h900")
    with pytest.raises(InputError, match="cannot be read"):
        load_profile("none.json", tmp_path)
