"""Robust least squares on log errors, with equal weight for every source.

The parameters are on the scale u = asinh(value / typical): a logarithm for large values, linear near zero. A
weak prior keeps unconstrained parameters at their start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simulator.numerics.arrays import Floats

SCALE = 0.15
"""Log error at which a row has lost two thirds of its weight (Welsch). At 0.45 it has none, so that no
constant makes up for a wrong mechanism.
"""
PULL = 0.05
"""Strength of the prior: a move by one on the scale costs as much as a source with this mean error."""
MAX_STEP = 0.7
"""Largest move of a parameter in one step, on the scale of the fit."""
_REWEIGHTINGS = 30
MIN_SLOPE = 0.02
"""A source constrains a parameter if a step of one on its scale moves one of the source's rows by 2 %."""


def to_scale(value_s: Floats, typical_s: Floats) -> Floats:
    """Seconds on the scale of the fit."""
    return np.asarray(np.arcsinh(value_s / typical_s))


def from_scale(u: Floats, typical_s: Floats) -> Floats:
    """Seconds again, never below 0."""
    return np.asarray(np.maximum(np.sinh(u), 0.0) * typical_s)


@dataclass(frozen=True)
class LinearisedErrors:
    """Log errors at one set of values, with derivatives: `errors` (rows,), `slopes` (rows, parameters),
    `sources` (rows,).
    """

    errors: Floats
    slopes: Floats
    sources: tuple[str, ...]

    def weights(self, errors: Floats) -> Floats:
        """Welsch weights (rows,), each divided by the number of rows of its source."""
        counts = np.array([self.sources.count(source) for source in self.sources], float)
        return np.asarray(np.exp(-((errors / SCALE) ** 2)) / counts)

    def of_rows(self, selected: Sequence[bool]) -> LinearisedErrors:
        """The selected rows."""
        mask = np.array(selected, bool)
        sources = tuple(source for source, use in zip(self.sources, selected, strict=True) if use)
        return LinearisedErrors(self.errors[mask], self.slopes[mask], sources)

    def solve(self) -> Floats:
        """The least-squares step (parameters,) from here."""
        step: Floats = np.zeros(self.slopes.shape[1])
        for _ in range(_REWEIGHTINGS):
            w = self.weights(self.errors + self.slopes @ step)
            normal = self.slopes.T @ (w[:, None] * self.slopes) + PULL**2 * np.eye(len(step))
            step[:] = np.linalg.solve(normal, -self.slopes.T @ (w * self.errors))
        return np.clip(step, -MAX_STEP, MAX_STEP)

    def constraining(self) -> list[set[str]]:
        """For each parameter, the sources that constrain it by rows that still have weight."""
        weighted = np.abs(self.errors) < 2 * SCALE
        sources_by_parameter = []
        for slopes in np.abs(self.slopes.T):
            constrains = weighted & (slopes > MIN_SLOPE)
            sources_by_parameter.append(
                {source for source, flag in zip(self.sources, constrains, strict=True) if flag}
            )
        return sources_by_parameter

    def jackknife(self) -> Floats:
        """Half-widths (parameters,) of 90 % intervals, on the scale of the fit (jackknife over sources)."""
        names = sorted(set(self.sources))
        steps = np.array([self.of_rows([s != name for s in self.sources]).solve() for name in names])
        n = len(names)
        spread = (n - 1) / n * ((steps - steps.mean(0)) ** 2).sum(0)
        return np.asarray(1.645 * np.sqrt(spread))
