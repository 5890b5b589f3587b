"""What a variant drafts: its method with the tree or window that the scenario gives, and its acceptance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from simulator.acceptance import AcceptanceModel, TreeAcceptance, acceptance_model, planned_tree
from simulator.errors import InputError, Problem
from simulator.scenario import GoodputPolicy, Variant
from simulator.scenario.acceptance import Acceptance
from simulator.speculation import Method, method
from simulator.speculation.tree_shape import LookaheadShape
from simulator.trees import DraftTree, GrowthRule


def drafting_of(variant: Variant, base_dir: Path) -> Method:
    """Return the method of a variant, in the shape that it drafts.

    Raises InputError for a tree that the method cannot draft.
    """
    made = method(variant.method)
    if isinstance(made.shape, LookaheadShape):
        return replace(made, shape=replace(made.shape, window=variant.window))
    tree = _tree_of(variant, base_dir)
    if tree is None:
        return made
    field = f"speculation.{variant.name}"
    if not made.drafts_trees:
        message = f"cannot be drafted by {made.name}"
        raise InputError(Problem(field=f"{field}.tree", message=message, allowed="null: a chain"))
    if isinstance(variant.draft_length, GoodputPolicy):
        raise InputError(
            Problem(
                field=f"{field}.draft_length",
                message="chooses among chains, but the variant drafts a tree",
                allowed="a number, or rows [low, high, K] whose K turns the tree off where it is 0",
            )
        )
    return made.with_tree(tree)


def variant_acceptance(variant: Variant, base_dir: Path, entry: Acceptance | None = None) -> AcceptanceModel:
    """Return the acceptance of a variant, or what `entry` says of one of its classes, as its tree has it."""
    tree = _tree_of(variant, base_dir)
    of_tree: Callable[[AcceptanceModel], AcceptanceModel] | None = None
    if tree is not None:
        of_tree = lambda model: TreeAcceptance(model, tree)  # noqa: E731
    stated = variant.acceptance if entry is None else entry
    made = acceptance_model(stated, variant.max_draft_length, base_dir, of_tree)
    return made if of_tree is None else of_tree(made)


def _tree_of(variant: Variant, base_dir: Path) -> DraftTree | GrowthRule | None:
    return None if variant.tree_plan is None else _planned(variant, base_dir)


@lru_cache(maxsize=256)
def _planned(variant: Variant, base_dir: Path) -> DraftTree | GrowthRule:
    plan = variant.tree_plan
    assert plan is not None
    return planned_tree(plan, lambda: acceptance_model(variant.acceptance, plan.depth, base_dir))
