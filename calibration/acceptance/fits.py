"""Fits the simulator's acceptance models to measured rounds.

Every token of an output belongs to one of three kinds: an accepted draft; the target's own token in place of
a rejected draft; or a token after the last draft or without a draft, which carries no information. So an
output is a series of Bernoulli trials along its positions, each with its draft position j, whatever the draft
length. Models without memory treat the trials as independent. The hierarchical model integrates over an
effect of the request and a drift along the output (a hidden Markov chain). All models maximise the likelihood
of the same trials, so their likelihoods can be compared. For the gated model, these are the trials after a
match; the matches are counted separately.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from calibration.acceptance.rows import gate_of, gated_json
from calibration.acceptance.samples import RequestSample
from simulator.acceptance import AcceptanceModel, Decay, Geometric, Hierarchical, Positional
from simulator.acceptance.base import logistic
from simulator.numerics.arrays import Floats

_UNKNOWN = -1
_MAX_SEARCHES, _EVALUATIONS_PER_SEARCH = 3, 400
_LARGEST_CORRELATION = 0.98
_LARGEST_LOG_SD = 2.0


@dataclass(frozen=True)
class Fit:
    """A fitted model. entry: its `acceptance` section in a scenario. parameters: their number. trials: their
    number. log_likelihood: natural logarithm, over all trials.
    """

    model: AcceptanceModel
    entry: dict[str, Any]
    parameters: int
    trials: int
    log_likelihood: float

    @property
    def bic(self) -> float:
        """Bayesian information criterion; the smallest is best."""
        return self.parameters * math.log(self.trials) - 2.0 * self.log_likelihood


class Counted(Protocol):
    """What models without memory are fitted to."""

    @property
    def counts(self) -> tuple[Floats, Floats]:
        """(tried, accepted) by draft position."""


@dataclass(frozen=True)
class Trials:
    """Samples as Bernoulli trials, arrays (requests, positions). outcome: 1 accepted, 0 rejected, -1 unknown.
    level: draft position, from 0. text: (requests,) index of the prompt; requests with the same prompt share
    the request's effect.
    """

    outcome: NDArray[np.int8]
    level: NDArray[np.int8]
    text: NDArray[np.int64]

    @property
    def counts(self) -> tuple[Floats, Floats]:
        """(tried, accepted) counts by draft position, (levels,) each."""
        width = int(self.level.max(initial=0)) + 1
        observed = self.outcome != _UNKNOWN
        tried = np.bincount(self.level[observed], minlength=width).astype(np.float64)
        accepted = np.bincount(self.level[self.outcome == 1], minlength=width).astype(np.float64)
        return tried, accepted


def trials_of(samples: Sequence[RequestSample]) -> Trials:
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


def fit_all(samples: Sequence[RequestSample]) -> list[Fit]:
    """Return all models fitted to the samples, best BIC first; the gated one only if some rounds have no
    drafts.
    """
    trials = trials_of(samples)
    fits = [fit_geometric(trials), fit_positional(trials), fit_decay(trials), fit_hierarchical(trials)]
    if any(drafted == 0 for sample in samples for drafted in sample.drafted):
        fits.append(fit_gated(trials, samples))
    return sorted(fits, key=lambda fit: fit.bic)


def fit_geometric(trials: Counted) -> Fit:
    """One rate for all drafts."""
    tried, accepted = trials.counts
    alpha = float(accepted.sum() / tried.sum())
    likelihood = _independent(tried, accepted, np.full(len(tried), alpha))
    return Fit(Geometric(alpha), {"model": "geometric", "alpha": alpha}, 1, int(tried.sum()), likelihood)


def fit_positional(trials: Counted) -> Fit:
    """One rate per draft position."""
    tried, accepted = trials.counts
    positions = int((tried > 0).sum())
    rates = accepted[:positions] / tried[:positions]
    likelihood = _independent(tried[:positions], accepted[:positions], rates)
    entry = {"model": "positional", "conditional": rates.tolist()}
    return Fit(Positional(tuple(rates.tolist())), entry, positions, int(tried.sum()), likelihood)


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


def fit_gated(trials: Trials, samples: Sequence[RequestSample]) -> Fit:
    """The rates `first` and `run` of rounds with a match, and the match probability, which does not affect
    the trials.
    """
    tried, accepted = trials.counts
    gate = gate_of(samples)
    rates = np.full(len(tried), gate.run)
    rates[0] = gate.first
    likelihood = _independent(tried, accepted, rates)
    return Fit(gate, {"model": "gated", **gated_json(gate)}, 2, int(tried.sum()), likelihood)


def fit_hierarchical(trials: Trials) -> Fit:
    """Decay with an effect per request and, if BIC prefers it, a drift along the output."""
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
    static_point, static_cost = _minimum(cost(without_drift), start)
    drift_point, drift_cost = static_point, static_cost
    # The search for a drift is expensive, so it runs only if one of a few guesses improves the likelihood.
    guesses = [[*static_point, math.log(sd), memory] for sd in (0.3, 0.9) for memory in (0.0, 3.0)]
    best_guess = min(guesses, key=lambda point: cost(with_drift)(np.array(point)))
    if cost(with_drift)(np.array(best_guess)) < static_cost - 1.0:
        drift_point, drift_cost = _minimum(cost(with_drift), best_guess)
    has_drift = 2.0 * (static_cost - drift_cost) > 2.0 * math.log(count)
    model = with_drift(drift_point) if has_drift else without_drift(static_point)
    entry = {
        "model": "hierarchical",
        "alpha": model.alpha,
        "delta": model.delta,
        "request_sd": model.request_sd,
        "drift_sd": model.drift_sd,
        "drift_correlation": model.drift_correlation,
    }
    return Fit(model, entry, 5 if has_drift else 3, count, -(drift_cost if has_drift else static_cost))


_STATES = 13
"""Number of grid points of the request's effect, and of the drift's states."""


def hierarchical_log_likelihood(model: Hierarchical, trials: Trials) -> float:
    """Return the log likelihood of all trials.

    It uses the forward recursion over the drift's states for every effect of the request. Requests with the
    same text share the effect.
    """
    grid = np.linspace(-3.0, 3.0, _STATES)
    weights = np.exp(-0.5 * grid**2)
    weights /= weights.sum()
    drifts, stationary, transitions = rouwenhorst(
        _STATES if model.drift_sd > 0.0 else 1, model.drift_correlation
    )
    effects = model.request_sd * grid[:, None] + model.drift_sd * drifts[None, :]
    width = int(trials.level.max(initial=0)) + 1
    chances = logistic(model.mu + effects[None] - model.delta * np.arange(width)[:, None, None])
    forward = np.broadcast_to(stationary, (len(trials.outcome), *effects.shape)).copy()
    total = np.zeros((len(trials.outcome), _STATES))
    for place in range(trials.outcome.shape[1]):
        if place and len(drifts) > 1:
            forward = forward @ transitions
        outcome = trials.outcome[:, place]
        chance = chances[trials.level[:, place]]
        forward *= np.where((outcome == 1)[:, None, None], chance, 1.0)
        forward *= np.where((outcome == 0)[:, None, None], 1.0 - chance, 1.0)
        scale = np.maximum(forward.sum(axis=2), 1e-300)
        total += np.log(scale)
        forward /= scale[:, :, None]
    by_text = np.zeros((int(trials.text.max()) + 1, _STATES))
    np.add.at(by_text, trials.text, total)
    joint = by_text + np.log(weights)
    top = joint.max(axis=1, keepdims=True)
    return float((top[:, 0] + np.log(np.exp(joint - top).sum(axis=1))).sum())


def rouwenhorst(states: int, correlation: float) -> tuple[Floats, Floats, Floats]:
    """Return (values, stationary shares, transition matrix) of a Markov chain that matches an AR(1) process.

    Mean 0, variance 1 and the correlation are exact (Rouwenhorst 1995; Kopecky and Suen 2010).
    """
    if states == 1:
        return np.zeros(1), np.ones(1), np.ones((1, 1))
    stay = (1.0 + correlation) / 2.0
    transitions = np.array([[stay, 1.0 - stay], [1.0 - stay, stay]])
    for count in range(3, states + 1):
        larger = np.zeros((count, count))
        larger[:-1, :-1] += stay * transitions
        larger[:-1, 1:] += (1.0 - stay) * transitions
        larger[1:, :-1] += (1.0 - stay) * transitions
        larger[1:, 1:] += stay * transitions
        larger[1:-1] /= 2.0
        transitions = larger
    reach = math.sqrt(states - 1.0)
    shares = np.array([math.comb(states - 1, k) for k in range(states)]) / 2.0 ** (states - 1)
    return np.linspace(-reach, reach, states), shares, transitions


def _independent(tried: Floats, accepted: Floats, rates: Floats) -> float:
    """Log likelihood of independent trials, with 0 · log 0 = 0."""
    from scipy.special import xlogy

    return float((xlogy(accepted, rates) + xlogy(tried - accepted, 1.0 - rates)).sum())


def _minimum(cost: Callable[[Floats], float], start: Sequence[float]) -> tuple[Floats, float]:
    """The minimum (point, value) of a simplex search, restarted from its end until that gains nothing."""
    from scipy.optimize import minimize

    point, value = np.array(start), math.inf
    for _ in range(_MAX_SEARCHES):
        options = {"maxfev": _EVALUATIONS_PER_SEARCH, "xatol": 1e-3, "fatol": 1e-2}
        result = minimize(cost, point, method="Nelder-Mead", options=options)
        gain, point, value = value - float(result.fun), result.x, float(result.fun)
        if result.success and gain < 0.1:
            break
    return point, value


def _logit(rate: float) -> float:
    rate = min(max(rate, 1e-3), 1.0 - 1e-3)
    return math.log(rate / (1.0 - rate))
