"""Where the loop is closed: batches, draft lengths, contexts and drafters that no bench has measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from calibration.measurements import Measurement

GROWTH_TOKENS = 24
"""Tokens that a context grows before the sequences start over."""


@dataclass(frozen=True)
class LoopPoint:
    """One setting of plain and speculative decoding.

    `draft_layers`: the drafter is so many first layers of the target, and its head.
    """

    batch: int
    draft_length: int
    context: int
    draft_layers: int
    temperature: float = 0.0

    @property
    def label(self) -> str:
        """As rows of tables call it."""
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
"""Break-evens of all sizes; the last two draft with nearly the whole target, which never pays.

Most batches, and most pairs of batch and query tokens, are in no bench either: there the context is new, and
the step too.
"""
QUICK = (
    LoopPoint(1, 3, 256, 2),
    LoopPoint(5, 2, 512, 2),
    LoopPoint(3, 4, 256, 1, temperature=1.0),
    LoopPoint(12, 1, 256, 2),
    LoopPoint(3, 1, 256, 27),
)
"""The same on a small scale."""


def met_in_calibration(points: Iterable[LoopPoint], measured: Iterable[Measurement]) -> list[LoopPoint]:
    """The points whose passes, at any context they grow through, have the shape of a measured one."""
    known = {
        (one.shape["batch"], one.shape["queries"], one.shape["context"])
        for one in measured
        if {"batch", "queries", "context"} <= one.shape.keys()
    }
    return [point for point in points if not known.isdisjoint(_shapes(point))]


def _shapes(point: LoopPoint) -> set[tuple[int, int, int]]:
    """(batch, queries, context) of every pass, contexts with the query tokens."""
    k = point.draft_length
    contexts = range(point.context + 1, point.context + GROWTH_TOKENS + 2 * k + 3)
    return {(point.batch, queries, context) for queries in (1, k + 1, k + 2) for context in contexts}
