"""The simulator's acceptance models fitted to measured rounds.

Every token of an output is, for the drafts before it, one of three: an accepted draft, a refused one (its
place is taken by the target's own token), or a token that came after the last draft, or without one, and says
nothing. So an output is one series of trials along its positions, each at its draft position j, whatever the
draft length. Models without memory take the trials as independent; the hierarchical one integrates over an
effect of the request and a drift along the output (a hidden Markov chain). All are fitted by maximum
likelihood of the same trials, so that their likelihoods compare. Of the gated model that is what follows a
match; how matches come is counted beside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from calibration.acceptance.rows import gate_of, gated_json
from calibration.acceptance.samples import Sample
from simulator.acceptance import AcceptanceModel, Decay, Geometric, Hierarchical, Positional
from simulator.acceptance.base import Floats, logistic

_UNKNOWN = -1
_SEARCHES, _RUNS_OF_SEARCH = 3, 400
_LARGEST_CORRELATION = 0.98
_LARGEST_LOG_SD = 2.0


@dataclass(frozen=True)
class Fit:
    """A fitted model. log_likelihood: natural, of all trials. parameters: as a scenario writes them."""

    model: AcceptanceModel
    entry: dict[str, Any]
    parameters: int
    trials: int
    log_likelihood: float

    @property
    def bic(self) -> float:
        """Bayesian information criterion; the smallest describes best."""
        return self.parameters * math.log(self.trials) - 2.0 * self.log_likelihood


class Counted(Protocol):
    """What models without memory are fitted to."""

    @property
    def counts(self) -> tuple[Floats, Floats]:
        """(tried, accepted) by draft position."""


@dataclass(frozen=True)
class Trials:
    """Samples as trials: outcome (requests, positions) 1 accepted, 0 refused, -1 unknown; level: its draft
    position from 0; text: which requests continue the same prompt, and so share a request's effect.
    """

    outcome: NDArray[np.int8]
    level: NDArray[np.int8]
    text: NDArray[np.int64]

    @property
    def counts(self) -> tuple[Floats, Floats]:
        """(tried, accepted) by draft position."""
        width = int(self.level.max(initial=0)) + 1
        known = self.outcome != _UNKNOWN
        tried = np.bincount(self.level[known], minlength=width).astype(np.float64)
        accepted = np.bincount(self.level[self.outcome == 1], minlength=width).astype(np.float64)
        return tried, accepted


def trials_of(samples: Sequence[Sample]) -> Trials:
    """Return the trials of samples."""
    longest = max(sum(sample.accepted) + len(sample.accepted) for sample in samples)
    outcome = np.full((len(samples), longest), _UNKNOWN, dtype=np.int8)
    level = np.zeros_like(outcome)
    texts: dict[str, int] = {}
    for row, sample in enumerate(samples):
        place = 0
        for drafted, accepted in zip(sample.drafted, sample.accepted, strict=True):
            outcome[row, place : place + accepted] = 1
            level[row, place : place + accepted] = np.arange(accepted)
            if accepted < drafted:
                outcome[row, place + accepted] = 0
                level[row, place + accepted] = accepted
            place += accepted + 1
    text = np.array([texts.setdefault(sample.prompt, len(texts)) for sample in samples])
    return Trials(outcome, level, text)


def fit_all(samples: Sequence[Sample]) -> list[Fit]:
    """Return every model fitted to the samples, the best by BIC first; gated where rounds lack drafts."""
    trials = trials_of(samples)
    fits = [fit_geometric(trials), fit_positional(trials), fit_decay(trials), fit_hierarchical(trials)]
    if any(drafted == 0 for sample in samples for drafted in sample.drafted):
        fits.append(fit_gated(trials, samples))
    return sorted(fits, key=lambda one: one.bic)


def fit_geometric(trials: Counted) -> Fit:
    """One rate for all drafts."""
    tried, accepted = trials.counts
    alpha = float(accepted.sum() / tried.sum())
    likelihood = _independent(tried, accepted, np.full(len(tried), alpha))
    return Fit(Geometric(alpha), {"model": "geometric", "alpha": alpha}, 1, int(tried.sum()), likelihood)


def fit_positional(trials: Counted) -> Fit:
    """One rate per draft position."""
    tried, accepted = trials.counts
    known = int((tried > 0).sum())
    rates = accepted[:known] / tried[:known]
    likelihood = _independent(tried[:known], accepted[:known], rates)
    entry = {"model": "positional", "conditional": rates.tolist()}
    return Fit(Positional(tuple(rates.tolist())), entry, known, int(tried.sum()), likelihood)


def fit_decay(trials: Counted) -> Fit:
    """logit c_j = mu - delta (j - 1)."""
    tried, accepted = trials.counts
    places = np.arange(len(tried))

    def cost(point: Floats) -> float:
        return -_independent(tried, accepted, logistic(point[0] - point[1] * places))

    start = [_logit(float(accepted.sum() / tried.sum())), 0.0]
    (mu, delta), least = _minimum(cost, start)
    model = Decay(mu, delta)
    entry = {"model": "decay", "alpha": model.alpha, "delta": float(delta)}
    return Fit(model, entry, 2, int(tried.sum()), -least)


def fit_gated(trials: Trials, samples: Sequence[Sample]) -> Fit:
    """First and run of rounds with a match, and the match beside, which the trials do not know."""
    tried, accepted = trials.counts
    gate = gate_of(samples)
    rates = np.full(len(tried), gate.run)
    rates[0] = gate.first
    likelihood = _independent(tried, accepted, rates)
    return Fit(gate, {"model": "gated", **gated_json(gate)}, 2, int(tried.sum()), likelihood)


def fit_hierarchical(trials: Trials) -> Fit:
    """Decay with an effect per request and, where the data ask for it (BIC), a drift along the output."""
    tried, accepted = trials.counts
    count = int(tried.sum())

    def without_drift(point: Floats) -> Hierarchical:
        return Hierarchical(float(point[0]), float(point[1]), math.exp(min(point[2], _LARGEST_LOG_SD)))

    def with_drift(point: Floats) -> Hierarchical:
        correlation = _LARGEST_CORRELATION * float(logistic(point[4]))
        return replace(
            without_drift(point),
            drift_sd=math.exp(min(point[3], _LARGEST_LOG_SD)),
            drift_correlation=correlation,
        )

    def cost(family: Callable[[Floats], Hierarchical]) -> Callable[[Floats], float]:
        return lambda point: -hierarchical_log_likelihood(family(point), trials)

    start = [_logit(float(accepted.sum() / tried.sum())), 0.0, math.log(0.7)]
    few, few_least = _minimum(cost(without_drift), start)
    many, many_least = few, few_least
    # A drift is looked for where one of a few guesses gains anything: the search costs far more.
    guesses = [[*few, math.log(sd), memory] for sd in (0.3, 0.9) for memory in (0.0, 3.0)]
    guess = min(guesses, key=lambda point: cost(with_drift)(np.array(point)))
    if cost(with_drift)(np.array(guess)) < few_least - 1.0:
        many, many_least = _minimum(cost(with_drift), guess)
    drifts = 2.0 * (few_least - many_least) > 2.0 * math.log(count)
    model = with_drift(many) if drifts else without_drift(few)
    entry = {
        "model": "hierarchical",
        "alpha": model.alpha,
        "delta": model.delta,
        "request_sd": model.request_sd,
        "drift_sd": model.drift_sd,
        "drift_correlation": model.drift_correlation,
    }
    return Fit(model, entry, 5 if drifts else 3, count, -(many_least if drifts else few_least))


_STATES = 13
"""Of the request's effect, and of the drift."""


def hierarchical_log_likelihood(model: Hierarchical, trials: Trials) -> float:
    """Return the log likelihood of all trials: forward recursion over the drift's states, for every effect of
    the request; requests of one text share the effect.
    """
    grid = np.linspace(-3.0, 3.0, _STATES)
    weights = np.exp(-0.5 * grid**2)
    weights /= weights.sum()
    drifts, at_first, moves = rouwenhorst(_STATES if model.drift_sd > 0.0 else 1, model.drift_correlation)
    effects = model.request_sd * grid[:, None] + model.drift_sd * drifts[None, :]
    width = int(trials.level.max(initial=0)) + 1
    chances = logistic(model.mu + effects[None] - model.delta * np.arange(width)[:, None, None])
    carried = np.broadcast_to(at_first, (len(trials.outcome), *effects.shape)).copy()
    total = np.zeros((len(trials.outcome), _STATES))
    for place in range(trials.outcome.shape[1]):
        if place and len(drifts) > 1:
            carried = carried @ moves
        outcome = trials.outcome[:, place]
        chance = chances[trials.level[:, place]]
        carried *= np.where((outcome == 1)[:, None, None], chance, 1.0)
        carried *= np.where((outcome == 0)[:, None, None], 1.0 - chance, 1.0)
        scale = np.maximum(carried.sum(axis=2), 1e-300)
        total += np.log(scale)
        carried /= scale[:, :, None]
    by_text = np.zeros((int(trials.text.max()) + 1, _STATES))
    np.add.at(by_text, trials.text, total)
    joint = by_text + np.log(weights)
    top = joint.max(axis=1, keepdims=True)
    return float((top[:, 0] + np.log(np.exp(joint - top).sum(axis=1))).sum())


def rouwenhorst(states: int, correlation: float) -> tuple[Floats, Floats, Floats]:
    """Return (values, stationary shares, moves) of a chain with the mean 0, variance 1 and correlation of an
    AR(1), all exact at any correlation (Rouwenhorst 1995; Kopecky and Suen 2010).
    """
    if states == 1:
        return np.zeros(1), np.ones(1), np.ones((1, 1))
    stay = (1.0 + correlation) / 2.0
    moves = np.array([[stay, 1.0 - stay], [1.0 - stay, stay]])
    for count in range(3, states + 1):
        wider = np.zeros((count, count))
        wider[:-1, :-1] += stay * moves
        wider[:-1, 1:] += (1.0 - stay) * moves
        wider[1:, :-1] += (1.0 - stay) * moves
        wider[1:, 1:] += stay * moves
        wider[1:-1] /= 2.0
        moves = wider
    reach = math.sqrt(states - 1.0)
    shares = np.array([math.comb(states - 1, one) for one in range(states)]) / 2.0 ** (states - 1)
    return np.linspace(-reach, reach, states), shares, moves


def _independent(tried: Floats, accepted: Floats, rates: Floats) -> float:
    """Log likelihood of independent trials; 0 · log 0 is 0."""
    from scipy.special import xlogy

    return float((xlogy(accepted, rates) + xlogy(tried - accepted, 1.0 - rates)).sum())


def _minimum(cost: Callable[[Floats], float], start: Sequence[float]) -> tuple[Floats, float]:
    """The point that a simplex search ends at, begun anew from where it stopped until that gains nothing."""
    from scipy.optimize import minimize

    point, least = np.array(start), math.inf
    for _ in range(_SEARCHES):
        options = {"maxfev": _RUNS_OF_SEARCH, "xatol": 1e-3, "fatol": 1e-2}
        found = minimize(cost, point, method="Nelder-Mead", options=options)
        gained, point, least = least - float(found.fun), found.x, float(found.fun)
        if found.success and gained < 0.1:
            break
    return point, least


def _logit(rate: float) -> float:
    rate = min(max(rate, 1e-3), 1.0 - 1e-3)
    return math.log(rate / (1.0 - rate))
