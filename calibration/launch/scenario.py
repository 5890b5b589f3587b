"""A scenario from a launch configuration and a few flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calibration.launch.launch import Launch
from simulator.errors import InputError, Problem
from simulator.scenario import Scenario, assumed_acceptance, scenario_from_data
from simulator.scenario.flags import with_flags

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
        **launch.scenario,
        "hardware": {"gpu": DEFAULT_GPU, **launch.scenario["hardware"]},
        "workload": {"arrivals": {"kind": "closed", "concurrency": DEFAULT_CLIENTS}},
    }
    given = {name for name, value in flags.items() if value is not None}
    data = with_flags(data, flags)
    if not data["target"].get("model"):
        message = "is missing: the configuration does not name the served model"
        raise InputError(Problem(origin, field="model", message=message, allowed="--model"))
    scenario = scenario_from_data(data, base_dir, overrides, origin)
    assumed = [
        f"{text} is assumed: give {flag}"
        for name, text, flag in (
            ("gpu", DEFAULT_GPU, "--gpu"),
            ("concurrency", f"a load of {DEFAULT_CLIENTS} clients", "--concurrency"),
        )
        if name not in given
    ]
    acceptance = assumed_acceptance(scenario)
    return scenario, (*assumed, *([acceptance] if acceptance else []), *launch.notes)
