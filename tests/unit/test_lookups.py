"""Drafts that are looked up on the host: what a preset says of them is what its steps do."""

from __future__ import annotations

import pytest

from simulator.engines.presets import load_preset
from simulator.runs.variant import CompiledVariant
from tests.runs import run, small_scenario

VARIANTS = [{"name": "lookup", "method": "ngram", "draft_length": 3}, {"name": "eagle3", "method": "eagle3"}]


def variants(preset: str) -> tuple[CompiledVariant, CompiledVariant, CompiledVariant]:
    """Plain decoding, the lookup and a drafter."""
    scenario = small_scenario({"engine.preset": preset, "speculation": VARIANTS})
    plain, lookup, eagle3 = (
        CompiledVariant.compile(scenario, variant) for variant in (None, *scenario.speculation)
    )
    return plain, lookup, eagle3


@pytest.mark.parametrize(
    ("preset", "on_host", "ragged"),
    [
        ("sglang-0.5", True, False),
        ("vllm-0.10", True, True),
        ("vllm-0.14-sync", True, True),
        ("vllm-0.14", False, False),
        ("vllm-0.33", False, False),
        ("trtllm-1", False, False),
    ],
)
def test_look_ups_on_the_host_wait_cost_and_are_padded_as_the_preset_says(
    preset: str, on_host: bool, ragged: bool
) -> None:
    plain, lookup, eagle3 = variants(preset)
    host = load_preset(preset)[0].host
    assert lookup.settings.ragged is ragged
    assert lookup.settings.asynchronous is (plain.settings.asynchronous and not on_host)
    for n in (1, 8):
        cost_s = (host.lookup_step_s + n * host.lookup_per_sequence_s) * on_host
        assert lookup.step_times(n, 500.0)["draft"] == pytest.approx(cost_s, abs=1e-9)
    assert plain.step_times(8, 500.0)["draft"] == 0
    assert eagle3.step_times(8, 500.0)["draft"] > 0


def test_a_scenario_may_have_other_times() -> None:
    times = {"engine.host": {"lookup_step_s": 5e-4, "lookup_per_sequence_s": 1e-5}}
    for preset, cost_s in (("vllm-0.14-sync", 5.8e-4), ("vllm-0.33", 0.0)):
        scenario = small_scenario({"engine.preset": preset, "speculation": VARIANTS, **times})
        lookup = CompiledVariant.compile(scenario, scenario.speculation[0])
        assert lookup.step_times(8, 500.0)["draft"] == pytest.approx(cost_s, abs=1e-9)


@pytest.mark.parametrize("preset", ["sglang-0.5", "vllm-0.14-sync"])
def test_steps_in_which_nobody_drafts_look_nothing_up(preset: str) -> None:
    _, lookup, _ = variants(preset)
    assert lookup.step_times(8, 500.0, 0)["draft"] == 0
    silent = small_scenario(
        {
            "engine.preset": preset,
            "speculation": VARIANTS,
            "workload.classes": [
                {
                    "name": "silent",
                    "share": 1,
                    "prompt_tokens": {"kind": "fixed", "tokens": 64},
                    "drafts": False,
                }
            ],
        }
    )
    record = run(CompiledVariant.compile(silent, silent.speculation[0]))
    assert record.totals["draft_ns"] == 0
    assert record.totals["steps"] > 0


def test_a_class_that_does_not_draft_is_not_looked_up() -> None:
    """Two requests in a step, of which one drafts: one look-up."""
    classes = [
        {"name": "drafts", "share": 0.5, "prompt_tokens": {"kind": "fixed", "tokens": 64}},
        {"name": "silent", "share": 0.5, "prompt_tokens": {"kind": "fixed", "tokens": 64}, "drafts": False},
    ]
    scenario = small_scenario(
        {"engine.preset": "sglang-0.5", "speculation": VARIANTS, "workload.classes": classes}
    )
    both = small_scenario(
        {
            "engine.preset": "sglang-0.5",
            "speculation": VARIANTS,
            "workload.classes": [{**entry, "drafts": True} for entry in classes],
        }
    )
    some, every = (
        run(CompiledVariant.compile(configuration, configuration.speculation[0]))
        for configuration in (scenario, both)
    )
    each_s = load_preset("sglang-0.5")[0].host.lookup_per_sequence_s
    for record in (some, every):
        looked_up = record.totals["draft_ns"] / 1e9 / each_s
        assert looked_up == pytest.approx(record.drafted_tokens.sum() / 3, rel=0.1)
    assert some.totals["draft_ns"] < 0.7 * every.totals["draft_ns"]
