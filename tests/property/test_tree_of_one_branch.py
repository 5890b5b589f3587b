"""A tree of branching 1 is a chain: the same run on every serving engine, also where KV blocks run out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from simulator.engines.presets import presets
from simulator.runs.variant import CompiledVariant
from tests.runs import BUSY, NO_FRONT_END, differences, drafting_variant, run, small_scenario

ONE_BRANCH = {"parents": [-1, 0, 1, 2]}
FEW_TOKENS = 2_500


def variant(preset: str, total_tokens: int | None = None, **entry: Any) -> CompiledVariant:
    """The drafting variant of a busy scenario, with KV blocks for `total_tokens`, or as many as there are."""
    changes = {f"speculation.eagle3.{name}": value for name, value in entry.items()}
    compiled = drafting_variant(small_scenario({**BUSY, **NO_FRONT_END, "engine.preset": preset, **changes}))
    if total_tokens is None:
        return compiled
    blocks = total_tokens // compiled.settings.block_tokens
    return replace(compiled, settings=replace(compiled.settings, total_blocks=blocks))


@pytest.mark.parametrize("preset", presets())
@pytest.mark.parametrize("total_tokens", [None, FEW_TOKENS])
def test_a_tree_of_one_branch_is_a_chain(preset: str, total_tokens: int | None) -> None:
    chain, tree = run(variant(preset, total_tokens)), run(variant(preset, total_tokens, tree=ONE_BRANCH))
    assert not differences(chain, tree)


def test_the_few_blocks_are_felt() -> None:
    assert run(variant("vllm-0.33", FEW_TOKENS)).preemptions.sum() > 0


def test_sglang_alone_reserves_for_two_sets_of_rows() -> None:
    """A tree of 3 levels, 2 wide: 6 rows in the drafter's passes, 7 to verify."""
    wide = {"parents": [-1, 0, 0, 1, 2, 3, 4]}
    ahead = {name: variant(name, tree=wide).settings.lookahead_tokens for name in ("vllm-0.33", "sglang-0.5")}
    assert ahead == {"vllm-0.33": 6, "sglang-0.5": 14}
