"""Scheduler rules, one file each: who runs in the next step.
A new rule is a new file here that calls `register`.

A rule is data that the compiled step reads; one that needs more decides in Python at step boundaries, and
then the pipeline runs. `engine.scheduler` of a scenario names the rule, else the serving-engine preset does.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module

from simulator.errors import InputError, unknown_name
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


_REGISTERED: dict[str, Rule] = {}


def register(rule: Rule) -> Rule:
    """Make a rule known by its name. Raises ValueError when the name is taken by another."""
    if _REGISTERED.setdefault(rule.name, rule) != rule:
        raise ValueError(f"a scheduler rule named {rule.name!r} is registered already")
    return rule


@contextmanager
def registered(rule: Rule) -> Iterator[Rule]:
    """Make a rule known for a while: for trying one out."""
    rules()
    register(rule)
    try:
        yield rule
    finally:
        del _REGISTERED[rule.name]


@cache
def _load() -> None:
    for module in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")


def rules() -> Mapping[str, Rule]:
    """Return all rules by name."""
    _load()
    return dict(sorted(_REGISTERED.items()))


def scheduler_rule(name: str) -> Rule:
    """Return the rule of that name; InputError lists the known ones."""
    known = rules()
    if name not in known:
        raise InputError(unknown_name("scheduler rule", name, known, field="engine.scheduler"))
    return known[name]
