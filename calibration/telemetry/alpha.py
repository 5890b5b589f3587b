"""α of measured acceptance: the geometric model with the same mean, and the model that fits the positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from calibration.acceptance.fits import Fit, fit_decay, fit_geometric, fit_positional
from calibration.telemetry.reading import Counts, MeasuredAcceptance
from simulator.breakeven.theory import alpha_from_tokens_per_verify
from simulator.numerics.arrays import Floats
from simulator.results import metrics

FULL_DRAFTS = 0.995
"""Share of the draft positions that must be drafted for a rate to be one of positions that were tried."""
FEWEST_TRIALS = 200
_LEAST_MATCH, _MOST_COVERAGE = 1e-3, 0.98


@dataclass(frozen=True)
class CountedTrials:
    """Drafts that were tried at each position, and those accepted."""

    tried: Floats
    accepted: Floats

    @property
    def counts(self) -> tuple[Floats, Floats]:
        """(tried, accepted) by draft position."""
        return self.tried, self.accepted


def geometric_alpha(acceptance: MeasuredAcceptance) -> float | None:
    """The α whose geometric model has this mean at this draft length; None where the length is not known."""
    if not acceptance.draft_length:
        return None
    longest = acceptance.draft_length + 1.0
    return alpha_from_tokens_per_verify(min(acceptance.total.mean_length, longest), acceptance.draft_length)


def drafts_full(counts: Counts) -> bool:
    """Whether nearly every round drafted all positions."""
    positions = len(counts.accepted_at)
    return counts.drafted is None or counts.drafted >= FULL_DRAFTS * positions * counts.rounds


def fits_of(acceptance: MeasuredAcceptance) -> list[dict[str, Any]]:
    """Geometric, decay and positional models, the best by BIC first; none for few or damaged counts."""
    counts = acceptance.total
    if not acceptance.counted or not counts.accepted_at or not drafts_full(counts):
        return []
    accepted = np.array(counts.accepted_at)
    tried = np.array([counts.rounds, *counts.accepted_at[:-1]])
    if tried.sum() < FEWEST_TRIALS or not accepted.sum() or (accepted > tried).any():
        return []
    trials = CountedTrials(tried, accepted)
    fits = [fit_geometric(trials), fit_positional(trials)]
    if len(accepted) > 1:
        fits.append(fit_decay(trials))
    best = min(fits, key=lambda fit: fit.bic)
    return [_fit_json(fit, best, counts, len(accepted)) for fit in sorted(fits, key=lambda fit: fit.bic)]


def _fit_json(fit: Fit, best: Fit, counts: Counts, positions: int) -> dict[str, Any]:
    error = fit.model.mean_acceptance_length(positions) / counts.mean_length - 1.0
    return {
        "model": fit.model.name,
        "parameters": {key: value for key, value in fit.entry.items() if key != "model"},
        "goodness": {
            "log_likelihood": fit.log_likelihood,
            "fitted_parameters": fit.parameters,
            "bic_above_best": fit.bic - best.bic,
            "error_of_mean_acceptance_length": error,
        },
    }


def gated_of(acceptance: MeasuredAcceptance, coverage: float | None) -> dict[str, float] | None:
    """How rounds find a draft, for drafters that often find none; None where every step drafts or counts
    lack.

    `match` is the coverage. How matches follow one another cannot be seen in counts: `stickiness` is 0.
    """
    counts = acceptance.total
    if coverage is None or coverage > _MOST_COVERAGE or coverage < _LEAST_MATCH or not counts.accepted_at:
        return None
    first = metrics.share(counts.accepted_at[0], counts.rounds)
    reached = sum(counts.accepted_at[:-1])
    run = metrics.share(sum(counts.accepted_at[1:]), reached) if reached else 0.0
    return {"match": coverage, "stickiness": 0.0, "first": first, "run": run}
