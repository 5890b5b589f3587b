"""Scheduler rules, one file each: who runs in the next step.
A new rule is a new file here that calls `register`.

A rule is data that the compiled step reads; one that needs more decides in Python at step boundaries, and
then the pipeline runs. `engine.scheduler` of a scenario names the rule, else the serving-engine preset does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simulator.registry import Registry
from simulator.step.state import State

BoundaryHook = Callable[[State, int], None]
"""Called before each compose with the engine's state and the time in ns, once all who arrived are waiting;
may reorder the waiting queue or change K by batch."""


@dataclass(frozen=True)
class Rule:
    """How a serving engine fills a step."""

    name: str
    source: str
    mixes_prefill: bool
    """Decodes and prefill chunks share a step; otherwise prefill goes first and alone, and decodes wait."""
    at_step_boundary: BoundaryHook | None = None


_RULES: Registry[Rule] = Registry("scheduler rule", "engine.scheduler", __name__, __path__)

register, registered, rules, scheduler_rule = _RULES.register, _RULES.registered, _RULES.all, _RULES.find
