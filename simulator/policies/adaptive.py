"""SGLang's adaptive draft length: up and down a list of candidates by the drafts that rounds accepted.

Source: SGLang 0.5.23 `srt/speculative/adaptive_spec_params.py`. The rule looks at accepted drafts alone. It
knows no cost, so it may settle on a K that is slower than another one.

Left out: `ceiling_coeff`, which is 0 in SGLang's own configuration, and that SGLang rounds the batch up to a
size with a CUDA graph before it looks for the row of the batch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.scheduling import BoundaryHook, EngineState

WEIGHT = 0.2
"""Of the newest batch in the moving average (`ema_alpha`)."""
WARM_UP_BATCHES = 10
"""Verified batches before the first decision."""
BATCHES_PER_DECISION = 5

CANDIDATES: Mapping[int, tuple[int, ...]] = {1: (1, 3, 5, 7), 8: (0, 1, 3), 32: (0, 1), 64: (0,)}
"""SGLang's default: the smallest batch of a row → its draft lengths."""
DOWN_HYSTERESIS = {1: -0.25}
"""What the row of a batch adds to its thresholds for fewer drafts; 0 in all other rows of the default. A row
of a user's configuration that does not state it has -0.25 in SGLang."""
UNSTATED_HYSTERESIS = -0.25


class CandidateRow:
    """The draft length of one range of batches."""

    def __init__(self, candidates: tuple[int, ...], first_length: int, down_hysteresis: float) -> None:
        self.candidates = candidates
        self.down_hysteresis = down_hysteresis
        self.draft_length = first_length if first_length in candidates else candidates[len(candidates) // 2]
        self.mean_accepted = float(self.draft_length - 1)
        """Moving average of the drafts that a round accepted; it starts neutral."""
        self.batches = 0

    def observe(self, mean_accepted: float | None) -> None:
        """Take in one batch: the drafts that its rounds accepted on average, None where it verified none."""
        if self.draft_length > 0 and mean_accepted is not None:
            self.mean_accepted = (1 - WEIGHT) * self.mean_accepted + WEIGHT * mean_accepted
        self.batches += 1
        decides_after = self.batches - WARM_UP_BATCHES
        if decides_after > 0 and decides_after % BATCHES_PER_DECISION == 0:
            self._decide()

    def _decide(self) -> None:
        lengths, index = self.candidates, self.candidates.index(self.draft_length)
        if self.draft_length == 0:  # nothing was drafted, so nothing is known: try the shortest draft
            self.draft_length = lengths[min(index + 1, len(lengths) - 1)]
            if self.draft_length > 0 and self.mean_accepted < 0:
                self.mean_accepted = float(self.draft_length - 1)
            return
        lowest = index
        while lowest > 0 and self.mean_accepted <= self._falls_at(lengths[lowest - 1]):
            lowest -= 1
        highest = index
        while highest < len(lengths) - 1 and self.mean_accepted > lengths[highest] - 0.5:
            highest += 1
        self.draft_length = lengths[lowest if lowest < index else highest]

    def _falls_at(self, shorter: int) -> float:
        """Return the accepted drafts at and below which `shorter` drafts take over."""
        return (shorter - 0.5 if shorter else 0.5) + self.down_hysteresis


@dataclass(frozen=True)
class Adaptive:
    """The policy with its rows: the smallest batch of each → its draft lengths, ascending."""

    rows: tuple[tuple[int, tuple[int, ...]], ...]
    first_length: int
    """K at the start, where a row has it; otherwise the middle one of its candidates."""
    name = "adaptive"

    @property
    def draft_lengths(self) -> tuple[int, ...]:
        """The candidates of all rows."""
        return tuple(sorted({length for _, candidates in self.rows for length in candidates}))

    def first_lengths(self, max_num_seqs: int) -> tuple[int, ...]:
        """Return the first K of the row of each batch."""
        rows, bounds = self.new_rows(), [batch for batch, _ in self.rows]
        return tuple(rows[row_of(bounds, batch)].draft_length for batch in range(max_num_seqs + 1))

    def new_rows(self) -> list[CandidateRow]:
        """Return the rows as they are before anything has run."""
        is_default = dict(self.rows) == CANDIDATES
        return [
            CandidateRow(
                candidates,
                self.first_length,
                DOWN_HYSTERESIS.get(batch, 0.0) if is_default else UNSTATED_HYSTERESIS,
            )
            for batch, candidates in self.rows
        ]

    def to_sglang(self) -> dict[str, dict[str, object]]:
        """Return the rows as SGLang's `--speculative-adaptive-config` has them."""
        return {
            str(batch): {
                "candidate_steps": list(row.candidates),
                "up_hysteresis": 0.0,
                "down_hysteresis": row.down_hysteresis,
                "ceiling_coeff": 0,
            }
            for (batch, _), row in zip(self.rows, self.new_rows(), strict=True)
        }

    def begin(self) -> BoundaryHook:
        """Return what decides for one replica."""
        return _Decisions([batch for batch, _ in self.rows], self.new_rows())


def row_of(bounds: list[int], batch: int) -> int:
    """Return which row a batch belongs to: the last that begins at or below it, else the first."""
    return max(bisect_right(bounds, batch) - 1, 0)


COUNTERS = ("decode_rounds", "draft_rounds", "accepted")
"""What is read off a request: its decodes, its rounds with drafts, and their accepted drafts so far."""


class _Decisions:
    """Reads the results of the newest step off the requests, and sets K by batch."""

    def __init__(self, bounds: list[int], rows: list[CandidateRow]) -> None:
        self.bounds, self.rows = bounds, rows
        self.running: NDArray[np.int32] = np.zeros(0, np.int32)
        """Requests that ran at the last boundary: all whose rounds can have ended since."""
        self.counted = [0, 0, 0]
        """The sums of their `COUNTERS` until then."""

    def __call__(self, state: EngineState, now_ns: int) -> None:
        sums = _sums(state, self.running)
        batch, rounds, accepted = (after - before for after, before in zip(sums, self.counted, strict=True))
        if batch > 0:
            self._observe(state, batch, accepted / rounds if rounds > 0 else None)
        running = state.running[: state.engine["running_count"].item()]
        if running.tobytes() != self.running.tobytes():
            self.running = running.copy()
            sums = _sums(state, self.running)
        self.counted = sums

    def _observe(self, state: EngineState, batch: int, mean_accepted: float | None) -> None:
        index = row_of(self.bounds, batch)
        row, length_before = self.rows[index], self.rows[index].draft_length
        row.observe(mean_accepted)
        if row.draft_length != length_before:
            first = self.bounds[index] if index > 0 else 0
            end = self.bounds[index + 1] if index + 1 < len(self.bounds) else None
            state.draft_length_by_batch[first:end] = row.draft_length


def _sums(state: EngineState, requests: NDArray[np.int32]) -> list[int]:
    """Return the sums of `COUNTERS` over requests (n,).

    They are gathered as columns of one matrix, because this runs in every step: field by field it takes three
    times as long.
    """
    records = state.requests
    fields = records.dtype.fields
    assert fields is not None
    offsets = [fields[name][1] // 4 for name in COUNTERS]
    first, last = min(offsets), max(offsets)
    columns = records.view(np.int32).reshape(len(records), -1)[:, first : last + 1]
    sums = columns[requests].sum(axis=0, dtype=np.int64).tolist()
    return [sums[offset - first] for offset in offsets]
