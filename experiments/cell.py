"""One cell of a study: its scenario, the key it is stored under, and its result.

A cell is plain data, so that it can be sent to any worker, where `run_cell.py` simulates it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

DONE, FAILED = "done", "failed"
"""Status of a cell; the third one is DOES_NOT_FIT of `verdict.py`."""
SIMULATE, BREAK_EVEN = "simulate", "breakeven"
SEED = "seed"
"""The setting that every cell has besides its axes: `run.seed` of its scenario."""

MetricValue = Mapping[str, Any] | float | str
"""An estimate as JSON (`{"value", "ci95", "band"}`), a bare figure, or a word (a verdict)."""


@dataclass(frozen=True)
class Cell:
    """One point of a study's grid.

    `settings`: dotted path of each axis → its value here (a number, text, or for structured axes plain data),
    and `seed`. `scenario`: the whole scenario as JSON with sorted keys, file names absolute. `measures` of
    SIMULATE, BREAK_EVEN; `keep`: the metrics that are kept, empty for the usual ones.
    """

    settings: Mapping[str, Any]
    scenario: str
    measures: tuple[str, ...] = (SIMULATE,)
    keep: tuple[str, ...] = ()
    files: str = ""
    """Digest of the files that the scenario names, because other contents make another cell."""

    @property
    def key(self) -> str:
        """The key in the store: a hash of all that determines the result."""
        inputs = [self.scenario, self.measures, self.keep, self.files, code_version()]
        return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()


@dataclass(frozen=True)
class CellResult:
    """The result of a cell. `metrics`: `ARM.PATH` → estimate, figure or word, without undefined figures.

    `error` is the reason where the cell is not DONE. `seconds_s` is its computing time.
    """

    key: str
    status: str
    metrics: Mapping[str, MetricValue] = field(default_factory=dict)
    error: str | None = None
    seconds_s: float = 0.0


@cache
def code_version() -> str:
    """The version with a digest of the simulator's source and data: equal text, equal figures."""
    import simulator

    folder = Path(simulator.__file__).parent
    digest = hashlib.sha256()
    for path in sorted((*folder.rglob("*.py"), *folder.rglob("data/**/*.json"))):
        digest.update(path.relative_to(folder).as_posix().encode())
        digest.update(path.read_bytes())
    return f"{version('decodesim')}+{digest.hexdigest()[:12]}"
