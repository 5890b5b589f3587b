"""Questions to a scenario that was read: one of its variants, acceptance that is assumed, other traffic."""

from __future__ import annotations

from simulator.errors import InputError, Problem, unknown_name
from simulator.scenario.acceptance import AcceptanceFixed
from simulator.scenario.basis import ASSUMED, GIVEN, MEASURED
from simulator.scenario.schema import Scenario
from simulator.scenario.speculation import Variant


def chosen_variant(scenario: Scenario, name: str | None, purpose: str) -> Variant:
    """Return the speculative variant of that name, or the first for None.

    Raises InputError where there is none, so that there is nothing to `purpose`.
    """
    names = [entry.name for entry in scenario.speculation]
    if not names:
        message = f"is empty, so there is nothing to {purpose}"
        raise InputError(Problem(field="speculation", message=message, allowed="one variant or more"))
    if name is not None and name not in names:
        raise InputError(unknown_name("variant", name, names, field="arm"))
    return scenario.variant(names[0] if name is None else name)


def acceptance_basis(scenario: Scenario, name: str) -> str:
    """Return what the acceptance of a variant rests on: one of the words of `scenario/basis.py`."""
    own = "acceptance" in scenario.variant(name).model_fields_set
    drafting = [entry for entry in scenario.workload.traffic_classes if entry.drafts]
    if not own and any(name not in entry.acceptance for entry in drafting):
        return ASSUMED
    return MEASURED if name in scenario.measured else GIVEN


def given_acceptance(scenario: Scenario, name: str) -> str:
    """Return the acceptance of a variant in a few words: `α is 0.70`, `2.4 tokens a round at K 3`."""
    acceptance = scenario.variant(name).acceptance
    alpha = getattr(acceptance, "alpha", None)
    if alpha is not None:
        return f"α is {alpha:.2f}"
    length = getattr(acceptance, "mean_acceptance_length", None)
    if length is not None:
        return f"a round yields {length:.2f} tokens at K {acceptance.at_draft_length}"  # type: ignore[union-attr]
    if isinstance(acceptance, AcceptanceFixed):
        return f"{acceptance.rate:.0%} of the drafts are accepted"
    return f"acceptance is as given ({acceptance.model})"


def assumed_acceptance(scenario: Scenario) -> str | None:
    """Return a note on the variants whose acceptance is assumed because none is given; None where none is."""
    names = [variant.name for variant in scenario.speculation]
    assumed = [name for name in names if acceptance_basis(scenario, name) == ASSUMED]
    return f"acceptance assumed (α 0.7), not measured: {', '.join(assumed)}" if assumed else None


def with_workload(scenario: Scenario, **changes: object) -> Scenario:
    """Return the scenario with fields of its workload changed."""
    return scenario.model_copy(update={"workload": scenario.workload.model_copy(update=changes)})
