"""The plan of points: every bench, each point once, and what cannot be measured is said."""

from dataclasses import replace
from pathlib import Path

import pytest

from calibration.microbench import plan as plans
from calibration.microbench.device import Device
from calibration.microbench.plan import BenchPlan, make_plan
from calibration.microbench.subject import grid_of
from simulator.models.catalogue import load_drafter, load_model
from tests.microbench.tiny import DENSE, MIXTURE, SLIDING, model_of, tiny_device

BENCHES = {"memory", "launch", "linear", "attention", "elementwise", "sampler", "draft_loop", "layer"} | {
    "head",
    "first_layer",
    "prepare",
    "stack",
}


def plan_of(
    tmp_path: Path, config: dict[str, object], device: Device | None = None, *weights: str
) -> BenchPlan:
    model = model_of(config, tmp_path)
    return make_plan(device or tiny_device(), model, None, (1,), weights or ("bf16",), quick=True)


def cuda_device() -> Device:
    notes = replace(tiny_device().notes, kind="cuda", name="NVIDIA H100 80GB HBM3", cache_bytes=50 << 20)
    return _Gpu(notes, fp8=True)


class _Gpu(Device):
    @property
    def free_bytes(self) -> int:
        return 79 << 30


def test_every_bench_is_there(tmp_path: Path) -> None:
    dense = plan_of(tmp_path, DENSE)
    assert {point.bench for point in dense.points} == BENCHES
    assert {point.bench for point in plan_of(tmp_path, MIXTURE).points} == (BENCHES | {"experts"}) - {
        "layer",
        "prepare",
        "head",
        "first_layer",
        "stack",
        "draft_loop",
        "elementwise",
    }
    assert dense.left_out == dense.uncovered == ()


def test_each_point_stands_once(tmp_path: Path) -> None:
    keys = [point.key for point in plan_of(tmp_path, DENSE).points]
    assert len(keys) == len(set(keys))


def test_a_gpu_is_measured_at_the_shapes_of_the_cost_model() -> None:
    model = load_model("llama-3.1-8b-instruct")
    drafter = load_drafter("eagle3-llama-3.1-8b", model, "eagle3")
    plan = make_plan(cuda_device(), model, drafter, (1, 2), ("bf16", "fp8"), quick=False)
    linear = {
        (p.op, p.dtype, p.shape["n"], p.shape["k"], p.shape["m"]) for p in plan.points if p.bench == "linear"
    }
    assert ("gate_up", "fp8", 28672, 4096, 257) in linear
    assert ("gate_up", "fp8", 14336, 4096, 129) in linear  # half of it on each of two ranks
    assert 128256 not in {n for _, _, n, _, _ in linear}  # the target's head is timed with its norm
    assert {p.shape["vocab"] for p in plan.points if p.bench == "head"} == {128256, 64128}
    assert ("fc", "bf16", 4096, 3 * 4096, 64) in linear
    verify = {
        tuple(p.shape[x] for x in ("batch", "queries", "context", "kv_heads"))
        for p in plan.points
        if p.op == "flash"
    }
    assert {(64, 1, 8192, 8), (64, 16, 2048, 4), (256, 4, 512, 8)} <= verify
    assert {p.op for p in plan.points if p.bench == "launch"} == {"eager", "graph"}
    assert "quantise" in {p.op for p in plan.points}
    assert plan.visits_s(cuda_device()) < 300


def test_without_bf16_no_layer_is_timed_in_place(tmp_path: Path) -> None:
    plan = make_plan(cuda_device(), model_of(DENSE, tmp_path), None, (1,), ("fp8",), quick=True)
    assert {"layer", "head", "stack", "prepare", "draft_loop"}.isdisjoint(p.bench for p in plan.points)
    assert {p.dtype for p in plan.points if p.bench == "linear" and p.op == "lm_head"} == {"bf16"}
    assert [line.partition(",")[0] for line in plan.uncovered] == ["layers in place"]


def test_a_cpu_meets_the_tokens_of_its_steps(tmp_path: Path) -> None:
    full, quick = (
        make_plan(tiny_device(), model_of(DENSE, tmp_path), None, (1,), ("bf16",), q) for q in (False, True)
    )
    assert {point.key for point in quick.points} - {point.key for point in full.points}  # contexts of its own
    assert len(quick.points) < len(full.points) / 2
    for quick_one in (False, True):
        grid = grid_of("cpu", quick_one)
        assert {b * q for b, q in grid.steps(max(grid.tokens))} <= set(grid.tokens)


def test_fp8_where_there_is_none_is_left_out(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, DENSE, None, "bf16", "fp8")
    assert [line.split(":")[0] for line in plan.left_out] == ["fp8"]
    assert {point.dtype for point in plan.points} == {"bf16", "fp32"}


def test_points_that_need_too_much_memory_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full_plan = plan_of(tmp_path, DENSE)
    small = 3 * max(plans._needed(point, tiny_device()) for point in full_plan.points)
    monkeypatch.setattr(Device, "free_bytes", property(lambda _: small))
    plan = plan_of(tmp_path, DENSE)
    assert 0 < len(plan.points) < len(full_plan.points)
    assert all("GiB" in line for line in plan.left_out)
    missing = {p.bench for p in full_plan.points} - {p.bench for p in plan.points}
    assert missing <= {line.split(":")[0] for line in plan.left_out}


def test_what_no_bench_measures_is_said(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, SLIDING)
    assert ["attention of the kind sliding" in line for line in plan.uncovered] == [True]
    assert "attention" not in {point.bench for point in plan.points}
    gpt_oss = make_plan(tiny_device(), load_model("gpt-oss-20b"), None, (1,), ("bf16",), quick=True)
    assert any("sliding" in line for line in gpt_oss.uncovered)
