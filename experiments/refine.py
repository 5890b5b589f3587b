"""The key `refine` of a study: runs only the cells of the grid that a contour needs, round by round.

A round is a list of cells whose results go into the store, which may already have some of an interrupted run.
The next round depends only on the store. Any pool, in any order and after any interruption, ends with the
same cells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from experiments.cell import DONE
from experiments.contours import Label, Position, labels_along_contour
from experiments.study.grid import StudyGrid, cell_at
from experiments.study.refine import Positions

if TYPE_CHECKING:
    from experiments.cell import Cell
    from experiments.store.reader import StoreReader
    from experiments.study.study import Study


def run_refined(study: Study, store: StoreReader, run: Callable[[Sequence[Cell]], None]) -> int:
    """Run the cells of a study that its contour needs, and return their number. Raises InputError.

    `run` is called once per round and puts its cells into the store. It skips cells that are already there.
    """
    assert study.refine is not None
    if study.where:
        StudyGrid(study).count(1)  # refuses more points than conditions are tried on
    positions = Positions(study)

    def label_cells(positions_asked: Sequence[Position]) -> Mapping[Position, Label]:
        cells = {index: cell_at(study, positions.settings(index)) for index in positions_asked}
        run(list(cells.values()))
        labels = labels_in(store, study.refine or {})
        return {index: labels.get(cell.key, "missing") for index, cell in cells.items()}

    labels = labels_along_contour(
        positions.shape,
        label_cells,
        along=positions.along,
        every=study.refine["every"],
        absent=positions.absent(),
    )
    return len(labels)


def labels_in(store: StoreReader, refine: Mapping[str, Any]) -> dict[str, Label]:
    """Key → the side of the contour: whether the metric is above the level or, without a level, its value.

    A cell without the metric has its status as label.
    """
    metric, level = refine["metric"], refine["level"]
    has_metric = metric in {column.name for column in store.columns()}
    rows = store.values(None, ["key", "status", *([metric] if has_metric else [])])
    return {key: _label(status, value[0] if value else None, level) for key, status, *value in rows}


def _label(status: str, value: Any, level: float | None) -> Label:
    if value is None:
        return "none" if status == DONE else status
    side: Label = value if level is None else value > level
    return side
