"""What a break-even search needs of a simulator: an `Evaluator` of one load of one scenario."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

Load = Mapping[str, float]
"""The offered load, as rows show it: `{"concurrency": 64}` or `{"rate_per_s": 2.5}`."""


class DoesNotFitError(Exception):
    """The memory does not hold the weights, or not a single request. The text gives the numbers."""


class Evaluator(Protocol):
    """Evaluates one load of one scenario: runs on common random numbers, and the price of a uniform step.

    Figures are those of `measure.py`. Raises `DoesNotFitError` where the memory of a variant does not hold a
    request.
    """

    @property
    def load(self) -> Load:
        """The offered load, as in the rows: `{"concurrency": 64}`."""

    @property
    def open_loop(self) -> bool:
        """Whether requests arrive at a rate of their own, whatever the engine does."""

    @property
    def draft_length_varies(self) -> bool:
        """Whether the runs take the draft length from the variant's own table
        or policy; then no closed form applies.
        """

    @property
    def scenario_alpha(self) -> float | None:
        """The scenario's own acceptance, in the terms of the family; None when it has no such figure."""

    def plain(self, replication: int) -> Mapping[str, float]:
        """Figures of plain decoding."""

    def plain_is_saturated(self, replications: int) -> bool:
        """Whether plain decoding cannot serve the load."""

    def speculative(
        self, draft_length: int, alpha: float, replication: int, step_scale: float
    ) -> Mapping[str, float]:
        """Figures of the speculative variant with acceptance `alpha`
        and its decodes' GPU times × `step_scale`; NaN if saturated.
        """

    def step_s(self, draft_length: int, batch: float) -> float:
        """Time of a uniform decode step of `batch` requests
        at the load's mean context, s; draft length 0 is plain.
        """
