"""The models that a scenario names: its target and the drafters of its variants."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from simulator.models.catalogue import load_drafter, load_model
from simulator.models.drafter import DrafterModel
from simulator.models.model import Model
from simulator.models.own_drafter import KINDS, OwnDrafter, own_drafter
from simulator.scenario.schema import Scenario
from simulator.scenario.speculation import Variant
from simulator.speculation import method


def models_of(scenario: Scenario, variant: Variant | None) -> tuple[Model, DrafterModel | None]:
    """Return the target in the weights asked for, and the drafter of a variant; None where no network drafts.

    `variant` is None for plain decoding. Raises InputError for a model that is unknown or cannot be used.
    """
    drafting = (
        (None, None, None) if variant is None else (variant.method, variant.draft, own_options(variant))
    )
    return _models(scenario.target.model, scenario.target.weights, *drafting, scenario.base_dir)


def own_options(variant: Variant) -> OwnDrafter:
    """Return what a variant says of a drafter that is made of the target."""
    plan = variant.tree_plan
    heads = variant.max_draft_length if plan is None else plan.depth
    return OwnDrafter(heads, variant.draft_layers, variant.draft_window_tokens)


@lru_cache(maxsize=64)
def _models(
    name: str,
    weights: str | None,
    method_name: str | None,
    draft: str | None,
    options: OwnDrafter | None,
    base_dir: Path,
) -> tuple[Model, DrafterModel | None]:
    target = load_model(name, base_dir)
    if weights is not None:
        target = target.with_weights(weights)
    drafter_kind = None if method_name is None else method(method_name).drafter
    if drafter_kind is None:
        return target, None
    if drafter_kind in KINDS:
        assert options is not None
        return target, own_drafter(target, drafter_kind, options)
    return target, load_drafter(draft, target, drafter_kind, base_dir)
