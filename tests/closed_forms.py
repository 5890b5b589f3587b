"""Closed forms that simulations are tested against: finite outputs, queues, Little's law."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def rounds_to_emit(survival: Sequence[float], output_tokens: int) -> float:
    """Return the mean number of rounds that emit `output_tokens` tokens, the last round cut at the stop.

    `survival` = S_1..S_K. Exact, by recursion on the tokens left: R(n) = 1 + sum over x
    of P(x accepted) R(n - x - 1), R = 0 from 0 down. Rounds are independent; the token that prefill
    emits is not among the `output_tokens`.
    """
    at_least = np.concatenate([[1.0], np.asarray(survival, dtype=np.float64), [0.0]])
    chances = at_least[:-1] - at_least[1:]
    widest = len(chances)
    rounds = np.zeros(max(0, output_tokens) + widest)  # index n + widest - 1; zeros stand for n <= 0
    for left in range(1, output_tokens + 1):
        before = rounds[left - 1 : left - 1 + widest][::-1]
        rounds[left + widest - 1] = 1.0 + float(chances @ before)
    return float(rounds[-1]) if output_tokens > 0 else 0.0


def finite_tokens_per_verify(alpha: float, draft_length: int, output_tokens: int) -> float:
    """Return tokens ÷ mean rounds for outputs of `output_tokens` tokens after the first, i.i.d. acceptance.

    The endless form overstates it, because the last round is cut at the stop:
    by 7 % at alpha 0.9, K = 4, 20 tokens.
    """
    return output_tokens / rounds_to_emit([alpha**j for j in range(1, draft_length + 1)], output_tokens)


def mg1_wait_s(arrival_rate_per_s: float, service_mean_s: float, service_cv: float) -> float:
    """Return the mean wait in queue of M/G/1: rho s (1 + cv²) / (2 (1 - rho))
    (Pollaczek–Khinchine); inf when saturated.
    """
    load = arrival_rate_per_s * service_mean_s
    if load >= 1.0:
        return math.inf
    return load * service_mean_s * (1.0 + service_cv**2) / (2.0 * (1.0 - load))


def mm1_wait_s(arrival_rate_per_s: float, service_mean_s: float) -> float:
    """Return the mean wait in queue with exponential service."""
    return mg1_wait_s(arrival_rate_per_s, service_mean_s, 1.0)


def md1_wait_s(arrival_rate_per_s: float, service_s: float) -> float:
    """Return the mean wait in queue with constant service: half of M/M/1."""
    return mg1_wait_s(arrival_rate_per_s, service_s, 0.0)


def mm1_sojourn_quantile_s(arrival_rate_per_s: float, service_mean_s: float, quantile: float) -> float:
    """Return a quantile of wait + service in M/M/1, which is exponential; inf when saturated."""
    load = arrival_rate_per_s * service_mean_s
    return math.inf if load >= 1.0 else -service_mean_s / (1.0 - load) * math.log1p(-quantile)


def in_system(rate_per_s: float, sojourn_s: float) -> float:
    """Return the mean number in the system: Little's law L = lambda W."""
    return rate_per_s * sojourn_s
