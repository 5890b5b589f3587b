"""The ten-minute script: what it measures on a GPU, and in which order."""

from experiments.ten_minutes import MEASURING_S, _plan, is_weak
from tests.microbench.test_plan import cuda_device


def test_on_a_gpu_it_measures_an_8b_model_and_the_shards_of_a_70b_model_in_time() -> None:
    plan = _plan(cuda_device(), quick=False)
    assert plan.left_out == plan.uncovered == ()
    linear = {
        (p.shape["n"], p.shape["k"], p.dtype)
        for p in plan.points
        if p.bench == "linear" and p.op == "gate_up"
    }
    assert {(28672, 4096, "bf16"), (28672, 4096, "fp8")} <= linear
    assert {(57344 // ranks, 8192, "fp8") for ranks in (1, 2, 4, 8)} <= linear
    # Replays take what they take; capturing and setting up a point take some hundredths of a second more.
    assert plan.visits_s(cuda_device()) + 0.03 * plan.grid.rounds * len(plan.points) < MEASURING_S


def test_what_public_tables_are_weakest_at_comes_first() -> None:
    weak = [point for point in _plan(cuda_device(), quick=False).points if is_weak(point)]
    fp8 = {p.shape["m"] for p in weak if p.bench == "linear"}
    assert {p.dtype for p in weak if p.bench == "linear"} == {"fp8"}
    assert fp8 == {96, 128, 129, 160, 192, 256, 257, 320}
    assert {p.shape["queries"] for p in weak if p.bench == "attention"} == {2, 4, 6, 8, 16}
    assert {p.bench for p in weak} == {"linear", "attention", "layer", "stack"}
