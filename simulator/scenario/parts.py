"""Questions to a scenario that was read: one of its variants, acceptance that is assumed, other traffic."""

from __future__ import annotations

from simulator.errors import InputError, Problem, unknown_name
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


def assumed_acceptance(scenario: Scenario) -> str | None:
    """Return a note on the variants whose acceptance is assumed because none is given; None where none is."""
    assumed = [
        variant.name for variant in scenario.speculation if "acceptance" not in variant.model_fields_set
    ]
    return f"acceptance assumed (α 0.7), not measured: {', '.join(assumed)}" if assumed else None


def with_workload(scenario: Scenario, **changes: object) -> Scenario:
    """Return the scenario with fields of its workload changed."""
    return scenario.model_copy(update={"workload": scenario.workload.model_copy(update=changes)})
