"""A scenario with the acceptance that was measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from simulator.acceptance.files import model_from_reading
from simulator.errors import InputError, Problem
from simulator.scenario import Acceptance, Scenario, Variant
from simulator.scenario.acceptance_file import section_of


def with_measured(scenario: Scenario, variant: Variant, reading: Mapping[str, Any]) -> Scenario:
    """The scenario with one variant that has the acceptance of a document of `read`.

    A single draft length becomes that of the measurement. Acceptance of traffic classes is left out, because
    the measurement is of all requests. Raises InputError where the document has no acceptance.
    """
    require_acceptance(reading)
    section = section_of(model_from_reading(reading))
    changes: dict[str, Any] = {"acceptance": TypeAdapter(Acceptance).validate_json(json.dumps(section))}
    length = reading["draft_length"]
    if variant.has_fixed_length and length:
        changes["draft_length"] = length
    workload = scenario.workload
    classes = tuple(entry.model_copy(update={"acceptance": {}}) for entry in workload.classes)
    measured = scenario.model_copy(
        update={
            "speculation": (variant.model_copy(update=changes),),
            "workload": workload.model_copy(update={"classes": classes}),
        }
    )
    return measured.at(scenario.base_dir, measured=frozenset({variant.name}))


def require_acceptance(reading: Mapping[str, Any]) -> None:
    """Raises InputError, which names the files, where the document of `read` has no acceptance."""
    if reading["mean_acceptance_length"] is None:
        files = ", ".join(dict.fromkeys(source["file"] for source in reading["sources"]))
        reason = " ".join(reading["notes"]) or "no acceptance"
        raise InputError(Problem(files or None, message=reason, allowed="files of a run with speculation"))
