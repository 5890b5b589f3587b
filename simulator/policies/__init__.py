"""Policies of the draft length, one file each: they choose K by what a run has shown so far.

A policy that follows from the scenario alone is a table by batch, which the compiled step reads
(`settings.draft_length_by_batch`). The policies here depend on results, and decide in Python at step
boundaries, so that engines under them go stage by stage.
"""

from __future__ import annotations

from typing import Protocol

from simulator.scheduling import BoundaryHook


class Policy(Protocol):
    """What chooses the draft length of an engine."""

    @property
    def name(self) -> str:
        """The `kind` that scenarios call it by."""

    @property
    def draft_lengths(self) -> tuple[int, ...]:
        """Every K that it may choose, ascending."""

    def first_lengths(self, max_num_seqs: int) -> tuple[int, ...]:
        """Return K by the number of requests of a step (max_num_seqs + 1,) before anything has run."""

    def begin(self) -> BoundaryHook:
        """Return what decides for one replica, without any history."""
