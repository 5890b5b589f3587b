"""Every point of every bench runs, computes what it says, and is cold when its turn comes."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from calibration.decoder.ops import attention, causal_mask
from calibration.microbench.benches.attention import attention_points, flash_attention
from calibration.microbench.benches.collectives import allreduce_rows
from calibration.microbench.benches.elementwise import elementwise_points
from calibration.microbench.benches.experts import Routing, expert_points, routed_experts
from calibration.microbench.benches.launch import launch_points
from calibration.microbench.benches.linear import linear_points
from calibration.microbench.benches.memory import memory_points
from calibration.microbench.lab import Lab
from calibration.microbench.plan import _points_of
from calibration.microbench.point import BenchPoint
from calibration.microbench.subject import BenchSubject, target_subject
from calibration.microbench.timing import Effort, Work, time_work
from tests.microbench.tiny import DENSE, GRID, MIXTURE, model_of, tiny_device


@pytest.fixture
def lab() -> Lab:
    return Lab(tiny_device())


def subject_of(config: dict[str, object], tmp_path: Path) -> BenchSubject:
    return target_subject(tiny_device(), model_of(config, tmp_path), 1, draft_layers=1)


def run(points: Sequence[BenchPoint], lab: Lab) -> None:
    for point in points:
        timed = time_work(point.prepare(lab), GRID.effort, on_gpu=False)
        assert 0 < timed.p10_s <= timed.seconds <= timed.p90_s, point.key
        assert timed.repeats >= GRID.effort.repeats


def test_every_point_of_a_dense_network_runs(lab: Lab, tmp_path: Path) -> None:
    run([*memory_points(GRID), *launch_points(on_gpu=False)], lab)
    run([*_points_of(subject_of(DENSE, tmp_path), GRID, lab.device, False)], lab)


def test_every_point_of_routed_experts_runs(lab: Lab, tmp_path: Path) -> None:
    points = [*expert_points(subject_of(MIXTURE, tmp_path), GRID)]
    assert {point.op for point in points} == {"random", "skewed"}
    run(points, lab)


def test_fp8_points_run(lab: Lab, tmp_path: Path) -> None:
    model = model_of(DENSE, tmp_path).with_weights("fp8")
    subject = target_subject(lab.device, model, 1)
    points = [point for point in linear_points(subject, GRID) if point.dtype == "fp8"]
    assert {point.op for point in points} == {"qkv", "o", "gate_up", "down"}
    run([*points, *(p for p in elementwise_points(subject, GRID, fp8=True) if p.op == "quantise")], lab)


def test_bytes_and_flops_are_those_of_the_shape(tmp_path: Path) -> None:
    subject = subject_of(DENSE, tmp_path)
    result = {point.op: point for point in linear_points(subject, GRID) if point.shape["m"] == 4}
    assert result["qkv"].shape == {"n": (4 + 2 * 2) * 16, "k": 64, "m": 4}
    assert result["qkv"].bytes == 2 * (128 * 64 + 4 * 64 + 4 * 128)
    assert result["down"].flops == 2 * 4 * 64 * 128
    decode = next(p for p in attention_points(subject, GRID, on_gpu=False) if p.shape.get("queries") == 2)
    kv = 2 * 64 * 2 * 16 * 2  # K and V, context, KV heads, head dimension, bf16
    assert decode.bytes == kv + 2 * 2 * 4 * 16 * 2
    assert decode.flops == 4 * 2 * 4 * 64 * 16
    triad = next(p for p in memory_points(GRID) if p.op == "triad")
    assert triad.bytes == 3 * (1 << 12)


def test_copies_take_turns_over_more_than_the_cache(lab: Lab) -> None:
    copies = lab.cold("weights", 24, 16)
    assert len(copies) * 24 * 16 * 2 >= 2 * lab.device.notes.cache_bytes
    assert len({copy.data_ptr() for copy in copies}) == len(copies)
    assert all(copy.std() > 0.5 for copy in copies)
    large = lab.cold("weights", 512, 512)
    assert len(large) == 2
    assert not torch.equal(*large)


def test_a_layer_in_place_takes_each_layer_in_turn(tmp_path: Path) -> None:
    shape = subject_of(DENSE, tmp_path).decoder
    assert shape is not None
    small_cache = replace(tiny_device().notes, cache_bytes=4 * 2 * shape.layer_parameters)
    device = replace(tiny_device(), notes=small_cache)
    deep = target_subject(device, model_of(DENSE, tmp_path), 1).decoder
    assert deep is not None
    assert deep.layers == 8  # twice the cache, four layers each
    assert len(Lab(device).decoder(deep).weights.layers) == 8


def test_routed_experts_compute_their_sum(lab: Lab) -> None:
    hidden, gate_up, down = lab.random(3, 16), lab.random(4, 16, 2 * 8), lab.random(4, 8, 16)
    chosen = [0, 2, 2, 3, 1, 2]  # two experts of each token
    order = sorted(range(6), key=lambda i: chosen[i])
    counts = torch.tensor([chosen.count(e) for e in range(4)])
    routing = Routing(
        torch.tensor([i // 2 for i in order]),
        counts.cumsum(0).to(torch.int32),
        torch.full((6, 1), 0.5, dtype=torch.bfloat16),
    )
    out = routed_experts(hidden, gate_up, down, routing).float()
    for token in range(3):
        expected = torch.zeros(16)
        for expert in chosen[2 * token : 2 * token + 2]:
            gate, up = (hidden[token].float() @ gate_up[expert].float()).chunk(2)
            expected += 0.5 * (torch.nn.functional.silu(gate) * up) @ down[expert].float()
        assert torch.allclose(out[token], expected, rtol=0.05, atol=0.2)


@pytest.mark.parametrize("queries", [1, 3])
def test_flash_attention_is_that_of_the_decoder(lab: Lab, queries: int) -> None:
    """The last query tokens see all keys up to their own, whichever kernel computes it."""
    heads, context, dim = 4, 32, 16
    asked = lab.random(2, queries, heads, dim, dtype="fp32")
    keys, values = lab.random(2, 2, 2, context, dim, dtype="fp32")
    mask = causal_mask(torch.full((2,), context - queries), queries, context, 2, torch.float32)
    expected = attention(asked, keys, values, mask).view(2, queries, heads, dim)
    result = flash_attention(asked.transpose(1, 2), keys, values).transpose(1, 2)
    assert torch.allclose(result, expected, atol=1e-5)


def test_all_reduces_of_two_processes() -> None:
    rows = allreduce_rows("cpu", 2, (64, 1024))
    assert [(row.op, row.shape["bytes"], row.shape["gpus"]) for row in rows] == [
        ("eager", 64, 2),
        ("eager", 1024, 2),
    ]
    assert all(0 < row.p10_s <= row.seconds <= row.p90_s for row in rows)


def test_a_visit_lasts_as_long_as_it_should() -> None:
    calls: list[int] = []
    timed = time_work(Work(calls.append, calls=10), Effort(repeats=50, min_s=0.0, max_s=60), on_gpu=False)
    assert timed.repeats == 50
    assert calls[3:] == list(range(3, 53))  # warmed up three times, then every copy in turn
    short = time_work(Work(calls.append), Effort(repeats=10**9, min_s=60, max_s=1e-4), on_gpu=False)
    assert short.repeats < 10**6
