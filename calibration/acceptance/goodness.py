"""Whether a fitted model could have given the rounds: the same requests drawn from it, again and again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibration.acceptance.predict import decode
from calibration.acceptance.samples import Sample
from simulator.acceptance import AcceptanceModel
from simulator.acceptance.base import Floats

_RUNS = 200
_REFUSED_BELOW = 0.01


class Goodness(NamedTuple):
    """Share of runs drawn from the model that are further from it than the data: of the counts of accepted
    drafts (chi-square), and of the spread between requests (variance of their means).
    """

    counts: float
    spread: float

    @property
    def refused(self) -> bool:
        """Whether chance alone would hardly give such data, at 1 % for both together."""
        return min(self.counts, self.spread) < _REFUSED_BELOW / 2


def goodness(model: AcceptanceModel, samples: Sequence[Sample]) -> Goodness:
    """Return the goodness of a model for samples of one row, every text once."""
    generator = np.random.default_rng(0)
    data = [_with_draft(one) for one in samples]
    longest = samples[0].setting.draft_length
    runs = [_drawn(model, samples, generator) for _ in range(_RUNS)]
    expected = np.mean([_shares(run, longest) for run in runs], axis=0)
    distances = np.array([_distance(run, expected, longest) for run in runs])
    spreads = np.array([_spread(run) for run in runs])
    own = _spread(data)
    # Too wide and too narrow both speak against the model.
    above = float((spreads >= own).mean())
    return Goodness(
        counts=float((distances >= _distance(data, expected, longest)).mean()),
        spread=min(1.0, 2.0 * min(above, 1.0 - above + float((spreads == own).mean()))),
    )


def _drawn(
    model: AcceptanceModel, samples: Sequence[Sample], generator: np.random.Generator
) -> list[NDArray[np.int64]]:
    """The accepted drafts of rounds with a draft, drawn from a model: whole requests where it has effects;
    without, round by round as long as what was drafted.
    """
    first = samples[0]
    if model.effects.any:
        length = first.setting.draft_length
        rounds = decode(model, length, first.max_tokens, len(samples), generator)
        return [np.array(one, dtype=np.int64) for one in rounds]
    rates = model.conditional_at(np.zeros(1), first.setting.draft_length)[0]
    drawn = []
    for sample in samples:
        drafted = np.array([one for one in sample.drafted if one > 0], dtype=np.int64)
        survived = np.cumprod(generator.random((len(drafted), len(rates))) < rates, axis=1).sum(axis=1)
        drawn.append(np.minimum(survived, drafted))
    return drawn


def _with_draft(sample: Sample) -> NDArray[np.int64]:
    pairs = zip(sample.accepted, sample.drafted, strict=True)
    return np.array([accepted for accepted, drafted in pairs if drafted > 0], dtype=np.int64)


def _shares(requests: Sequence[NDArray[np.int64]], longest: int) -> Floats:
    """Share of rounds that accepted 0..longest drafts."""
    counts = np.bincount(np.concatenate(requests), minlength=longest + 1).astype(np.float64)
    shares: Floats = counts / max(counts.sum(), 1.0)
    return shares


def _distance(requests: Sequence[NDArray[np.int64]], expected: Floats, longest: int) -> float:
    """Chi-square of the counts, per round, so that runs of unlike length compare."""
    apart = _shares(requests, longest) - expected
    return float((apart**2 / np.maximum(expected, 1e-6)).sum())


def _spread(requests: Sequence[NDArray[np.int64]]) -> float:
    """Variance of the requests' means."""
    return float(np.var([one.mean() for one in requests if len(one)])) if len(requests) > 1 else 0.0
