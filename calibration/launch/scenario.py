"""A scenario from a launch configuration and a few flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from calibration.launch.launch import Launch
from simulator.document import Document
from simulator.errors import InputError, Problem
from simulator.scenario import Scenario, assumed_acceptance
from simulator.scenario.flag_overrides import set_flags
from simulator.scenario.load import scenario_from_document

DEFAULT_GPU = "h100-sxm"
DEFAULT_CLIENTS = 64


def scenario_from_launch(
    launch: Launch,
    flags: Mapping[str, Any],
    overrides: Sequence[str] = (),
    base_dir: Path = Path("."),
    origin: str | None = None,
) -> tuple[Scenario, tuple[str, ...]]:
    """The scenario of a launch, and notes on what was assumed or left out.

    `flags` are those of `scenario_from_flags`; they take the place of what the launch states. A launch states
    no GPU, no load and no acceptance. Raises InputError.
    """
    data = {
        **deepcopy(dict(launch.scenario)),
        "hardware": {"gpu": DEFAULT_GPU, **launch.scenario["hardware"]},
        "workload": {"arrivals": {"kind": "closed", "concurrency": DEFAULT_CLIENTS}},
    }
    stated_flags = {name for name, value in flags.items() if value is not None}
    document = Document(data, origin)
    set_flags(document, flags)
    if not document.data["target"].get("model"):
        message = "is missing: the configuration does not name the served model"
        raise InputError(Problem(origin, field="model", message=message, allowed="--model"))
    scenario = scenario_from_document(document, base_dir, overrides)
    assumed = [
        f"{text} is assumed: give {flag}"
        for name, text, flag in (
            ("gpu", DEFAULT_GPU, "--gpu"),
            ("concurrency", f"a load of {DEFAULT_CLIENTS} clients", "--concurrency"),
        )
        if name not in stated_flags
    ]
    acceptance = assumed_acceptance(scenario)
    return scenario, (*assumed, *([acceptance] if acceptance else []), *launch.notes)
