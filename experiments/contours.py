"""Adaptive refinement: evaluates a coarse sub-grid and the cells along the contour that it finds.

The contour lies between adjacent cells with different labels, such as pays and loses. A coarse sub-grid is
evaluated first. Where two neighbours in it differ, the line between them is halved until the change lies
between adjacent cells. From there the contour is followed from unit square to unit square until it closes or
leaves the grid. This finds every branch that separates two coarse cells, or meets such a branch, at the full
resolution of the grid. It can miss islands that lie between coarse cells and touch no branch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, product

Position = tuple[int, ...]
"""The position of a cell in its grid: a number per axis, from 0."""

Label = Hashable
"""The side of the contour on which a cell lies."""

LabelCells = Callable[[Sequence[Position]], Mapping[Position, Label]]
"""Cells → their labels. Called once per round with new cells, in order."""

ContourEdge = tuple[Position, Position]
"""Two adjacent cells with different labels, the one with the lower place first: a piece of the contour."""


def labels_along_contour(
    shape: Sequence[int],
    label_cells: LabelCells,
    *,
    along: Sequence[int] | None = None,
    every: int = 4,
    absent: Container[Position] = frozenset(),
) -> dict[Position, Label]:
    """The labels of the cells that the contour of a grid needs, asked round by round.

    `along`: the axes that have an order, and along which the contour runs (default: all). The others make
    grids of their own, one per combination of values. `every`: neighbours in the coarse grid are at most this
    many cells apart; 1 evaluates all cells. `absent` cells do not exist, and no contour borders them.

    Rounds follow from labels alone, whoever computes them in whatever order: to continue an interrupted
    refinement, answer from memory what is known.
    """
    axes = tuple(range(len(shape))) if along is None else tuple(along)
    labels: dict[Position, Label] = {}

    def ask_missing(positions: Iterable[Position]) -> bool:
        new = sorted({index for index in positions if index not in labels and index not in absent})
        if new:
            labels.update(label_cells(new))
        return bool(new)

    places = [
        coarse_places(size, every) if axis in axes else tuple(range(size)) for axis, size in enumerate(shape)
    ]
    ask_missing(product(*places))
    segments = list(_coarse_segments(places, axes))
    while segments:
        segments = [half for segment in segments for half in _halves(segment, labels)]
        ask_missing(start for start, _ in segments)
    while ask_missing(_next_cells(labels, shape, axes, absent)):
        pass
    return labels


def coarse_places(size: int, every: int) -> tuple[int, ...]:
    """Places on an axis of `size` values: evenly, both ends among them, at most `every` apart."""
    steps = -(-(size - 1) // every)
    return tuple(round(step * (size - 1) / steps) for step in range(steps + 1)) if steps else (0,)


def contour(labels: Mapping[Position, Label], axes: Iterable[int]) -> set[ContourEdge]:
    """The changes between known cells along these axes."""
    return {
        (cell, neighbour)
        for axis in axes
        for cell, label in labels.items()
        if (neighbour := _moved(cell, axis, 1)) in labels and labels[neighbour] != label
    }


def _coarse_segments(
    places: Sequence[Sequence[int]], axes: Sequence[int]
) -> Iterator[tuple[Position, Position]]:
    """The pairs of neighbours in the coarse grid, along each refined axis."""
    for axis in axes:
        for low, high in pairwise(places[axis]):
            for start in product(*places[:axis], (low,), *places[axis + 1 :]):
                yield start, _moved(start, axis, high - low)


def _halves(
    segment: tuple[Position, Position], labels: Mapping[Position, Label]
) -> Iterator[tuple[Position, Position]]:
    """Both halves of a segment whose ends differ; none where they are adjacent."""
    start, end = segment
    middle = tuple((low + high) // 2 for low, high in zip(start, end, strict=True))
    if middle != start and labels.get(start) != labels.get(end):
        yield start, middle
        yield middle, end


def _next_cells(
    labels: Mapping[Position, Label], shape: Sequence[int], axes: Sequence[int], absent: Container[Position]
) -> set[Position]:
    """The cells that decide where the contour leaves the unit squares that it enters.

    Of two unknown corners one is enough at first: the one that more squares wait for. When the last one's
    neighbours in the square agree, the contour has already left, and that corner is taken to be like them.
    """
    positions_needed: set[Position] = set()
    choices: list[tuple[Position, Position]] = []
    for change in contour(labels, axes):
        for corners in _squares_at(change, shape, axes):
            unknown = [place for place in (0, 1) if corners[place] not in labels]
            unknown = [place for place in unknown if corners[place] not in absent]
            if len(unknown) == 2:
                choices.append(corners)
            elif unknown:
                (place,) = unknown
                if labels.get(corners[1 - place]) != labels[change[place]]:
                    positions_needed.add(corners[place])
    squares_waiting = Counter(corner for corners in choices for corner in corners)
    for corners in choices:
        if positions_needed.isdisjoint(corners):
            positions_needed.add(max(corners, key=lambda corner: (squares_waiting[corner], corner)))
    return positions_needed


def _squares_at(
    change: ContourEdge, shape: Sequence[int], axes: Sequence[int]
) -> Iterator[tuple[Position, Position]]:
    """The other two corners of each unit square at a change, in the order of its cells."""
    low, high = change
    for axis, side in product(axes, (-1, 1)):
        if low[axis] == high[axis] and 0 <= low[axis] + side < shape[axis]:
            yield _moved(low, axis, side), _moved(high, axis, side)


def _moved(cell: Position, axis: int, by: int) -> Position:
    return (*cell[:axis], cell[axis] + by, *cell[axis + 1 :])
