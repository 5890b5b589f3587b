"""Uncertain inputs: what each parameter turns, textbook functions for the indices, and what can be asked."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from experiments.cli import decodesim
from experiments.sensitivity.inputs import KERNELS, UncertainInput, inputs_from, inputs_of
from experiments.sensitivity.parameters import AdjustableVariant
from experiments.sensitivity.runs import BREAK_EVEN, SensitivityRuns
from experiments.sensitivity.sobol import SobolIndex, indices_of, sobol
from experiments.sensitivity.tornado import Bar, Tornado, tornado
from simulator.errors import InputError
from simulator.scenario import Scenario
from simulator.simulation import simulate
from tests.runs import drafting_variant, small_scenario

SMALL = {
    "workload.requests": 60,
    "workload.output_tokens.tokens": 40,
    "workload.ends": "eos",
    "engine.host": {"request_latency_s": 0, "request_s": 0},  # so few requests would hardly be steady
}
SCENARIO = small_scenario(SMALL)
GROUPS = {
    "target.model": "gpt-oss-120b",
    "hardware.tensor_parallel": 2,
    "hardware.attention_dp": 2,
    "speculation": [{"name": "n", "method": "ngram"}],
}
PI = math.pi


def variables(count: int, low: float = -PI, high: float = PI) -> list[UncertainInput]:
    return [UncertainInput(f"x{i}", f"x{i}", low, (low + high) / 2, high, "a test") for i in range(count)]


def orders(indices: list[SobolIndex]) -> tuple[list[float], list[float]]:
    return [index.first_order.value for index in indices], [index.total_order.value for index in indices]


def test_ishigamis_function_has_the_indices_of_the_textbook() -> None:
    """Ishigami and Homma 1990, a = 7, b = 0.1: x3 matters only together with x1."""
    inputs = variables(3)

    def ishigami(values: Mapping[UncertainInput, float]) -> float:
        x, y, z = (values[name] for name in inputs)
        return math.sin(x) + 7 * math.sin(y) ** 2 + 0.1 * z**4 * math.sin(x)

    indices, outcomes = indices_of(ishigami, inputs, 1024)
    first, total = orders(indices)
    assert first == pytest.approx([0.3139, 0.4424, 0.0], abs=0.03)
    assert total == pytest.approx([0.5576, 0.4424, 0.2437], abs=0.04)
    assert outcomes.mean() == pytest.approx(3.5, abs=0.05)
    for index, truth in zip(indices, (0.3139, 0.4424, 0.0), strict=True):
        assert index.first_order.ci95 is not None
        assert index.first_order.ci95[0] <= truth <= index.first_order.ci95[1]


def test_of_a_sum_every_share_is_that_of_its_variance() -> None:
    inputs = variables(3, 0.0, 1.0)
    weights = dict(zip(inputs, (1.0, 2.0, 4.0), strict=True))
    indices, _ = indices_of(lambda at: sum(weights[name] * x for name, x in at.items()), inputs, 512)
    shares = [w**2 / 21 for w in weights.values()]
    first, total = orders(indices)
    assert first == pytest.approx(shares, abs=0.03)
    assert total == pytest.approx(shares, abs=0.03)


@pytest.mark.parametrize("samples", [0, 7, 100, 8192])
def test_samples_are_powers_of_two(samples: int) -> None:
    with pytest.raises(InputError, match="a power of 2"):
        indices_of(lambda at: 0.0, variables(1), samples)


def test_a_constant_has_no_indices() -> None:
    with pytest.raises(InputError, match="nothing changes"):
        indices_of(lambda at: 1.0, variables(2), 8)


def test_the_operators_make_up_the_pass() -> None:
    variant = AdjustableVariant(drafting_variant(small_scenario({"hardware.tensor_parallel": 2})))
    before, factors = variant.variant.prices, dict.fromkeys(KERNELS, 1.5)
    after = variant.prices(factors)
    for name in (
        "target_tokens",
        "target_comm",
        "target_head",
        "attention",
        "draft_tokens",
        "draft_attention",
    ):
        assert getattr(after, name) == pytest.approx(1.5 * getattr(before, name)), name
    assert after.sample == pytest.approx(1.5 * before.sample)
    alone = variant.prices({"draft_gpu": 2.0})
    assert np.array_equal(alone.target_tokens, before.target_tokens)
    assert alone.draft_tokens == pytest.approx(2 * before.draft_tokens)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "draft_step_s"),
        (GROUPS, "per_sequence_s"),
        (
            {"engine.preset": "vllm-0.14-sync", "speculation": [{"name": "n", "method": "ngram"}]},
            "lookup_step_s",
        ),
        (
            {"engine.preset": "sglang-0.5", "speculation": [{"name": "n", "method": "ngram"}]},
            "lookup_per_sequence_s",
        ),
    ],
)
def test_nothing_is_turned_by_nominal_values(changes: dict[str, Any], message: str) -> None:
    scenario = small_scenario(SMALL | changes)
    variant = AdjustableVariant(drafting_variant(scenario))
    nominal = {
        uncertain_input.parameter: uncertain_input.nominal
        for uncertain_input in inputs_of(scenario, variant.variant)
    }
    assert message in nominal
    assert ("lookup" in message) == any(parameter.startswith("lookup") for parameter in nominal)
    turned = variant.adjusted(nominal)
    assert turned.prices is variant.variant.prices
    assert turned.settings == variant.variant.settings


@pytest.mark.parametrize(
    ("parameter", "value", "setting"),
    [
        ("alpha", 0.55, "speculation.eagle3.acceptance.alpha=0.55"),
        ("step_s", 0.002, "engine.host.step_s=0.002"),
        ("draft_pass_s", 0.001, "engine.host.draft_pass_s=0.001"),
        ("prompt_tokens", 1.3, "workload.prompt_tokens.tokens=130"),
        ("output_tokens", 0.5, "workload.output_tokens.tokens=20"),
    ],
)
def test_a_knob_does_what_the_scenario_would(parameter: str, value: float, setting: str) -> None:
    path, _, text = setting.partition("=")
    fields = SMALL | {"engine.preset": "vllm-0.14"}  # the drafter's passes take the host's time there
    scenario = small_scenario(fields)
    runs = SensitivityRuns(scenario, "eagle3")
    (uncertain_input,) = (
        uncertain
        for uncertain in inputs_of(scenario, runs.variants()[1].variant)
        if uncertain.parameter == parameter
    )
    changed = SensitivityRuns(small_scenario(fields | {path: json.loads(text)}), "eagle3")
    assert runs.outcome({uncertain_input: value}) == changed.outcome({}) != runs.outcome({})


def test_the_base_is_what_simulate_finds() -> None:
    result = simulate(small_scenario(SMALL | {"run.replications": 3}))
    speedup = result.comparison["eagle3"].ratios["throughput_speedup"]
    assert speedup is not None
    assert tornado(SCENARIO).base.value == pytest.approx(speedup.value, rel=1e-4)


def bar_of(result: Tornado, name: str) -> Bar:
    return next(bar for bar in result.bars if bar.input.name == name)


def ends(bar: Bar) -> tuple[float, float]:
    assert bar.at_low is not None
    assert bar.at_high is not None
    return bar.at_low.value, bar.at_high.value


def test_a_tornado_is_widest_on_top_and_points_the_right_way() -> None:
    result = tornado(SCENARIO)
    swings = [bar.swing(result.base.value) for bar in result.bars]
    assert swings == sorted(swings, reverse=True)
    low, high = ends(bar_of(result, "acceptance α"))
    assert low < result.base.value < high
    low, high = ends(bar_of(result, "speculative step as a whole"))
    assert low > result.base.value > high
    low, high = ends(bar_of(result, "host time per step that drafts"))
    assert low > result.base.value > high


def test_at_the_break_even_the_speedup_is_one() -> None:
    runs = SensitivityRuns(SCENARIO, "eagle3", BREAK_EVEN)
    alphas = runs.outcome({})
    speedups = SensitivityRuns(SCENARIO, "eagle3")
    (alpha,) = (
        uncertain_input
        for uncertain_input in inputs_of(SCENARIO, runs.variants()[1].variant)
        if uncertain_input.parameter == "alpha"
    )
    for replication, at in enumerate(alphas):
        assert 0 < at < 0.7
        assert speedups.outcome({alpha: at})[replication] == pytest.approx(1.0, abs=0.01)
    assert all(bar.input.parameter != "alpha" for bar in tornado(SCENARIO, of=BREAK_EVEN).bars)


def test_sobol_tells_what_to_measure() -> None:
    result = sobol(SCENARIO, samples=16)
    assert {index.input.parameter for index in result.indices[:2]} <= {
        "alpha",
        "step",
        "draft_gpu",
        "draft_pass_s",
    }
    assert result.quantiles["p5"] < result.mean < result.quantiles["p95"]
    assert result.pays_share is not None
    assert 0 <= result.pays_share <= 1
    totals = [index.total_order.value for index in result.indices]
    assert totals == sorted(totals, reverse=True)
    assert sum(index.first_order.value for index in result.indices) == pytest.approx(1.0, abs=0.6)


def test_ranges_hold_the_scenario_and_say_where_they_come_from() -> None:
    for scenario in (SCENARIO, small_scenario({"engine.preset": "sglang-0.5"})):
        for uncertain_input in inputs_of(scenario, drafting_variant(scenario)):
            assert uncertain_input.low < uncertain_input.nominal < uncertain_input.high
            assert uncertain_input.source
    names = {uncertain.parameter for uncertain in inputs_of(SCENARIO, drafting_variant(SCENARIO))}
    assert {"alpha", "linear", "attention", "kv"} <= names
    assert "allreduce" not in names  # one GPU
    assert "experts" not in names
    lookup = [{"name": "lookup", "method": "ngram"}]
    experts = small_scenario(
        {"target.model": "qwen3-30b-a3b", "speculation": lookup, "hardware.tensor_parallel": 2}
    )
    names = {uncertain.parameter for uncertain in inputs_of(experts, drafting_variant(experts))}
    assert {"experts", "allreduce"} <= names
    assert not {"draft_gpu", "draft_pass_s"} & names  # a lookup runs no network


def test_host_times_have_the_interval_of_their_fit_while_they_are_the_fitted_ones() -> None:
    for changes, fitted in (({}, True), ({"engine.host.step_s": 1e-4}, False)):
        scenario = small_scenario({"engine.preset": "sglang-0.5", **changes})
        (uncertain_input,) = (
            uncertain
            for uncertain in inputs_of(scenario, drafting_variant(scenario))
            if uncertain.parameter == "step_s"
        )
        assert ("fit to published runs" in uncertain_input.source) == fitted
        assert fitted or (uncertain_input.low, uncertain_input.high) == (5e-5, 2e-4)


def test_a_field_of_the_scenario_can_be_uncertain_too() -> None:
    (clients,) = inputs_from(["workload.arrivals.concurrency=2:12"], SCENARIO)
    assert (clients.nominal, clients.integer) == (8, True)
    result = tornado(SCENARIO, inputs=[clients])
    low, high = ends(bar_of(result, "workload.arrivals.concurrency"))
    assert low > high  # speculation gains less where more work together
    (alpha,) = inputs_from(["speculation.eagle3.acceptance.alpha=0.1:0.9"], SCENARIO)
    assert [
        bar.input for bar in tornado(SCENARIO, inputs=[alpha]).bars if "acceptance" in bar.input.name
    ] == [alpha]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("workload.requests", "is no range"),
        ("workload.requests=a:b", "is no range"),
        ("workload.requests=30:20", "is no range"),
        ("target.model=1:2", "holds no number"),
        ("workload.nothing.there=1:2", "holds no number"),
        ("speculation.nobody.draft_length=1:2", "holds no number"),
    ],
)
def test_ranges_that_are_none_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        inputs_from([text], SCENARIO)


def ask(scenario: Scenario = SCENARIO, **question: Any) -> None:
    tornado(scenario, **question)


def test_questions_without_an_answer_are_refused() -> None:
    with pytest.raises(InputError, match="unknown variant"):
        ask(variant="eagle4")
    with pytest.raises(InputError, match="unknown answer, did you mean 'speedup'"):
        ask(of="speed")
    with pytest.raises(InputError, match="nothing to compare"):
        ask(small_scenario({**SMALL, "speculation": []}))
    twice = inputs_from(["workload.arrivals.concurrency=2:12"] * 2, SCENARIO)
    with pytest.raises(InputError, match="varies twice"):
        ask(inputs=twice)
    flooded = {"workload.arrivals": {"kind": "poisson", "rate_per_s": 500.0}, "workload.requests": 400}
    with pytest.raises(InputError, match="cannot serve the rate"):
        ask(small_scenario({**SMALL, **flooded, "engine.max_num_seqs": 2}))


def run(*arguments: str) -> Any:
    flags = "--model llama-3.1-8b-instruct --method eagle3 --concurrency 4 --set workload.requests=40".split()
    return CliRunner().invoke(decodesim, ["sensitivity", *flags, *arguments], env={"COLUMNS": "140"})


def test_the_command_prints_and_writes_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = run("--sobol", "8", "--html", str(page))
    assert done.exit_code == 0, done.output
    assert "→ speedup " in done.stdout
    assert "all together: " in done.stdout
    assert "acceptance α, 0.65 to 0.75: assumed ± 0.05" in done.stdout
    text = page.read_text("utf-8")
    assert text.count('class="plot"') == 2
    assert "held-out shapes" in text


def test_json_is_one_document() -> None:
    document = json.loads(run("--json", "--of", "break_even_alpha").stdout)
    assert document["schema"] == "decodesim/sensitivity-1"
    assert document["together"] is None
    assert all(entry["first_order"] is None for entry in document["inputs"])
    assert 0 < document["base"]["value"] < 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--sobol", "100"), "--sobol: is no number of samples (got 100), a power of 2"),
        (("--html", "/nowhere/at/all.html"), "cannot be written: its folder is not there"),
        (("--arm", "medusa"), "unknown variant"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[str, ...], message: str) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert message in done.stderr
