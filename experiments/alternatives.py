"""Scenarios that differ by `--set` paths, for what-ifs and for uncertain inputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simulator.errors import InputError, Problem
from simulator.scenario import PLAIN

if TYPE_CHECKING:
    from simulator.scenario import Scenario

_SAME_KERNELS = ("engine.host.", "slo", "name")
"""Fields that do not change what the GPU computes in a step."""


@dataclass(frozen=True)
class Alternative:
    """A scenario that differs by `settings`, each `path=value`; `name` is what tables call it."""

    name: str
    settings: tuple[str, ...]

    def runs_the_same_kernels(self, variant: str) -> bool:
        """Whether equal steps of this variant take the same GPU time, so that the cost model's error is
        shared.

        Settings of speculation do not affect plain decoding.
        """
        paths = [setting.partition("=")[0].strip() for setting in self.settings]
        unrelated_sections = ("speculation",) if variant == PLAIN else ()
        return all(
            path.startswith((*_SAME_KERNELS, *unrelated_sections)) or ".acceptance" in path for path in paths
        )


def alternatives_of(texts: Iterable[Sequence[str]]) -> tuple[Alternative, ...]:
    """One alternative per list of settings, named after its settings.

    Raises InputError where two are the same, or one sets nothing.
    """
    alternatives: dict[str, Alternative] = {}
    for settings in texts:
        set_fields = tuple(setting.strip() for setting in settings if setting.strip())
        name = ", ".join(_short_text(setting) for setting in set_fields)
        if not set_fields:
            message, allowed = "sets nothing", "path=value, for example hardware.gpu=h200-sxm"
            raise InputError(Problem(field="alternative", message=message, allowed=allowed))
        if name in alternatives:
            message = "is listed twice"
            raise InputError(Problem(field="alternative", value=name, message=message, allowed="each once"))
        alternatives[name] = Alternative(name, set_fields)
    return tuple(alternatives.values())


def scenario_with(scenario: Scenario, settings: Sequence[str]) -> Scenario:
    """The scenario with fields set, as `--set` would. Raises InputError.

    Values that were derived when the scenario was read are derived again, unless they are set: the
    catalogue's drafter follows the target, and a drafter that is spread over all GPUs follows their number.
    """
    from simulator.scenario import scenario_from_data

    data: dict[str, Any] = scenario.model_dump(mode="json")
    paths = {setting.partition("=")[0].strip() for setting in settings}
    ranks = scenario.hardware.tensor_parallel
    for variant in data["speculation"]:
        if f"speculation.{variant['name']}.draft" in scenario.taken:
            del variant["draft"]
        if "hardware.tensor_parallel" in paths and variant["draft_tensor_parallel"] == ranks > 1:
            variant["draft_tensor_parallel"] = None
    return scenario_from_data(data, scenario.base_dir, settings)


def _short_text(setting: str) -> str:
    """`gpu=h200-sxm` of `hardware.gpu=h200-sxm`; variants and what is of several kinds keep their name."""
    path, _, value = setting.partition("=")
    parts = path.strip().split(".")
    shown_parts = parts[-1:] if parts[0] not in ("speculation", "workload") else parts[1:]
    return f"{'.'.join(shown_parts)}={value.strip()}"
