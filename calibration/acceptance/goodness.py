"""Goodness of fit: compares the measured rounds with many simulations of the same requests from the fitted
model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibration.acceptance.predict import decode
from calibration.acceptance.samples import RequestSample
from simulator.acceptance import AcceptanceModel
from simulator.numerics.arrays import Floats

_SIMULATIONS = 200
_MIN_P_VALUE = 0.01


class Goodness(NamedTuple):
    """P-values: shares of simulated data sets that are further from the model than the measured data.

    `counts`: by chi-square of the counts of accepted drafts. `spread`: by the variance of the requests'
    means.
    """

    counts: float
    spread: float

    @property
    def rejected(self) -> bool:
        """Whether the model is rejected at 1 % for both tests together."""
        return min(self.counts, self.spread) < _MIN_P_VALUE / 2


def goodness(model: AcceptanceModel, samples: Sequence[RequestSample]) -> Goodness:
    """Return the goodness of a model for the samples of one row, in which every text occurs once."""
    generator = np.random.default_rng(0)
    data = [_with_draft(sample) for sample in samples]
    max_accepted = samples[0].setting.draft_length
    simulations = [_drawn(model, samples, generator) for _ in range(_SIMULATIONS)]
    expected = np.mean([_shares(run, max_accepted) for run in simulations], axis=0)
    distances = np.array([_distance(run, expected, max_accepted) for run in simulations])
    spreads = np.array([_spread(run) for run in simulations])
    measured_spread = _spread(data)
    # The spread test is two-sided: too wide and too narrow both count against the model.
    above = float((spreads >= measured_spread).mean())
    return Goodness(
        counts=float((distances >= _distance(data, expected, max_accepted)).mean()),
        spread=min(1.0, 2.0 * min(above, 1.0 - above + float((spreads == measured_spread).mean()))),
    )


def _drawn(
    model: AcceptanceModel, samples: Sequence[RequestSample], generator: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Accepted drafts of rounds with a draft, (rounds,) per request, drawn from a model.

    A model with effects draws whole requests. Otherwise rounds are drawn with the measured drafted levels.
    """
    first = samples[0]
    if model.effects.any:
        length = first.setting.draft_length
        rounds = decode(model, length, first.max_tokens, len(samples), generator)
        return [np.array(accepted, dtype=np.int64) for accepted in rounds]
    rates = model.conditional_at(np.zeros(1), first.setting.draft_length)[0]
    drawn = []
    for sample in samples:
        drafted = np.array([levels for levels in sample.drafted if levels > 0], dtype=np.int64)
        accepted = np.cumprod(generator.random((len(drafted), len(rates))) < rates, axis=1).sum(axis=1)
        drawn.append(np.minimum(accepted, drafted))
    return drawn


def _with_draft(sample: RequestSample) -> NDArray[np.int64]:
    pairs = zip(sample.accepted, sample.drafted, strict=True)
    return np.array([accepted for accepted, drafted in pairs if drafted > 0], dtype=np.int64)


def _shares(requests: Sequence[NDArray[np.int64]], longest: int) -> Floats:
    """Share of rounds that accepted 0 … `longest` drafts, (longest + 1,)."""
    counts = np.bincount(np.concatenate(requests), minlength=longest + 1).astype(np.float64)
    shares: Floats = counts / max(counts.sum(), 1.0)
    return shares


def _distance(requests: Sequence[NDArray[np.int64]], expected: Floats, longest: int) -> float:
    """Chi-square of the counts per round, so that data sets of different size can be compared."""
    differences = _shares(requests, longest) - expected
    return float((differences**2 / np.maximum(expected, 1e-6)).sum())


def _spread(requests: Sequence[NDArray[np.int64]]) -> float:
    """Variance of the requests' means."""
    return (
        float(np.var([accepted.mean() for accepted in requests if len(accepted)]))
        if len(requests) > 1
        else 0.0
    )
