"""Robust least squares on log errors, each source weighing the same, on a scale of parameters that reaches 0.

u = asinh(value / typical): a logarithm for large values, linear near zero. A weak pull keeps what no source
tells at its start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SCALE = 0.15
"""Log error at which a row has lost two thirds of its say (Welsch); at 0.45 it has none: a wrong mechanism
must not be paid for by a constant.
"""
PULL = 0.05
"""A parameter that moves by one on its scale weighs as a source with this mean error."""
MOST_STEP = 0.7
"""No parameter moves by more in one step, on its scale."""
_REWEIGHTINGS = 30
TELLS = 0.02
"""A source constrains a parameter when a step of one on its scale moves one of its rows by 2 %."""


def to_scale(value_s: Floats, typical_s: Floats) -> Floats:
    """Seconds on the scale of the fit."""
    return np.asarray(np.arcsinh(value_s / typical_s))


def from_scale(u: Floats, typical_s: Floats) -> Floats:
    """Seconds again, never below 0."""
    return np.asarray(np.maximum(np.sinh(u), 0.0) * typical_s)


@dataclass(frozen=True)
class Linear:
    """Log errors at a point and their derivatives: `errors` (n,), `slopes` (n, p), `sources` (n,)."""

    errors: Floats
    slopes: Floats
    sources: tuple[str, ...]

    def weights(self, errors: Floats) -> Floats:
        """Welsch weights over the number of rows of the source."""
        counts = np.array([self.sources.count(source) for source in self.sources], float)
        return np.asarray(np.exp(-((errors / SCALE) ** 2)) / counts)

    def of_rows(self, kept: Sequence[bool]) -> Linear:
        """The same of some rows."""
        rows = np.array(kept, bool)
        sources = tuple(source for source, one in zip(self.sources, kept, strict=True) if one)
        return Linear(self.errors[rows], self.slopes[rows], sources)

    def solve(self) -> Floats:
        """The step (p,) that the rows ask for."""
        step: Floats = np.zeros(self.slopes.shape[1])
        for _ in range(_REWEIGHTINGS):
            w = self.weights(self.errors + self.slopes @ step)
            normal = self.slopes.T @ (w[:, None] * self.slopes) + PULL**2 * np.eye(len(step))
            step[:] = np.linalg.solve(normal, -self.slopes.T @ (w * self.errors))
        return np.clip(step, -MOST_STEP, MOST_STEP)

    def constraining(self) -> list[set[str]]:
        """Parameter → the sources that tell something of it, by rows that still have a say."""
        heard = np.abs(self.errors) < 2 * SCALE
        found = []
        for slopes in np.abs(self.slopes.T):
            tells = heard & (slopes > TELLS)
            found.append({source for source, told in zip(self.sources, tells, strict=True) if told})
        return found

    def jackknife(self) -> Floats:
        """90 % half-widths (p,) on the scale of the fit, leaving out one source at a time."""
        names = sorted(set(self.sources))
        steps = np.array([self.of_rows([s != name for s in self.sources]).solve() for name in names])
        n = len(names)
        spread = (n - 1) / n * ((steps - steps.mean(0)) ** 2).sum(0)
        return np.asarray(1.645 * np.sqrt(spread))
