"""Predicted against measured: rows of cells, speedups against plain decoding, errors, and targets.

The prediction of a row is that of the scenario written down beforehand, with the acceptance that the engine
counted in the cell itself in place of that counted beforehand. What was predicted with the latter is `blind`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from calibration.engine_loop.matrix import CALIBRATION_LOADS, PLAIN, LoopCell
from calibration.engine_loop.raw import Figures
from calibration.engine_loop.rounds import ENOUGH_ROUNDS, relative_error

CALL_FROM = 0.05
"""A measured gain or loss beyond this share has to be called right."""


@dataclass(frozen=True)
class CellRow:
    """A cell with what was measured, predicted, and predicted blind."""

    cell: LoopCell
    measured: Figures
    predicted: Figures
    blind: Figures
    tokens_per_verify: float | None
    tpot_rounds_s: tuple[float, ...] = ()
    """Measured TPOT of each round."""
    noise: float | None = None
    """Relative standard error of the measured TPOT, see `rounds.py`."""

    def to_json(self) -> dict[str, Any]:
        """One entry of `cells`."""
        return asdict(self)

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> CellRow:
        """The row of an entry."""
        figures = {name: Figures(**entry[name]) for name in ("measured", "predicted", "blind")}
        return cls(
            cell=LoopCell(**entry["cell"]),
            tokens_per_verify=entry["tokens_per_verify"],
            tpot_rounds_s=tuple(entry.get("tpot_rounds_s", ())),
            noise=entry.get("noise"),
            **figures,
        )

    def error(self, figure: str) -> float:
        """ln(predicted ÷ measured) of a figure."""
        return math.log(getattr(self.predicted, figure) / getattr(self.measured, figure))


@dataclass(frozen=True)
class SpeedupRow:
    """TPOT of plain decoding ÷ TPOT of a variant at the same load.

    `noise`: relative standard error of the measured one.
    """

    cell: LoopCell
    measured: float
    predicted: float
    blind: float
    noise: float | None

    @classmethod
    def of_rows(cls, plain: CellRow, row: CellRow) -> SpeedupRow:
        """That of two rows. Where both have as many rounds, it is the median over pairs of one round, which
        ran close to one another.
        """
        measured, noise = plain.measured.tpot_s / row.measured.tpot_s, None
        if plain.noise is not None and row.noise is not None:
            noise = math.hypot(plain.noise, row.noise)
        if len(plain.tpot_rounds_s) == len(row.tpot_rounds_s) > 1:
            ratios = np.array(plain.tpot_rounds_s) / np.array(row.tpot_rounds_s)
            measured = float(np.median(ratios))
            noise = relative_error(ratios) if len(ratios) >= ENOUGH_ROUNDS else noise
        predicted, blind = (
            getattr(plain, name).tpot_s / getattr(row, name).tpot_s for name in ("predicted", "blind")
        )
        return cls(row.cell, measured, predicted, blind, noise)

    @property
    def error(self) -> float:
        """ln(predicted ÷ measured)."""
        return math.log(self.predicted / self.measured)

    @property
    def must_be_called(self) -> bool:
        """Whether the measured gain or loss is large enough."""
        return abs(self.measured - 1) > CALL_FROM

    @property
    def called_right(self) -> bool:
        """Whether prediction and measurement lie on one side of 1."""
        return (self.measured - 1) * (self.predicted - 1) > 0


@dataclass(frozen=True)
class EngineTarget:
    """A limit and what was reached; no value: nothing to compare."""

    name: str
    limit: float
    value: float | None
    n: int

    @property
    def met(self) -> bool | None:
        """Whether the limit holds; None without a value."""
        return None if self.value is None else self.value <= self.limit


@dataclass(frozen=True)
class LoopComparison:
    """All rows of a run."""

    rows: tuple[CellRow, ...]

    @property
    def speedups(self) -> list[SpeedupRow]:
        """Speculative cells whose load was measured plainly, too."""
        plain = {row.cell.load: row for row in self.rows if row.cell.variant == PLAIN}
        return [
            SpeedupRow.of_rows(plain[row.cell.load], row)
            for row in self.rows
            if row.cell.variant != PLAIN and row.cell.load in plain
        ]

    def turning_loads(self) -> dict[str, tuple[float | None, float | None]]:
        """Variant → measured and predicted clients at which a gain turns into a loss; None: it does not."""
        bands: dict[str, tuple[float | None, float | None]] = {}
        for name in dict.fromkeys(row.cell.variant for row in self.speedups):
            rows = sorted(
                (row for row in self.speedups if row.cell.variant == name and row.cell.clients),
                key=lambda row: row.cell.clients or 0,
            )
            bands[name] = (
                turning_load([(row.cell.clients or 0, row.measured) for row in rows]),
                turning_load([(row.cell.clients or 0, row.predicted) for row in rows]),
            )
        return bands

    @property
    def targets(self) -> list[EngineTarget]:
        """The targets on quiet cores."""
        fresh = [
            row for row in self.rows
            if row.cell.variant == PLAIN and row.cell.clients not in CALIBRATION_LOADS
        ]  # fmt: skip
        p99 = [row for row in self.rows if row.cell.claims_p99]
        speedup_errors = [abs(row.error) for row in self.speedups]
        wrong = [not row.called_right for row in self.speedups if row.must_be_called]
        return [
            _target("plain TPOT at loads not calibrated, median", 0.06, _errors(fresh, "tpot_s"), 0.5),
            _target(
                "plain throughput there, median", 0.06,
                _errors([row for row in fresh if row.cell.clients], "throughput_tokens_per_s"), 0.5,
            ),
            _target("speedup, median", 0.06, speedup_errors, 0.5),
            _target("speedup, P90", 0.12, speedup_errors, 0.9),
            EngineTarget("gains and losses called wrong", 0, sum(wrong) if wrong else None, len(wrong)),
            _target("P99 TPOT, largest", 0.15, _errors(p99, "tpot_p99_s"), 1.0),
            _target("P99 TTFT, largest", 0.25, _errors(p99, "ttft_p99_s"), 1.0),
        ]  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """The document of `decodesim closure --engine vllm --json`."""
        return {
            "schema": "decodesim/engine-closure-1",
            "cells": [row.to_json() for row in self.rows],
            "speedups": [asdict(row) | {"called_right": row.called_right} for row in self.speedups],
            "turning_loads": {name: list(pair) for name, pair in self.turning_loads().items()},
            "targets": [asdict(target) | {"met": target.met} for target in self.targets],
        }


def turning_load(points: Sequence[tuple[int, float]]) -> float | None:
    """The first load at which a speedup falls through 1, on a line between logarithms; None: never."""
    for (low, above), (high, below) in pairwise(points):
        if above >= 1 > below:
            share = math.log(above) / (math.log(above) - math.log(below))
            return math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
    return None


def _errors(rows: Iterable[CellRow], figure: str) -> list[float]:
    return [abs(row.error(figure)) for row in rows]


def _target(name: str, limit: float, sizes: Sequence[float], quantile: float) -> EngineTarget:
    return EngineTarget(name, limit, float(np.quantile(sizes, quantile)) if sizes else None, len(sizes))
