"""Drafts that are looked up on the host: what a preset says of them is what its steps do."""

from __future__ import annotations

import pytest

from simulator.arms import CompiledArm
from simulator.presets import load_preset
from tests.runs import small_scenario

ARMS = [{"name": "lookup", "method": "ngram", "draft_length": 3}, {"name": "eagle3", "method": "eagle3"}]


def arms(preset: str) -> tuple[CompiledArm, CompiledArm, CompiledArm]:
    """Plain decoding, the lookup and a drafter."""
    scenario = small_scenario({"engine.preset": preset, "speculation": ARMS})
    plain, lookup, eagle3 = (CompiledArm.compile(scenario, arm) for arm in (None, *scenario.speculation))
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
    plain, lookup, eagle3 = (arm.settings for arm in arms(preset))
    host = load_preset(preset)[0].host
    assert lookup.ragged is ragged
    assert lookup.asynchronous is (plain.asynchronous and not on_host)
    step_ns = lookup.host_step_ns - plain.host_step_ns
    each_ns = lookup.host_per_sequence_ns - plain.host_per_sequence_ns
    assert step_ns == pytest.approx(1e9 * host.lookup_step_s * on_host, abs=1e-3)
    assert each_ns == pytest.approx(1e9 * host.lookup_per_sequence_s * on_host, abs=1e-3)
    assert (eagle3.host_step_ns, eagle3.host_per_sequence_ns) == (
        plain.host_step_ns,
        plain.host_per_sequence_ns,
    )


def test_a_step_with_look_ups_is_longer_by_what_they_cost() -> None:
    plain, lookup, _ = arms("sglang-0.5")
    eight, one = (lookup.step_times(n, 500.0)["host"] - plain.step_times(n, 500.0)["host"] for n in (8, 1))
    assert eight - one == pytest.approx(7 * load_preset("sglang-0.5")[0].host.lookup_per_sequence_s, rel=0.1)
