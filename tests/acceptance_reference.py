"""The acceptance of one request, written from docs/acceptance.md in plain Python:
what the compiled tables must mean.

Reads `AcceptanceTables` and the luck of `simulator.numerics.random_numbers`; imports nothing of the step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from simulator.acceptance import GATED, TRACE, AcceptanceModel, AcceptanceTables, compile_acceptance
from simulator.numerics.random_numbers import STREAM_DRIFT, STREAM_MATCH, STREAM_SURVIVAL, draw


class Traffic(NamedTuple):
    """The columns of the requests that acceptance reads."""

    traffic_class: np.ndarray
    output_tokens: np.ndarray


def one_class(requests: int, output_tokens: int = 200) -> Traffic:
    """Equal requests of one class."""
    return Traffic(np.zeros(requests, dtype=np.int32), np.full(requests, output_tokens, dtype=np.int64))


class ReferenceRequest:
    """One request that emits; `emitted` counts its output tokens so far (prefill has emitted the first)."""

    def __init__(
        self, tables: AcceptanceTables, seed: int, request: int, traffic_class: int = 0, emitted: int = 1
    ) -> None:
        self.tables = tables
        self.request = request
        self.traffic_class = traffic_class
        self.emitted = emitted
        self.matched = bool(tables.matched_before[request])
        self.seed = seed
        self._drifts: list[float] = []

    def drift(self, position: int) -> float:
        """v at a 1-based output position."""
        t = self.tables
        while len(self._drifts) < position:
            here = len(self._drifts) + 1
            z = t.normal_quantiles[
                int(draw(self.seed, self.request, STREAM_DRIFT, here) * len(t.normal_quantiles))
            ]
            if here == 1:
                self._drifts.append(t.drift_sd * z)
            else:
                innovation = t.drift_sd * math.sqrt(1.0 - t.drift_correlation**2) * z
                self._drifts.append(t.drift_correlation * self._drifts[-1] + innovation)
        return self._drifts[position - 1]

    def finds_match(self) -> bool:
        """Whether the round that starts now has a match."""
        chance = self.tables.match_after_match if self.matched else self.tables.match_after_miss
        of = self.request if self.tables.match_by_request else self.traffic_class
        return bool(draw(self.seed, self.request, STREAM_MATCH, self.emitted + 1) < chance[of])

    def accepted(self, drafts: int) -> int:
        """Accepted drafts of a round that starts now; changes nothing."""
        t = self.tables
        if t.kind == TRACE:
            sequence = self.request % (len(t.trace_start) - 1)
            lengths = t.trace_lengths[t.trace_start[sequence] : t.trace_start[sequence + 1]]
            return int(min(lengths[self.emitted % len(lengths)] - 1, drafts))
        if t.kind == GATED and not self.finds_match():
            return 0
        for j in range(drafts):
            position = self.emitted + 1 + j
            effect = t.request_effect[self.request] + (self.drift(position) if t.drift_sd > 0 else 0.0)
            row = int((effect - t.effect_low) * t.effect_bins_per_unit)
            row = min(max(row, 0), t.conditional.shape[1] - 1)
            if (
                draw(self.seed, self.request, STREAM_SURVIVAL, position)
                >= t.conditional[self.traffic_class, row, j]
            ):
                return j
        return drafts

    def round(self, drafts: int) -> int:
        """Verify one round and emit; return the accepted drafts."""
        matched = self.finds_match() if self.tables.kind == GATED else False
        accepted = self.accepted(drafts)
        self.matched = matched
        self.emitted += accepted + 1
        return accepted


def first_rounds(
    tables: AcceptanceTables, seed: int, draft_length: int, requests: Iterable[int]
) -> np.ndarray:
    """Accepted drafts of one round per request, at output positions
    that no luck has chosen, shape (requests,).
    """
    return np.array(
        [ReferenceRequest(tables, seed, r, emitted=1 + 7 * r % 40).accepted(draft_length) for r in requests]
    )


def survival_scores(accepted: np.ndarray, survival: np.ndarray) -> np.ndarray:
    """(observed - expected) / standard error of S_1..S_K over independent rounds;
    impossible outcomes score infinity.
    """
    observed = np.array([(accepted >= j).mean() for j in range(1, len(survival) + 1)])
    error = np.sqrt(survival * (1.0 - survival) / len(accepted))
    difference = observed - survival
    certain = error < 1e-12
    scores = np.divide(difference, error, out=np.zeros_like(difference), where=~certain)
    scores[certain & (np.abs(difference) > 1e-9)] = np.inf
    return scores


def tables_of(
    model: AcceptanceModel, requests: int, seed: int, draft_length: int, heterogeneity: bool = True
) -> AcceptanceTables:
    """The tables of one class of equal requests."""
    return compile_acceptance([model], one_class(requests), seed, draft_length, heterogeneity)
