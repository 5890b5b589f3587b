"""The store of a study as a page sees it: what was asked, how far it got, and its cells as a map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.maps.study_map import StudyMap
    from experiments.store.columns import StoreColumn

_SQLITE = b"SQLite format 3\0"

THRESHOLD = 0.55
"""The rule of thumb that maps are held against: speculation pays above this acceptance."""


@dataclass(frozen=True)
class StoredStudy:
    """What a store holds. `study`: the document of the study; `counts`: status → cells; `reasons`: (status,
    why, number of cells) of cells without figures.
    """

    study: Mapping[str, Any]
    version: str
    columns: tuple[StoreColumn, ...]
    rows: tuple[Mapping[str, Any], ...] = field(repr=False)
    counts: Mapping[str, int] = field(default_factory=dict)
    reasons: tuple[tuple[str, str, int], ...] = ()
    path: Path = Path("STORE")
    """Where the store is, for messages."""

    @property
    def title(self) -> str:
        """What the study calls itself."""
        return str(self.study.get("name") or "A study without a name")

    @property
    def grid_cells(self) -> int | None:
        """Cells of the whole grid; None where conditions or a refinement decide how many there are."""
        if self.study.get("where") or self.study.get("refine"):
            return None
        seeds = int(self.study.get("seeds") or 1)
        if sample := self.study.get("sample"):
            return int(sample) * seeds
        follows = {path for group in self.study.get("zip") or () for path in group[1:]}
        return seeds * prod(len(values) for path, values in self.study["axes"].items() if path not in follows)

    @cached_property
    def map(self) -> StudyMap:
        """The cells of the variants with speculation."""
        from experiments.maps.study_map import study_map
        from experiments.store.columns import SETTING

        settings = [column.name for column in self.columns if column.role == SETTING]
        return study_map(self.rows, settings, [str(variant["name"]) for variant in self._variants])

    @cached_property
    def scenario_alpha(self) -> Mapping[str, float]:
        """Arm → the α that the study's scenario gives it, where it does and no axis varies it."""
        alphas = {}
        for index, variant in enumerate(self.study["scenario"].get("speculation") or ()):
            if "name" not in variant:
                continue
            alpha = (variant.get("acceptance") or {}).get("alpha")
            acceptance_paths = tuple(f"speculation.{key}.acceptance" for key in (variant["name"], index))
            varied = any(path.startswith(acceptance_paths) for path in self.study["axes"])
            if isinstance(alpha, float | int) and not varied:
                alphas[str(variant["name"])] = float(alpha)
        return alphas

    @property
    def _variants(self) -> Sequence[Mapping[str, Any]]:
        """The variants with speculation, as the scenario has them."""
        return [variant for variant in self.study["scenario"].get("speculation") or () if "name" in variant]


def is_store(path: Path) -> bool:
    """Whether a file is a database of SQLite, as stores are."""
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False


def stored_study(path: str | Path) -> StoredStudy:
    """The study in a store, as it is now. Raises InputError for what is no store, or has no cells yet."""
    from experiments.store.reader import StoreReader
    from simulator.errors import InputError, Problem

    with StoreReader(path, one_state=True) as store:
        stored = StoredStudy(
            study=store.study(),
            version=store.about["version"],
            columns=store.columns(),
            rows=tuple(store.rows()),
            counts=store.counts(),
            reasons=tuple(store.reasons()),
            path=Path(path),
        )
    if not stored.rows:
        raise InputError(
            Problem(file=str(path), message="holds no cells yet", allowed="run `decodesim sweep` first")
        )
    return stored
