"""Another scenario by `--set` paths: what a what-if compares with, and what uncertain inputs become."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simulator.errors import InputError, Problem
from simulator.scenario import PLAIN

if TYPE_CHECKING:
    from simulator.scenario import Scenario

_SAME_KERNELS = ("engine.host.", "slo", "name")
"""Fields that change nothing that the GPU computes in a step."""


@dataclass(frozen=True)
class Alternative:
    """A scenario that differs by `settings`, each `path=value`; `name` is what tables call it."""

    name: str
    settings: tuple[str, ...]

    def runs_the_same_kernels(self, variant: str) -> bool:
        """Whether steps of the same shape take the GPU of this variant as long as before, so that the
        cost model
        errs alike. What concerns speculation does not reach plain decoding.
        """
        paths = [setting.partition("=")[0].strip() for setting in self.settings]
        of_others = ("speculation",) if variant == PLAIN else ()
        return all(path.startswith((*_SAME_KERNELS, *of_others)) or ".acceptance" in path for path in paths)


def alternatives_of(texts: Iterable[Sequence[str]]) -> tuple[Alternative, ...]:
    """One alternative per list of settings, named by what it sets. Raises InputError where two are the same,
    or one sets nothing."""
    found: dict[str, Alternative] = {}
    for settings in texts:
        given = tuple(setting.strip() for setting in settings if setting.strip())
        name = ", ".join(_brief(setting) for setting in given)
        if not given:
            message, allowed = "sets nothing", "path=value, for example hardware.gpu=h200-sxm"
            raise InputError(Problem(field="alternative", message=message, allowed=allowed))
        if name in found:
            message = "is asked for twice"
            raise InputError(Problem(field="alternative", value=name, message=message, allowed="each once"))
        found[name] = Alternative(name, given)
    return tuple(found.values())


def scenario_with(scenario: Scenario, settings: Sequence[str]) -> Scenario:
    """The scenario with fields set, as `--set` would. Raises InputError.

    What was filled in when it was read is filled in anew: the catalogue's drafter follows another target, and
    a drafter that is spread over all GPUs follows their number, unless it is set too.
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


def _brief(setting: str) -> str:
    """`gpu=h200-sxm` of `hardware.gpu=h200-sxm`; variants and what is of several kinds keep their name."""
    path, _, value = setting.partition("=")
    parts = path.strip().split(".")
    kept = parts[-1:] if parts[0] not in ("speculation", "workload") else parts[1:]
    return f"{'.'.join(kept)}={value.strip()}"
