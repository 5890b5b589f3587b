"""Break-even and speedup by load, which a page shows and no result file holds.

Both are simulated when a page is first made, and kept in `study.json` next to the result. A page of the same
result with the same simulator uses them again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.errors import InputError
from simulator.files import read_json

if TYPE_CHECKING:
    from experiments.maps.speedup import SpeedupMap
    from simulator.results.result import Result
    from simulator.runs.replications import Progress
    from simulator.scenario import Scenario

SCHEMA = "decodesim/study-1"
STUDY_FILE = "study.json"
MAX_VARIANTS = 4
"""Variants that are studied: each takes seconds."""


@dataclass(frozen=True)
class LoadStudy:
    """Arm → the document of `decodesim breakeven` over concurrencies, and the map of its speedup.

    `notes` say what could not be studied, and why.
    """

    break_even: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    speedup: Mapping[str, SpeedupMap] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The study as plain data."""
        return {
            "break_even": dict(self.break_even),
            "speedup": {variant: speedup_map.to_json() for variant, speedup_map in self.speedup.items()},
            "notes": list(self.notes),
        }


def load_study_of(
    result: Result, scenario: Scenario, folder: Path | None = None, progress: Progress | None = None
) -> LoadStudy:
    """The study of a result: from `folder` when it is there, else simulated and stored there if possible."""
    key = _key(result)
    file = None if folder is None else folder / STUDY_FILE
    study = None if file is None else _read(file, key)
    if study is None:
        study = _simulate(scenario, progress)
        if file is not None:
            _write(file, key, study)
    return study


def _simulate(scenario: Scenario, progress: Progress | None) -> LoadStudy:
    from experiments.maps.speedup import alphas_with, concurrencies, speedup_map, with_enough_requests
    from simulator.breakeven.breakeven import breakeven

    studied = scenario.speculation[:MAX_VARIANTS]
    notes = [
        f"{variant.name}: not studied over the load: a page studies {MAX_VARIANTS} variants"
        for variant in scenario.speculation[MAX_VARIANTS:]
    ]
    break_even: dict[str, Mapping[str, Any]] = {}
    speedup: dict[str, SpeedupMap] = {}
    count = _ProgressSum(progress)
    for number, variant in enumerate(studied):
        loads = concurrencies(scenario, variant)
        count.total = (len(studied) - number) * 2 * len(loads) + count.done
        try:
            answer = breakeven(
                with_enough_requests(scenario, loads),
                loads=[{"concurrency": n} for n in loads],
                metrics=("throughput",),
                progress=count,
                variant=variant.name,
            )
            break_even[variant.name] = answer.to_json()
            count.done = count.base = count.base + len(loads)
            speedup[variant.name] = speedup_map(
                scenario, variant, loads, alphas_with(answer.rows[0].scenario_alpha), count
            )
            count.done = count.base = count.base + len(loads)
        except InputError as error:
            notes.append(f"{variant.name}: {error}")
    return LoadStudy(break_even, speedup, tuple(notes))


class _ProgressSum:
    """Adds up the progress of studies that run one after another."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress, self.base, self.done, self.total = progress, 0, 0, 0

    def __call__(self, done: int, _: int, what: str) -> None:
        self.done = self.base + done
        if self.progress is not None:
            self.progress(self.done, self.total, what)


def _key(result: Result) -> str:
    """Hash of all that a study rests on: the result, the simulator's code and data, and the studies' own."""
    from simulator.results.result import dump_json

    digest = hashlib.sha256(dump_json(result.to_json()).encode())
    for package, pattern in (
        ("simulator", "*"),
        ("experiments.maps", "speedup.py"),
        ("dashboards", "study.py"),
    ):
        root = Path(str(resources.files(package)))
        for file in sorted(root.rglob(pattern)):
            if file.suffix in (".py", ".json"):
                digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _read(file: Path, key: str) -> LoadStudy | None:
    """The study in a file; None when there is none for this key, or it is damaged."""
    from experiments.maps.speedup import speedup_map_from_json

    try:
        document = read_json(file)
        if document["schema"] != SCHEMA or document["key"] != key:
            return None
        speedup = {
            variant: speedup_map_from_json(map_document)
            for variant, map_document in document["speedup"].items()
        }
        return LoadStudy(document["break_even"], speedup, tuple(document["notes"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _write(file: Path, key: str, study: LoadStudy) -> None:
    """Store a study for the next page; where that is not possible the next page simulates again."""
    from simulator.files import whole_file
    from simulator.results.result import dump_json

    with suppress(OSError), whole_file(file) as part:
        part.write_text(dump_json({"schema": SCHEMA, "key": key, **study.to_json()}), encoding="utf-8")
