"""Closed forms: tokens per verify, speedup, break-even, best draft length.

What a simulation is tested against and what a person can check by hand. K = draft length, E = tokens per
verified round, o = T_speculative / T_plain - 1 at equal batch and contexts (the overhead), G = E / (1 + o)
the speedup. Required values are None when no acceptance below 1 reaches the target. Leaves out what only
the simulation knows: padding, prefill, stops, memory, a batch that answers to the speed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from simulator.errors import InputError, Problem
from simulator.numerics.roots import bracketed_root


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
