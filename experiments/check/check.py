"""`check`: every lint over every variant of a scenario, or over a launch configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from calibration.launch.launch import Launch
from calibration.launch.registry import ENGINES, engine_key, written_version
from calibration.launch.scenario import scenario_from_launch
from calibration.telemetry.reading import SEVERITIES
from experiments.check.lint import Diagnostic
from experiments.check.lints import lints
from experiments.check.subject import Subject
from simulator.errors import InputError
from simulator.scenario import Scenario


def check_scenario(scenario: Scenario) -> list[Diagnostic]:
    """All findings in a scenario."""
    engine, version, data = engine_key(scenario), written_version(scenario), scenario.model_dump(mode="json")
    subjects = [
        Subject(engine, version, data, scenario, variant) for variant in (scenario.speculation or (None,))
    ]
    return findings_of(subjects)


def check_launch(
    launch: Launch, text: str, flags: Mapping[str, Any], origin: str, base_dir: Path = Path(".")
) -> list[Diagnostic]:
    """All findings in a launch configuration; `text` is how it was written.

    `flags` state what a launch does not: GPU, load, version. A load is known only where they give one.
    """
    version = launch.version or ENGINES[launch.engine].newest
    named = re.search(r"\d+(\.\d+)*", flags.get("preset") or "")
    data = {**launch.scenario}
    if flags.get("concurrency") is not None:
        data["workload"] = {"arrivals": {"kind": "closed", "concurrency": int(flags["concurrency"])}}
    subject = Subject(
        engine=launch.engine,
        version=named[0] if named else version,
        data=data,
        settings=launch.settings,
        config=launch.speculation,
        text=text,
        is_launch=True,
    )
    if flags.get("preset"):
        subject.data["engine"]["preset"] = flags["preset"]
    try:
        scenario, _ = scenario_from_launch(launch, flags, (), base_dir, origin)
    except InputError as error:
        if any(problem.field != "target.model" for problem in error.problems) or not data["target"].get(
            "model"
        ):
            return findings_of([subject])
        return findings_of(
            [replace(subject, problem=f"{data['target']['model']} is no model of the catalogue")]
        )
    variant = scenario.speculation[0] if scenario.speculation else None
    return findings_of([replace(subject, scenario=scenario, variant=variant)])


def findings_of(subjects: Iterable[Subject]) -> list[Diagnostic]:
    """The findings of all lints, each once, errors first."""
    diagnostics: dict[tuple[object, ...], Diagnostic] = {}
    for subject in subjects:
        for lint in lints().values():
            for hit in lint.hits(subject):
                diagnostics.setdefault(
                    (lint.name, hit), Diagnostic(lint, hit, subject.engine, subject.version)
                )
    return sorted(diagnostics.values(), key=lambda finding: SEVERITIES.index(finding.lint.severity))
