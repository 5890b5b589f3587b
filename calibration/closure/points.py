"""The points of the closed loop: batches, draft lengths, contexts and drafters that no bench measures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from calibration.measurements import Measurement

GROWTH_TOKENS = 24
"""Tokens by which a context grows before the sequences restart."""


@dataclass(frozen=True)
class LoopPoint:
    """One setting of plain and speculative decoding.

    `draft_layers`: number of the target's first layers that form the drafter, with the target's head.
    """

    batch: int
    draft_length: int
    context: int
    draft_layers: int
    temperature: float = 0.0

    @property
    def label(self) -> str:
        """The label in tables."""
        drawn = f", T = {self.temperature:g}" if self.temperature else ""
        drafter = f"{self.draft_layers} layer{'s' if self.draft_layers > 1 else ''}"
        return f"B = {self.batch}, K = {self.draft_length}, {self.context} tokens, {drafter}{drawn}"


FULL = (
    LoopPoint(1, 3, 256, 2),
    LoopPoint(1, 6, 512, 1),
    LoopPoint(1, 2, 1024, 6),
    LoopPoint(1, 4, 512, 2, temperature=1.0),
    LoopPoint(2, 5, 1024, 2),
    LoopPoint(3, 2, 512, 4),
    LoopPoint(4, 3, 512, 2, temperature=1.0),
    LoopPoint(5, 4, 256, 1),
    LoopPoint(6, 1, 1024, 2),
    LoopPoint(7, 2, 256, 3),
    LoopPoint(9, 7, 512, 1),
    LoopPoint(11, 3, 1024, 1),
    LoopPoint(12, 1, 512, 4),
    LoopPoint(15, 2, 512, 1),
    LoopPoint(16, 1, 256, 2),
    LoopPoint(3, 1, 512, 27),
    LoopPoint(10, 1, 256, 24),
)
"""Break-evens of all sizes; the last two draft with almost the complete target, which never pays.

For most points, no bench measures the batch, or the pair of batch and query tokens, either.
"""
QUICK = (
    LoopPoint(1, 3, 256, 2),
    LoopPoint(5, 2, 512, 2),
    LoopPoint(3, 4, 256, 1, temperature=1.0),
    LoopPoint(12, 1, 256, 2),
    LoopPoint(3, 1, 256, 27),
)
"""A small selection of the same kind."""


def calibrated_points(points: Iterable[LoopPoint], measured: Iterable[Measurement]) -> list[LoopPoint]:
    """The points of which a pass, at any context during growth, has the shape of a measured operation."""
    shapes = {
        (measurement.shape["batch"], measurement.shape["queries"], measurement.shape["context"])
        for measurement in measured
        if {"batch", "queries", "context"} <= measurement.shape.keys()
    }
    return [point for point in points if not shapes.isdisjoint(_shapes(point))]


def _shapes(point: LoopPoint) -> set[tuple[int, int, int]]:
    """(batch, queries, context) of every pass; contexts include the query tokens."""
    k = point.draft_length
    contexts = range(point.context + 1, point.context + GROWTH_TOKENS + 2 * k + 3)
    return {(point.batch, queries, context) for queries in (1, k + 1, k + 2) for context in contexts}
