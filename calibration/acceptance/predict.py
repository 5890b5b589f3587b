"""The mean acceptance length that an acceptance model predicts for requests of a given length."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from simulator.acceptance import AcceptanceModel
from simulator.numerics.arrays import Floats

REQUESTS = 4000


def predicted_length(model: AcceptanceModel, draft_length: int, output_tokens: int) -> float:
    """Return tokens per round with a draft, for requests that decode `output_tokens` tokens.

    Requests with lower acceptance take more rounds and so have more weight. Without effects the result is 1 +
    the sum of S_j; with effects it is simulated with 4,000 requests and fixed random numbers.
    """
    if not model.effects.any:
        return 1.0 + float(np.cumprod(model.conditional_at(np.zeros(1), draft_length)[0]).sum())
    rounds = decode(model, draft_length, output_tokens, REQUESTS, np.random.default_rng(0))
    return 1.0 + float(np.mean([accepted for request in rounds for accepted in request]))


def decode(
    model: AcceptanceModel,
    draft_length: int,
    output_tokens: int,
    requests: int,
    generator: np.random.Generator,
) -> list[list[int]]:
    """Return the accepted drafts of every round, for requests drawn from a model.

    A request has a normal effect, a drift along output positions, and one uniform per position. Matches of
    gated models are left out.
    """
    width = output_tokens + draft_length
    effects = model.effects.request_sd * generator.standard_normal((requests, 1)) + np.zeros(width)
    if model.effects.drift_sd > 0.0:
        effects = effects + _drift(model, requests, width, generator)
    uniforms = generator.random((requests, width))
    position = np.ones(requests, dtype=np.int64)  # the first token comes with the prompt
    rounds: list[list[int]] = [[] for _ in range(requests)]
    while (running := np.flatnonzero(position < output_tokens)).size:
        accepting: NDArray[np.bool_] = np.ones(running.size, dtype=np.bool_)
        accepted = np.zeros(running.size, dtype=np.int64)
        for j in range(draft_length):
            positions = position[running] + j
            chance = model.conditional_at(effects[running, positions], draft_length)[:, j]
            accepting = accepting & (uniforms[running, positions] < chance)
            accepted += accepting
        for request, count in zip(running.tolist(), accepted.tolist(), strict=True):
            rounds[request].append(count)
        position[running] += accepted + 1
    return rounds


def _drift(model: AcceptanceModel, requests: int, width: int, generator: np.random.Generator) -> Floats:
    """A stationary AR(1) process along positions, (requests, width)."""
    correlation = model.effects.drift_correlation
    innovation_sd = math.sqrt(1.0 - correlation**2)
    shocks = generator.standard_normal((width, requests))
    for position in range(1, width):
        shocks[position] = correlation * shocks[position - 1] + innovation_sd * shocks[position]
    drift: Floats = model.effects.drift_sd * shocks.T
    return drift
