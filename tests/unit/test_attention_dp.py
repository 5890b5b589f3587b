"""Data-parallel attention: groups of GPUs with requests of their own, experts that see all tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simulator.costs.cost import CostModel, total
from simulator.costs.prices import PRICE_PREFILL_PAIR_NS, compile_prices
from simulator.costs.profiles import load_profile
from simulator.engines.presets import load_preset
from simulator.errors import InputError
from simulator.memory.report import gpu_memory
from simulator.models.catalogue import load_model
from simulator.runs.variant import CompiledVariant
from simulator.scenario import Scenario, scenario_from_data

GPUS = 16


def scenario(groups: int, prompt: int = 1000, model: str = "deepseek-v3", **hardware: Any) -> Scenario:
    return scenario_from_data(
        {
            "target": {"model": model},
            "hardware": {
                "gpu": "h200-sxm",
                "tensor_parallel": GPUS,
                "expert_parallel": GPUS,
                "attention_dp": groups,
                **hardware,
            },
            "engine": {"preset": "sglang-0.5", "max_num_seqs": 16},
            "workload": {
                "arrivals": {"kind": "closed", "concurrency": 32},
                "prompt_tokens": {"kind": "fixed", "tokens": prompt},
            },
        }
    )


def cost(groups: int, tensor_parallel: int = GPUS, expert_parallel: int = GPUS) -> CostModel:
    preset, _ = load_preset("sglang-0.5")
    args = (load_model("deepseek-v3"), None, load_profile("h200-sxm"), tensor_parallel, expert_parallel, 1)
    return CostModel(*args, "bf16", preset, attention_dp=groups)


def part_us(model: CostModel, name: str, *args: Any) -> float:
    return 1e6 * sum(part.gpu_s for op, part in model.explain_pass(*args) if op == name)


def test_each_request_is_held_once_and_all_but_the_experts_is_held_by_everybody() -> None:
    cut, own = (gpu_memory(scenario(groups), None) for groups in (1, GPUS))
    target = load_model("deepseek-v3")
    experts = sum(layer.count * layer.experts.weight_bytes for layer in target.layers if layer.experts)
    assert own.weights_bytes == pytest.approx(target.weight_bytes() - experts * (1 - 1 / GPUS), rel=1e-6)
    assert own.weights_bytes > cut.weights_bytes
    assert own.kv_bytes_per_token == cut.kv_bytes_per_token  # a latent is no smaller on more GPUs
    assert own.kv_tokens == GPUS * int(own.kv_bytes // own.kv_bytes_per_token)
    assert own.kv_tokens > 10 * cut.kv_tokens


def test_a_request_has_to_fit_into_one_group() -> None:
    held = gpu_memory(scenario(GPUS), None)
    gpu_tokens = held.kv_tokens // GPUS
    assert gpu_memory(scenario(GPUS, prompt=100_000), None).fits
    assert held.longest_request_tokens < gpu_tokens < held.kv_tokens
    # 160k tokens of the model's context are more than one small group holds beside its weights.
    small = scenario(8, prompt=160_000, gpu="h100-sxm", tensor_parallel=8, expert_parallel=8)
    short = gpu_memory(small, None)
    assert not short.fits
    assert short.shortage is not None


def test_a_group_attends_to_its_own_requests_alone() -> None:
    single = cost(1, 1, 1)
    own = cost(GPUS)
    group_pass = (2, 2, 2 * 65_536, 1, (), 2)
    all_of_them = (32, 32, 32 * 65_536, 1, (), 32)
    for name in ("attention (mla)", "o", "norms and activations", "lm_head"):
        assert part_us(own, name, *all_of_them) == pytest.approx(part_us(single, name, *group_pass)), name
    more = (33, 33, 33 * 65_536, 1, (), 33)
    assert part_us(own, "attention (mla)", *more) > part_us(own, "attention (mla)", *all_of_them)
    assert part_us(own, "routed experts", *all_of_them) == pytest.approx(
        part_us(cost(1), "routed experts", *all_of_them)
    )


def test_tokens_are_exchanged_where_an_all_reduce_was() -> None:
    args = (32, 32, 32 * 1000, 1, (), 32)
    names = {name for name, _ in cost(GPUS).explain_pass(*args)}
    assert "exchange of tokens" in names
    assert "all-reduce" not in names
    exchange = load_profile("h200-sxm").exchange()
    assert exchange is not None
    layers = sum(layer.count for layer in load_model("deepseek-v3").layers if layer.experts)
    sent = layers * float(exchange.time_us(2, 8 * 7168, GPUS))
    assert part_us(cost(GPUS), "exchange of tokens", *args) == pytest.approx(sent)
    # DeepEP's README: 118 + 195 µs for 128 tokens of each of 16 GPUs, on H800 (a third of the NVLink).
    assert 0.7 * 313 < exchange.time_us(128, 8 * 7168, GPUS) < 313
    assert exchange.time_us(128, 8 * 7168, 8) < exchange.time_us(128, 8 * 7168, GPUS)

    # Experts that every GPU holds a piece of need all tokens everywhere.
    gathered = part_us(cost(8, 8, 1), "exchange of tokens", *args)
    reduced = load_profile("h200-sxm").allreduce("sglang").time_us(32 * 7168 * 2, 8)
    assert gathered == pytest.approx(layers * float(reduced))


def test_compiled_tables_say_the_same_as_the_explanation() -> None:
    model = cost(GPUS)
    limits: dict[str, Any] = {
        "max_tokens": 256,
        "max_sequences": 64,
        "max_context_tokens": 8192,
        "max_query_tokens": 2,
    }
    prices = compile_prices(model, **limits)
    ops = model.explain_pass(64, 32, 32 * 4096, 2, (), 64)
    gpu_ns = 1e9 * total(ops).gpu_s
    batch = int(np.searchsorted(prices.batch_knots, 32))
    context = int(np.searchsorted(prices.context_knots, 4096))
    parts = (
        prices.target_tokens[64] + prices.target_experts[64] + prices.target_head[64],
        prices.attention[1, batch, context],
    )
    assert sum(parts) == pytest.approx(gpu_ns, rel=1e-9)
    pairs = compile_prices(cost(1, 1, 1), **limits).scalars[PRICE_PREFILL_PAIR_NS]
    assert prices.scalars[PRICE_PREFILL_PAIR_NS] == pytest.approx(pairs / GPUS)


def test_long_contexts_decode_faster_and_every_group_has_its_seats() -> None:
    cut, own = (CompiledVariant.compile(scenario(groups), None) for groups in (1, GPUS))
    assert own.settings.max_num_seqs == GPUS * cut.settings.max_num_seqs
    assert own.settings.graph_sizes[0] == GPUS * cut.settings.graph_sizes[0]
    assert own.step_times(32, 65_536)["total"] < 0.7 * cut.step_times(32, 65_536)["total"]


@pytest.mark.parametrize(
    ("model", "groups", "message"),
    [
        ("deepseek-v3", 3, r"attention_dp: does not divide tensor_parallel.*a divisor of 16"),
        ("llama-3.3-70b-instruct", 4, r"attention_dp: has no effect.*no experts to share.*replicas"),
    ],
)
def test_groups_that_make_no_sense_are_refused(model: str, groups: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        scenario(groups, model=model, expert_parallel=1)


def test_a_published_layout_is_read_from_its_words() -> None:
    """Sixteen GPUs of nodes that decode alone, and four that also prefill."""
    from calibration.validation.reconstruction.cases import committed_cases
    from calibration.validation.reconstruction.evidence import AcceptanceEvidence
    from calibration.validation.reconstruction.reconstruct import published_runs_of

    cases = {case.case_id: case for case in committed_cases()}
    evidence = AcceptanceEvidence.of(tuple(cases.values()))
    result = {}
    for name in (
        "lmsys_mtp_dsv3_h200_small",
        "trtllm_perf_llama4_scout_h200_tp4",
        "inferencex870_r1_fp8_8xh200",
    ):
        plain = published_runs_of(cases[name], evidence)[0].plain
        assert plain is not None
        hardware, run = plain.hardware, plain.run
        result[name] = (
            hardware.tensor_parallel,
            hardware.attention_dp,
            hardware.expert_parallel,
            hardware.replicas,
        )
        assert run.mechanisms.prefill == (name != "lmsys_mtp_dsv3_h200_small")
    assert list(result.values()) == [(16, 16, 16, 1), (4, 4, 1, 1), (8, 1, 1, 1)]
