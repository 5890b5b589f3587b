"""Prices from a profile of one's own device: a layer in place, verify attention, samplers, launches."""

import contextlib
import json
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simulator.costs.cost import CostModel, total
from simulator.costs.ops.gemm import Gemm, GemmForm
from simulator.costs.ops.rows import RowTable
from simulator.costs.prices import PRICE_SAMPLE_SEQUENCE_NS, compile_prices
from simulator.costs.profiles import Profile, load_profile, parse_profile
from simulator.engines.presets import load_preset
from simulator.errors import InputError
from simulator.models.catalogue import load_drafter, load_model
from simulator.runs.setup import setup_of
from simulator.scenario import parse_scenario

CPU = {
    "name": "a-cpu",
    "title": "some CPU",
    "memory_bytes": 2**34,
    "hbm_bandwidth_bytes_per_s": 2e10,
    "peak_flops_per_s": {"bf16": 4e11},
    "l2_bytes": 2**25,
    "sms": 2,
    "nvlink_bandwidth_bytes_per_s": 2e10,
    "interconnect": "none",
}
BATCHES, CONTEXTS, QUERIES = [1, 4, 16], [128, 1024], [1, 2, 8]
ATTENTION_US = 5.0 + 0.01 * np.einsum("b,c,q->bcq", BATCHES, CONTEXTS, np.sqrt(QUERIES))
FORM = {"group": 3, "start_us": 5, "memory_efficiency": 0.7, "compute_efficiency": 0.2, "per_query_us": 0.1}
SHAPES = [[960, 576], [576, 576], [3072, 576], [576, 1536], [49152, 576]]
KNOTS = [1, 2, 8, 32, 128]
GEMM_US = np.array([[n * k / 1e4 + 0.02 * n * k / 1e4 * m for m in KNOTS] for n, k in SHAPES])
TRAFFIC = 8.0 * 576 * 2 + 4.0 * 960 + 3.0 * 3072


def part(name: str, coefficients: dict[str, float], table: dict[str, Any], status: str = "measured") -> Any:
    return {"name": name, "status": status, "source": "", "coefficients": coefficients, "table": table}


def rows(name: str, axis: str, coefficients: dict[str, float], start_us: float, per_row_us: float) -> Any:
    """A part by rows, exactly on its line."""
    line = {"start_us": start_us, "per_row_us": per_row_us}
    return part(
        name, coefficients | line, {axis: [1, 101], "us": [start_us + per_row_us * r for r in (1, 101)]}
    )


def document(*more: Any, without: str = "") -> dict[str, Any]:
    gemm = {"start_us": 5.0, "memory_efficiency": 0.9, "compute_efficiency": 0.9, "smoothness": 1.0}
    gemm |= {"per_k_us": 0.0, "tile_tokens": 1, "follows_form": 1}
    attention = {"head_dims": [64], "kv_heads": [3], "batches": BATCHES, "contexts": CONTEXTS}
    attention |= {"queries": QUERIES, "us": ATTENTION_US[None, None].tolist()}
    parts = [
        part("gemm/bf16", gemm, {"knots": KNOTS, "shapes": SHAPES, "us": GEMM_US.tolist()}),
        part("attention/bf16", FORM, attention),
        rows("elementwise", "tokens", {"traffic_bytes_per_token": TRAFFIC}, 98, 2),
        rows("pass", "tokens", {"hidden": 576}, 39, 1),
        rows("sampler", "rows", {"vocab": 49152, "per_sequence_us": 7}, 20, 50),
        rows("sampler/greedy", "rows", {"vocab": 49152}, 5, 10),
        rows("draft_sampler", "rows", {"vocab": 49152}, 4, 30),
        rows("draft_sampler/greedy", "rows", {"vocab": 49152}, 2, 3),
        part("launch", {"eager_call_us": 0}, {}),
    ]
    parts_left = [*(entry for entry in parts if entry["name"] != without), *more]
    return {
        "schema": "decodesim/profile-1",
        "name": "mine",
        "gpu": CPU,
        "inherits": "h100-sxm",
        "parts": parts_left,
    }


def profile(*more: Any, without: str = "", kind: str = "cpu") -> Profile:
    raw = document(*more, without=without) | {"provenance": {"kind": kind}}
    return parse_profile(json.dumps(raw), "mine.json")


def cost(of: Profile, preset: str = "torch-2", sampling: str = "", draft_sampling: str = "") -> CostModel:
    target = load_model("smollm2-135m-instruct")
    draft = load_drafter("smollm2-135m-instruct", target, "draft_model")
    chosen = load_preset(preset)[0]
    return CostModel(target, draft, of, 1, 1, 1, "bf16", chosen, sampling, draft_sampling)


def test_a_layer_in_place_is_its_matrices_its_attention_and_the_rest():
    cost_model = cost(profile())
    step = cost_model.target_pass(8, 4, 4 * 1024, 2, logit_rows=8)
    matrices = sum(GEMM_US[i, 2] for i in range(4))
    layers = 30 * (matrices + ATTENTION_US[1, 1, 1] + 98 + 8 * 2)
    expected = layers + 39 + 8 + GEMM_US[4, 2]
    assert step.duration_s * 1e6 == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("preset", "kind"), [("torch-2", "cuda"), ("torch-2", "cpu"), ("vllm-0.33", "cpu")])
def test_what_a_layer_in_place_holds_is_not_charged_again_by_a_preset(preset, kind):
    chosen = load_preset(preset)[0]
    dear = replace(chosen, small_kernel_s_per_layer=0.5)
    cost_model = cost(profile(kind=kind))
    prices = [
        replace(cost_model, preset=p).target_pass(8, 4, 4096, 2, logit_rows=8).gpu_s for p in (chosen, dear)
    ]
    assert prices[0] == prices[1]
    unmeasured = cost(profile(part("elementwise", {"memory_efficiency": 0.8}, {}), without="elementwise"))
    with pytest.raises(InputError, match="stands twice"):
        profile(part("elementwise", {"memory_efficiency": 0.8}, {}))
    assert replace(unmeasured, preset=dear).target_pass(8).gpu_s > 15


def test_serving_engines_on_gpus_fuse_what_torch_runs_one_by_one():
    measured, plain = cost(profile(kind="cuda"), "vllm-0.33"), cost(profile(kind="cuda"))
    dear = replace(measured.preset, small_kernel_s_per_layer=0.5)
    assert replace(measured, preset=dear).target_pass(8).gpu_s > 15
    assert "embedding, positions, mask" in dict(plain.explain_pass(8))
    assert "embedding, positions, mask" not in dict(measured.explain_pass(8))


def test_the_rest_of_another_layer_grows_with_its_traffic_beyond_its_starts():
    table = profile().rest_of_layer(TRAFFIC)
    assert table is not None
    assert table.time_us([1, 51, 101], TRAFFIC) == pytest.approx([100, 200, 300])
    assert table.time_us([0, 1, 51, 201], 2 * TRAFFIC) == pytest.approx([0, 102, 302, 902])


def test_of_several_kinds_of_layers_the_nearest_stands_for_another():
    wide = rows("elementwise/wide", "tokens", {"traffic_bytes_per_token": 8 * TRAFFIC}, 200, 30)
    two = profile(wide, rows("pass/wide", "tokens", {"hidden": 4096}, 70, 2))
    for traffic, at_11 in ((TRAFFIC, 120), (8 * TRAFFIC, 530), (2 * TRAFFIC, 142), (4 * TRAFFIC, 365)):
        assert float(two.rest_of_layer(traffic).time_us(11, traffic)) == pytest.approx(at_11)
    assert float(two.preparation(4096).time_us(11, 4096)) == pytest.approx(92)
    assert float(two.preparation(500).time_us(11, 576)) == pytest.approx(50)


def test_a_table_below_its_line_stays_above_0_for_any_width():
    table = RowTable(np.array([1.0, 16, 128]), np.array([5.0, 60, 500]), 1.0, 10.0, 4.0)
    assert table.time_us(1, 20.0) == pytest.approx(5)
    assert (table.time_us(np.arange(1, 200), 20.0) >= 5).all()


def test_what_was_measured_bends_the_line_and_is_kept_beyond_it():
    table = RowTable(np.array([1.0, 16, 128]), np.array([22.0, 74, 1140]), 1.0, 10.0, 4.0)
    assert table.time_us([1, 16, 128], 1.0) == pytest.approx([22, 74, 1140])
    assert table.time_us(256, 1.0) == pytest.approx(1140 * 1034 / 522)
    assert (np.diff(table.time_us(np.arange(1, 300), 1.0)) > 0).all()


def test_samplers_are_priced_as_the_scenario_says():
    measured = profile()
    drafter_head = [
        cost(measured, draft_sampling=how).explain_draft_pass(2, 2, 200, logit_rows=2)
        for how in ("", "sampled", "greedy")
    ]
    drawn = [dict(ops)["draft sampler"].gpu_s * 1e6 for ops in drafter_head]
    assert drawn == pytest.approx([64, 64, 8])
    accepted = [cost(measured, sampling=how).sample(8).gpu_s * 1e6 for how in ("", "sampled", "greedy")]
    assert accepted == pytest.approx([420, 420, 85])
    plain = profile(rows("sampler/plain-sampled", "rows", {"vocab": 49152}, 10, 20))
    times = [
        cost(plain, sampling=how).sample(8).gpu_s * 1e6
        for how in ("plain-sampled", "plain-greedy", "sampled")
    ]
    assert times == pytest.approx([170, 85, 420])
    assert cost(measured).sample(8, 2).gpu_s * 1e6 == pytest.approx(434)
    assert cost(load_profile("h100-sxm")).sample(8) == cost(
        load_profile("h100-sxm"), sampling="greedy"
    ).sample(8)


def test_tables_of_the_step_are_what_the_explanation_says():
    cost_model = cost(profile(), sampling="greedy", draft_sampling="sampled")
    prices = compile_prices(
        cost_model, max_tokens=64, max_sequences=16, max_context_tokens=2048, max_query_tokens=8
    )
    ops = dict(cost_model.explain_pass(24, logit_rows=24))
    in_table = prices.target_tokens[24] + prices.target_head[24]
    assert in_table == pytest.approx(total(list(ops.items())).gpu_s * 1e9, rel=1e-9)
    assert "embedding, positions, mask" in ops
    draft = cost_model.explain_draft_pass(6, logit_rows=6)
    passed = total([op for op in draft if op[0] != "host"]).gpu_s
    assert prices.draft_tokens[6] + prices.draft_head[6] == pytest.approx(passed * 1e9, rel=1e-9)
    drawn = compile_prices(
        cost(profile()), max_tokens=9, max_sequences=2, max_context_tokens=64, max_query_tokens=2
    )
    assert drawn.scalars[PRICE_SAMPLE_SEQUENCE_NS] == 7000
    assert prices.scalars[PRICE_SAMPLE_SEQUENCE_NS] == 0
    assert prices.sample[6] == pytest.approx(cost_model.sample(6).gpu_s * 1e9, rel=1e-9)
    at_knot = prices.attention[1, list(prices.batch_knots).index(4), list(prices.context_knots).index(1024)]
    assert at_knot == pytest.approx(30 * ATTENTION_US[1, 1, 1] * 1e3, rel=1e-9)


@pytest.mark.parametrize(("temperature", "drafts", "expected"), [
    ("null", "greedy", ("", "greedy")),
    ("0", "sampled", ("greedy", "greedy")),
    ("0.7", "sampled", ("sampled", "sampled")),
    ("1", "greedy", ("sampled", "greedy")),
])  # fmt: skip
def test_the_scenario_says_how_tokens_are_chosen(temperature, drafts, expected):
    scenario = parse_scenario(
        "target: {model: llama-3.1-8b-instruct}\nhardware: {gpu: h100-sxm}\n"
        "speculation: [{name: d, method: draft_model, draft: llama-3.2-1b-instruct, "
        f"draft_sampling: {drafts}}}]\n"
        f"workload: {{arrivals: {{kind: closed, concurrency: 2}}, temperature: {temperature}}}\n"
        "engine: {max_num_seqs: 4}\n"
    )
    cost = setup_of(scenario, scenario.speculation[0]).cost
    assert (cost.sampling, cost.draft_sampling) == expected
    plain = setup_of(scenario, None).cost
    assert (plain.sampling, plain.draft_sampling) == (expected[0] and f"plain-{expected[0]}", "")


def test_verify_attention_is_read_where_it_was_measured():
    attention = profile().attention("bf16")
    for i, b in enumerate(BATCHES):
        for j, c in enumerate(CONTEXTS):
            rows = [float(attention.time_us(b, c, 3, 64, 3 * q)) for q in QUERIES]
            assert rows == pytest.approx(ATTENTION_US[i, j].tolist(), rel=1e-9)
    form = attention.form
    for ends in ((64, 1024, 8), (16, 4096, 8), (16, 1024, 32), (1, 64, 1)):
        inside = np.clip(ends, (1, 128, 1), (16, 1024, 8))
        grown = form.time_us(*ends[:2], 3, 64, ends[2]) / form.time_us(*inside[:2], 3, 64, inside[2])
        known = attention.time_us(*inside[:2], 3, 64, 3 * inside[2])
        assert attention.time_us(*ends[:2], 3, 64, 3 * ends[2]) == pytest.approx(known * grown, rel=1e-9)


def test_eager_calls_are_those_of_the_device_under_plain_torch_alone():
    slow = profile(part("launch", {"eager_call_us": 7}, {}), without="launch")
    network = cost(slow).target_pricing.network
    assert cost(slow).target_pricing.launching_us() == 7 * network.calls
    assert cost(profile()).target_pricing.launching_us() == 0
    sglang = load_preset("sglang-0.5")[0]
    own = cost(slow, "sglang-0.5").target_pricing.launching_us()
    assert own == pytest.approx(sglang.host.eager_call_s * 1e6 * network.calls)


def test_an_affine_curve_keeps_its_shape_between_knots():
    form = GemmForm(2e10, 4e11, 2.0, 2.0, 5.0, 0.5, 0.5, 1.0, 0.0, tile_tokens=1)
    knots = np.array([1.0, 8, 64, 128])
    true = form.time_us(576, 576, np.arange(1, 257.0)) * 1.3
    tables = [
        Gemm(form, knots, np.array([[576.0, 576]]), np.full((1, 4), np.log(1.3)), follows_form=how)
        for how in (True, False)
    ]
    error = [np.abs(table.time_us(576, 576, np.arange(1, 257)) / true - 1).max() for table in tables]
    assert error[0] < 1e-12
    assert error[1] > 0.03


def test_a_kernel_that_takes_longer_for_fewer_tokens_is_kept_when_it_was_measured():
    form = GemmForm(2e10, 4e11, 2.0, 2.0, 5.0, 0.5, 0.5, 1.0, 0.0, tile_tokens=1)
    knots, dip = np.array([4.0, 5, 8]), np.log([[1.0, 1.4, 0.9]])
    unraised, raised = (
        Gemm(form, knots, np.array([[64.0, 64]]), dip, True, rises) for rises in (False, True)
    )
    assert unraised.time_us(64, 64, knots) == pytest.approx(form.time_us(64, 64, knots) * np.exp(dip[0]))
    assert raised.time_us(64, 64, 8) == raised.time_us(64, 64, 5) > unraised.time_us(64, 64, 8)


@pytest.mark.parametrize(("change", "wrong"), [
    (lambda d: d["parts"][1]["table"].update(queries=[1, 2]), "another shape than its axes"),
    (lambda d: d["parts"][1]["table"].update(queries=[2, 1, 8]), "does not rise"),
    (lambda d: d["parts"][1].update(coefficients={}), "is missing"),
    (lambda d: d["parts"][2]["table"].update(us=[100, -1]), "is not a time"),
    (lambda d: d["parts"][2].update(coefficients={}), "traffic_bytes_per_token: is missing"),
    (lambda d: d["parts"][3].update(table={}), "tokens: is missing|table.tokens"),
    (lambda d: d["parts"][5].update(name="sampler/nucleus"), "unknown way of sampling"),
    (lambda d: d["parts"][8].update(coefficients={}), "eager_call_us: is missing"),
    (lambda d: d["parts"][0].update(residual={"p50_percent": "x"}), "residual.p50_percent: is not usable"),
    (lambda d: d["parts"][0].update(residual={"intervals": 3}), "intervals: is not usable"),
    (lambda d: d["parts"][0].update(residual={"intervals": {"start_us": [1]}}), "is no interval"),
    (lambda d: d.update(provenance={"checks": 3}), "provenance.checks: is not usable"),
    (lambda d: d.update(provenance={"checks": [{"name": "x"}]}), "is no check"),
    (lambda d: d.update(provenance={"sessions": [3]}), "sessions"),
    (lambda d: d.update(provenance={"sessions": [{"notes": 3}]}), "notes: is not usable"),
    (lambda d: d.update(schema="decodesim/profile-0"), "calibrate"),
    (lambda d: d.update(schema="decodesim/profile-2"), "update of decodesim"),
    (lambda d: d.update(schema="decodesim/result-1"), "no schema of a profile"),
])  # fmt: skip
def test_a_broken_file_says_where_and_what(change, wrong):
    raw = document()
    change(raw)
    with pytest.raises(InputError, match=wrong):
        parse_profile(json.dumps(raw), "mine.json")


@pytest.mark.parametrize("seed", range(2))
def test_a_file_with_anything_anywhere_is_read_or_refused(seed):
    """Every place of the file, one after the other, holds something that does not belong there."""
    rng = random.Random(seed)
    strange = [None, -1, 0, 1e-9, 1e30, "x", [], {}, [[1, 2], [3]], True, [1, "x"]]
    text = json.dumps(document())
    for path in places(json.loads(text)):
        raw = json.loads(text)
        here = raw
        for key in path[:-1]:
            here = here[key]
        here[path[-1]] = rng.choice(strange)
        with contextlib.suppress(InputError):
            read = parse_profile(json.dumps(raw), "mine.json")
            times = [
                read.gemm("bf16").time_us(960, 576, [1, 9]),
                read.attention("bf16").time_us(2, 90, 3, 64, 6),
            ]
            times += [read.sampler(how).time_us([1, 9], 1000) for how in ("", "greedy", "plain-sampled")]
            assert all(np.isfinite(time).all() for time in times), path


def places(raw, path=()):
    """Paths of everything in a document; of long lists the first and last."""
    if path:
        yield path
    if isinstance(raw, dict):
        for key, value in raw.items():
            yield from places(value, (*path, key))
    elif isinstance(raw, list):
        for index in sorted({0, len(raw) - 1} & set(range(len(raw)))):
            yield from places(raw[index], (*path, index))
