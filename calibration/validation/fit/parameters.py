"""The free parameters of the presets, the presets that share them, and preset files with candidate values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from calibration.validation.fit.split import BEGINNINGS, STEPS
from calibration.validation.reconstruction.published_run import PublishedRun
from simulator.engines.preset import SCHEMA, Preset
from simulator.engines.presets import presets
from simulator.scenario import Scenario

Values = Mapping[str, float]
"""Parameter → seconds."""


@dataclass(frozen=True)
class PresetParameter:
    """One free value in seconds, of one preset or shared by several.

    `preset_field`: its field in the `host` object of the preset's file. `typical_s` sets the scale of the
    fit: near zero, a change by `typical_s` is a step of one. The fit starts at `start_s`, the value assumed
    before any fit, whatever the presets hold. Only rows of `quantities` constrain it.
    """

    name: str
    presets: tuple[str, ...]
    preset_field: str
    typical_s: float
    start_s: float
    description: str
    quantities: tuple[str, ...] = STEPS

    def of(self, preset: Preset) -> float:
        """Its value in a preset."""
        return float(getattr(preset.host, self.preset_field))


_QUEUED = ("sglang-0.5", "trtllm-1")
_SYNCHRONOUS = ("vllm-0.10", "vllm-0.14-sync")
_OVERLAPPED = ("sglang-0.5", "trtllm-1", "vllm-0.14", "vllm-0.33")
_SERVERS = (*_OVERLAPPED, *_SYNCHRONOUS)
PARAMETERS = (  # the network time to the front end is not fitted: it depends on where the client was
    PresetParameter("sync step", _SYNCHRONOUS, "step_s", 3e-4, 1e-3, "host of a synchronous step"),
    PresetParameter(
        "sync sequence", _SYNCHRONOUS, "per_sequence_s", 5e-6, 8e-6, "and of each sequence in it"
    ),
    PresetParameter(
        "sync draft pass", ("vllm-0.10",), "draft_pass_s", 2e-4, 4.2e-4, "host of a drafter's pass"
    ),
    PresetParameter(
        "overlapped step", _QUEUED, "step_s", 1e-4, 3e-4, "what an overlapped step leaves exposed"
    ),
    PresetParameter(
        "overlapped sequence",
        _OVERLAPPED,
        "per_sequence_s",
        2e-6,
        4e-6,
        "and each sequence in it",
    ),
    PresetParameter(
        "hidden step",
        ("sglang-0.5",),
        "hidden_step_s",
        3e-4,
        1e-3,
        "host work that shows when it drafts",
    ),
    PresetParameter(
        "graph draft pass", ("sglang-0.5",), "draft_pass_s", 1e-4, 0.0, "top-k and sampling of a pass"
    ),
    PresetParameter(
        "request work",
        _SERVERS,
        "request_s",
        1e-3,
        2e-3,
        "front end, for a request",
        BEGINNINGS,
    ),
)
BLOCKS = tuple(dict.fromkeys(parameter.quantities for parameter in PARAMETERS))
"""Quantities whose parameters are solved for together; the rows of one block do not constrain another."""


ALSO_USED = {"arxiv:2601.11580": ("cost_share",)}
"""Source → quantities that set a constant outside the fit, the draft pass of `vllm-0.10`. They are not
independent evidence.
"""


def start() -> dict[str, float]:
    """The start values of the fit."""
    return {parameter.name: parameter.start_s for parameter in PARAMETERS}


def candidate_presets(values: Values, folder: Path) -> dict[str, str]:
    """Write a file for every preset with these values in place of its own. Returns preset → path."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    for name in presets():
        host = {p.preset_field: values[p.name] for p in PARAMETERS if name in p.presets}
        path = folder / f"{name}.json"
        path.write_text(json.dumps({"schema": SCHEMA, "inherits": name, "host": host}), "utf-8")
        paths[name] = str(path)
    return paths


def with_presets(runs: Sequence[PublishedRun], paths: Mapping[str, str]) -> list[PublishedRun]:
    """The runs on the candidate presets."""

    def on_candidate(scenario: Scenario | None) -> Scenario | None:
        if scenario is None or scenario.engine.preset not in paths:
            return scenario
        engine = scenario.engine.model_copy(update={"preset": paths[scenario.engine.preset]})
        return scenario.model_copy(update={"engine": engine}).at(scenario.base_dir)

    return [replace(run, plain=on_candidate(run.plain), spec=on_candidate(run.spec)) for run in runs]


def presets_of(run: PublishedRun) -> frozenset[str]:
    """The presets that a run runs on."""
    return frozenset(scenario.engine.preset for scenario in (run.plain, run.spec) if scenario is not None)
