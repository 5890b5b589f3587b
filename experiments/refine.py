"""The key `refine` of a study: of its grid, only the cells that a contour needs, found round by round.

A round is a list of cells; whoever runs them puts them into the store, where those of an earlier, interrupted
run already are. What is asked next follows from the store alone, so that any pool, in any order, with any
interruption, ends with the same cells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from experiments.cell import DONE
from experiments.contours import Index, Label, refined
from experiments.study.grid import Grid, cell_at
from experiments.study.refine import Positions

if TYPE_CHECKING:
    from experiments.cell import Cell
    from experiments.store.reader import StoreReader
    from experiments.study.study import Study


def run_refined(study: Study, store: StoreReader, run: Callable[[Sequence[Cell]], None]) -> int:
    """Run the cells of a study that its contour needs, and return how many they are. Raises InputError.

    `run` is called once a round with cells that are to be in the store afterwards; it skips those that are.
    """
    assert study.refine is not None
    if study.where:
        Grid(study).count(1)  # refuses more points than conditions are tried on
    positions = Positions(study)

    def ask(asked: Sequence[Index]) -> Mapping[Index, Label]:
        cells = {index: cell_at(study, positions.settings(index)) for index in asked}
        run(list(cells.values()))
        labels = labels_in(store, study.refine or {})
        return {index: labels.get(cell.key, "missing") for index, cell in cells.items()}

    found = refined(
        positions.shape,
        ask,
        along=positions.along,
        every=study.refine["every"],
        absent=positions.absent(),
    )
    return len(found)


def labels_in(store: StoreReader, refine: Mapping[str, Any]) -> dict[str, Label]:
    """Key → on which side of the contour the cell lies: whether the metric is above the level, or without a
    level what it says. A cell without the metric is called by its status.
    """
    metric, level = refine["metric"], refine["level"]
    here = metric in {column.name for column in store.columns()}
    rows = store.values(None, ["key", "status", *([metric] if here else [])])
    return {key: _label(status, value[0] if value else None, level) for key, status, *value in rows}


def _label(status: str, value: Any, level: float | None) -> Label:
    if value is None:
        return "none" if status == DONE else status
    side: Label = value if level is None else value > level
    return side
