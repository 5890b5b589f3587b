"""The free parameters of the presets: which there are, who shares them, and candidates as preset files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from calibration.validation.fit.split import BEGINNINGS, STEPS
from calibration.validation.trials.trial import Trial
from simulator.engines.preset import SCHEMA, Preset
from simulator.engines.presets import presets
from simulator.scenario import Scenario

Values = Mapping[str, float]
"""Parameter → seconds."""


@dataclass(frozen=True)
class Parameter:
    """One number, in seconds, of one preset or of several that share it.

    `leaf` is its field in the `host` of the preset's file. `typical_s` scales its logarithm near zero: a
    change of `typical_s` is a step of one. The fit starts at `start_s`, whatever ships: what was assumed
    before it. Rows of `quantities` tell it, and no others.
    """

    name: str
    presets: tuple[str, ...]
    leaf: str
    typical_s: float
    start_s: float
    what: str
    quantities: tuple[str, ...] = STEPS

    def of(self, preset: Preset) -> float:
        """Its value in a preset."""
        return float(getattr(preset.host, self.leaf))


_QUEUED = ("sglang-0.5", "trtllm-1")
_SYNCHRONOUS = ("vllm-0.10", "vllm-0.14-sync")
_OVERLAPPED = ("sglang-0.5", "trtllm-1", "vllm-0.14", "vllm-0.33")
_SERVERS = (*_OVERLAPPED, *_SYNCHRONOUS)
PARAMETERS = (  # the way of a request to the front end is none: it tells where the client was
    Parameter("sync step", _SYNCHRONOUS, "step_s", 3e-4, 1e-3, "host of a synchronous step"),
    Parameter("sync sequence", _SYNCHRONOUS, "per_sequence_s", 5e-6, 8e-6, "and of each sequence in it"),
    Parameter("sync draft pass", ("vllm-0.10",), "draft_pass_s", 2e-4, 4.2e-4, "host of a drafter's pass"),
    Parameter("overlapped step", _QUEUED, "step_s", 1e-4, 3e-4, "what an overlapped step leaves exposed"),
    Parameter(
        "overlapped sequence",
        _OVERLAPPED,
        "per_sequence_s",
        2e-6,
        4e-6,
        "and each sequence in it",
    ),
    Parameter(
        "hidden step",
        ("sglang-0.5",),
        "hidden_step_s",
        3e-4,
        1e-3,
        "host work that shows when it drafts",
    ),
    Parameter("graph draft pass", ("sglang-0.5",), "draft_pass_s", 1e-4, 0.0, "top-k and sampling of a pass"),
    Parameter(
        "request work",
        _SERVERS,
        "request_s",
        1e-3,
        2e-3,
        "front end, for a request",
        BEGINNINGS,
    ),
)
BLOCKS = tuple(dict.fromkeys(one.quantities for one in PARAMETERS))
"""Quantities that are solved for together: what tells one block of parameters says nothing of another."""


ALSO_USED = {"arxiv:2601.11580": ("cost_share",)}
"""Source → quantities that a constant which is no parameter of the fit was set by: the draft pass of
`vllm-0.10`. They are no independent evidence.
"""


def start() -> dict[str, float]:
    """Where the fit starts."""
    return {one.name: one.start_s for one in PARAMETERS}


def candidate_presets(values: Values, folder: Path) -> dict[str, str]:
    """Preset → path of a file that has these values in place of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    for name in presets():
        host = {one.leaf: values[one.name] for one in PARAMETERS if name in one.presets}
        path = folder / f"{name}.json"
        path.write_text(json.dumps({"schema": SCHEMA, "inherits": name, "host": host}), "utf-8")
        paths[name] = str(path)
    return paths


def with_presets(trials: Sequence[Trial], paths: Mapping[str, str]) -> list[Trial]:
    """The trials on the candidate presets."""

    def moved(scenario: Scenario | None) -> Scenario | None:
        if scenario is None or scenario.engine.preset not in paths:
            return scenario
        engine = scenario.engine.model_copy(update={"preset": paths[scenario.engine.preset]})
        return scenario.model_copy(update={"engine": engine}).at(scenario.base_dir)

    return [replace(trial, plain=moved(trial.plain), spec=moved(trial.spec)) for trial in trials]


def presets_of(trial: Trial) -> frozenset[str]:
    """The presets that a trial runs on."""
    return frozenset(one.engine.preset for one in (trial.plain, trial.spec) if one is not None)
