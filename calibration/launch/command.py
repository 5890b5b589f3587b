"""What the writers of several engines share: a command line, and fields that engines have no option for."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from calibration.launch.launch import Unstated
from calibration.launch.names import own_weights
from simulator.scenario import Scenario, Variant


def command_line(words: Sequence[str], options: Mapping[str, str | None]) -> str:
    """A command for a shell, one option a line; an option without a value is a switch."""
    texts = (name if value is None else f"{name} {shlex.quote(value)}" for name, value in options.items())
    return " \\\n  ".join([shlex.join(words), *texts])


def quantises_on_load(scenario: Scenario, unstated: list[Unstated]) -> bool:
    """Whether the engine makes FP8 weights of the served checkpoint. Other weights than the checkpoint's join
    `unstated`.
    """
    if scenario.target.weights == "fp8" and own_weights(scenario) == "bf16":
        return True
    unstated += other_weights(scenario)
    return False


def other_weights(scenario: Scenario) -> Iterator[Unstated]:
    """The weight format, where it is not that of the checkpoint with the served name."""
    own, weights = own_weights(scenario), scenario.target.weights
    if weights not in (None, own):
        yield Unstated("target.weights", f"serve a checkpoint in {weights}; that of the name is in {own}")


def fixed_drafting(scenario: Scenario, variant: Variant, engine: str) -> Iterator[Unstated]:
    """Fields of a variant for which an engine has its own way: GPUs of the drafter, its context, greedy
    drafts.
    """
    if variant.draft_tensor_parallel not in (None, scenario.hardware.tensor_parallel):
        yield Unstated("draft_tensor_parallel", f"{engine} shares the drafter over all GPUs")
    if variant.max_context_tokens is not None:
        yield Unstated("max_context_tokens", f"{engine} drafts on beyond the drafter's context")
    if variant.draft_sampling == "sampled":
        yield Unstated("draft_sampling", f"{engine} drafts the most probable tokens")
