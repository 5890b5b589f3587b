"""Files of several runs, sorted: what belongs to one run, which runs speculated."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MOMENT = re.compile(r"([-_.]?(before|after|start|end|begin|first|second|[12]))?(\.[A-Za-z_]\w*)*$")
"""What follows the name of a run: which of two scrapes, and endings."""


@dataclass(frozen=True)
class MeasuredRuns:
    """Documents of `read`: the run without speculation, the run with it, and all runs by name.

    Where several of a kind are given, the one with the most requests or draft rounds stands for it.
    """

    plain: Mapping[str, Any] | None
    speculative: Mapping[str, Any] | None
    names: tuple[str, ...]

    @property
    def any(self) -> Mapping[str, Any] | None:
        """A run that tells the load: the one with speculation, if there is one."""
        return self.speculative or self.plain


def measured_runs(files: Sequence[str]) -> MeasuredRuns:
    """Read files and tell their runs apart. Raises InputError."""
    readings = readings_by_run(files)
    drafting = [reading for reading in readings.values() if reading["mean_acceptance_length"] is not None]
    others = [reading for reading in readings.values() if reading["mean_acceptance_length"] is None]
    return MeasuredRuns(
        max(others, key=_requests, default=None), max(drafting, key=_rounds, default=None), tuple(readings)
    )


def readings_by_run(files: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Run → the document of `read` for its files. Raises InputError."""
    from calibration.telemetry.answer import read

    groups: dict[str, list[str]] = {}
    for file in files:
        groups.setdefault(run_name(file), []).append(file)
    return {name: read(group).to_json() for name, group in groups.items()}


def run_name(file: str) -> str:
    """The run that a file is of: `runs/a` of `runs/a.before.metrics.txt` and of `runs/a.bench.json`."""
    path = Path(file)
    return str(path.with_name(_MOMENT.sub("", path.name) or "run"))


def _rounds(reading: Mapping[str, Any]) -> float:
    return float(reading["draft_rounds"] or 0)


def _requests(reading: Mapping[str, Any]) -> float:
    return float(reading["load"].get("requests") or 0)
