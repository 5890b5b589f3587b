"""Profiles: what ships, what is inherited and said so, and broken files as input errors."""

import json
from importlib import resources

import numpy as np
import pytest

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
    mine = {**data, "name": "mine", "gpu": "h200-sxm", "inherits": "h100-sxm", "parts": parts}
    (tmp_path / "mine.json").write_text(json.dumps(mine), encoding="utf-8")
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


def _changed(**changes: object) -> str:
    return json.dumps({**json.loads(text_of()), **changes})


def _with_part(part_name: str, /, **changes: object) -> str:
    data = json.loads(text_of())
    data["parts"] = [{**part, **changes} if part["name"] == part_name else part for part in data["parts"]]
    return json.dumps(data)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[]", "schema"),
        (_changed(schema="decodesim/profile-2"), r"schema.*profile-1.*profile-2"),
        (_changed(gpu="h900"), "unknown GPU"),
        (_changed(gpu=7), "gpu must be a name or an object"),
        (_changed(parts=[]), "lacks gemm/bf16"),
        (_with_part("gemm/bf16", status="guessed"), "status must be one of measured, inherited, assumed"),
        (_with_part("gemm/bf16", coefficients={}), "'start_us' is missing"),
        (_with_part("gemm/bf16", coefficients={"start_us": -1}), "start_us must be a finite number"),
        (_with_part("gemm/bf16", table={"knots": [1], "shapes": [[1, 1]], "us": [[-1]]}), "positive"),
        (_with_part("attention/bf16", table={}), "is missing"),
        (_with_part("gemm/fp8", name="gemm/fp5"), "unknown weight format"),
    ],
)
def test_a_broken_profile_is_an_input_error(text, said):
    with pytest.raises(InputError, match=said) as caught:
        parse_profile(text, "mine.json")
    assert "mine.json" in str(caught.value)


def test_an_unknown_name_lists_the_known_ones(tmp_path):
    with pytest.raises(InputError, match=r"known: .*h100-sxm"):
        load_profile("h900")
    with pytest.raises(InputError, match="cannot be read"):
        load_profile("none.json", tmp_path)
