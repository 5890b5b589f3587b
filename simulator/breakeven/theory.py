"""Closed forms: tokens per verify, speedup, break-even, best draft length, queues, roofline bounds.

What a simulation is tested against and what a person can check by hand. K = draft length, E = tokens per
verified round, o = T_speculative / T_plain - 1 at equal batch and contexts (the overhead), G = E / (1 + o)
the speedup. Required values are None when no acceptance below 1 reaches the target. Leaves out what only
the simulation knows: padding, prefill, stops, memory, a batch that answers to the speed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.errors import InputError, Problem
from simulator.numerics.roots import bracketed_root

Floats = NDArray[np.float64]


def tokens_per_verify(alpha: float, draft_length: int) -> float:
    """Return E = (1 - alpha^(K+1)) / (1 - alpha): endless output, i.i.d. acceptance
    (arXiv 2211.17192, eq. 1).
    """
    _check(alpha, draft_length)
    return math.fsum(alpha**j for j in range(draft_length + 1))


def acceptance_rate(alpha: float, draft_length: int) -> float:
    """Return A = (E - 1) / K, accepted ÷ drafted, of i.i.d. acceptance alpha. K >= 1."""
    _check(alpha, draft_length, 1)
    return (tokens_per_verify(alpha, draft_length) - 1.0) / draft_length


def alpha_from_tokens_per_verify(tokens: float, draft_length: int) -> float | None:
    """Return the i.i.d. acceptance with E = `tokens` at K; None outside 1 <= E <= K + 1."""
    _check(0.0, draft_length, 1)
    if not 1.0 <= tokens <= draft_length + 1.0:
        return None
    return bracketed_root(lambda alpha: tokens_per_verify(alpha, draft_length) - tokens, 0.0, 1.0)


def alpha_from_acceptance_rate(rate: float, draft_length: int) -> float | None:
    """Return the i.i.d. acceptance a* that has the acceptance rate A* at K:
    the same point under its other name.
    """
    return alpha_from_tokens_per_verify(1.0 + draft_length * rate, draft_length)


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
    _check(alpha, draft_length)
    if output_tokens < 1:
        raise InputError(
            Problem(field="output_tokens", value=output_tokens, message="is below 1", allowed="1 or more")
        )
    return output_tokens / rounds_to_emit([alpha**j for j in range(1, draft_length + 1)], output_tokens)


def speedup(tokens: float, overhead: float) -> float:
    """Return G = E / (1 + o) at equal batch and contexts."""
    return tokens / (1.0 + overhead)


def overhead(
    verify_ratio: float, draft_pass_ratio: float, draft_length: int, host_ratio: float = 0.0
) -> float:
    """Return o = v - 1 + h + K c: v verify ÷ plain step, c one draft pass ÷ plain step,
    h extra host and sampling ÷ plain step.
    """
    return verify_ratio - 1.0 + host_ratio + draft_length * draft_pass_ratio


def required_acceptance_linear(overhead: float, draft_length: int, speedup: float = 1.0) -> float | None:
    """Return A* = (G (1 + o) - 1) / K, the acceptance rate *at this K* that gives the speedup (an
    identity); 0 if none is needed.
    """
    _check(0.0, draft_length, 1)
    needed = speedup * (1.0 + overhead)
    return None if needed >= draft_length + 1.0 else max(0.0, (needed - 1.0) / draft_length)


def required_alpha_geometric(overhead: float, draft_length: int, speedup: float = 1.0) -> float | None:
    """Return a*, the i.i.d. acceptance that gives the speedup: root of E(a) = G (1 + o); 0 if none is needed.

    It exists iff G (1 + o) < K + 1; for break-even (G = 1)
    iff o < K (arXiv 2211.17192, extended by the verify cost).
    """
    _check(0.0, draft_length, 1)
    needed = speedup * (1.0 + overhead)
    if needed >= draft_length + 1.0:
        return None
    return alpha_from_tokens_per_verify(max(1.0, needed), draft_length)


def leviathan_gain(alpha: float, cost_ratio: float, draft_length: int) -> float:
    """Return the gain (1 - a^(K+1)) / ((1 - a)(c K + 1)) with a free verify (arXiv 2211.17192, theorem 3.8).

    Some K gains iff alpha > c (corollary 3.9). For serving, take c = marginal cost of one more draft
    token, verify slope included.
    """
    return tokens_per_verify(alpha, draft_length) / (cost_ratio * draft_length + 1.0)


def leviathan_operations(alpha: float, operations_ratio: float, draft_length: int) -> float:
    """Return the growth of arithmetic (1 - a)(ĉ K + K + 1) / (1 - a^(K+1)),
    ĉ = operations of drafter ÷ target (theorem 3.11).
    """
    return (operations_ratio * draft_length + draft_length + 1.0) / tokens_per_verify(alpha, draft_length)


def best_draft_length(alpha: float, cost_ratio: float, max: int = 64) -> int:
    """Return the K in 0..max with the largest `leviathan_gain`;
    the smallest of equals. 0: speculation does not pay.
    """
    gains = [leviathan_gain(alpha, cost_ratio, draft_length) for draft_length in range(max + 1)]
    return int(np.argmax(gains))


def best_draft_length_of(tokens: Sequence[float], cycle_s: Sequence[float]) -> int:
    """Return the K with the most tokens per second, given E and the cycle time
    at each K = 0, 1, …; the smallest of equals.

    On a concave curve it is where S_{K+1} / E(K) stops exceeding (T(K+1) - T(K)) / T(K) (BE-K).
    """
    return int(np.argmax(np.asarray(tokens, dtype=np.float64) / np.asarray(cycle_s, dtype=np.float64)))


def harmonic_mean(tokens: ArrayLike, shares: ArrayLike | None = None) -> float:
    """Return 1 / mean(1 / E_i): tokens per round of requests that differ, by their shares of the *output*.

    In a closed loop with fixed output lengths a request stays for a time proportional to 1 / E_i,
    so the slow ones are met more often: mean TPOT = T_speculative · mean(1 / E_i),
    never less than T_speculative / mean(E).
    """
    values = np.asarray(tokens, dtype=np.float64)
    weights = np.ones_like(values) if shares is None else np.asarray(shares, dtype=np.float64)
    return float(weights.sum() / (weights / values).sum())


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


def roofline_bounds_s(
    moved_bytes: float, flops: float, bandwidth_bytes_per_s: float, peak_flops_per_s: float
) -> tuple[float, float]:
    """Return (perfect overlap, no overlap) of memory and arithmetic
    at peak rates; what runs at peak lies between.
    """
    memory_s, compute_s = moved_bytes / bandwidth_bytes_per_s, flops / peak_flops_per_s
    return max(memory_s, compute_s), memory_s + compute_s


def ridge_tokens(peak_flops_per_s: float, bandwidth_bytes_per_s: float, bytes_per_parameter: float) -> float:
    """Return the tokens per pass at which reading a weight matrix takes as long
    as multiplying by it (295 for H100 bf16).
    """
    return peak_flops_per_s * bytes_per_parameter / (2.0 * bandwidth_bytes_per_s)


def _check(alpha: float, draft_length: int, least: int = 0) -> None:
    if not 0.0 <= alpha <= 1.0:
        raise InputError(
            Problem(field="alpha", value=alpha, message="is out of range", allowed="a number from 0 to 1")
        )
    if draft_length < least:
        raise InputError(
            Problem(
                field="draft_length",
                value=draft_length,
                message=f"is below {least}",
                allowed=f"{least} or more",
            )
        )
