"""The mean acceptance length that a run shows under an acceptance model, requests of a given length."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from simulator.acceptance import AcceptanceModel
from simulator.acceptance.base import Floats

REQUESTS = 4000


def shown_length(model: AcceptanceModel, draft_length: int, output_tokens: int) -> float:
    """Return tokens per round of requests that decode `output_tokens` tokens.

    Of rounds with a draft. Requests that accept less take more rounds and so weigh more: without effects
    this is 1 + the sum of S_j, with them it is drawn (4,000 requests, always the same luck).
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
    """Return the accepted drafts of every round of requests drawn from a model: one normal effect a request,
    a drift along output positions, one uniform a position. Leaves out matches (gated models).
    """
    width = output_tokens + draft_length
    effects = model.effects.request_sd * generator.standard_normal((requests, 1)) + np.zeros(width)
    if model.effects.drift_sd > 0.0:
        effects = effects + _drift(model, requests, width, generator)
    luck = generator.random((requests, width))
    place = np.ones(requests, dtype=np.int64)  # the first token comes with the prompt
    rounds: list[list[int]] = [[] for _ in range(requests)]
    while (running := np.flatnonzero(place < output_tokens)).size:
        alive: NDArray[np.bool_] = np.ones(running.size, dtype=np.bool_)
        accepted = np.zeros(running.size, dtype=np.int64)
        for j in range(draft_length):
            here = place[running] + j
            chance = model.conditional_at(effects[running, here], draft_length)[:, j]
            alive = alive & (luck[running, here] < chance)
            accepted += alive
        for request, count in zip(running.tolist(), accepted.tolist(), strict=True):
            rounds[request].append(count)
        place[running] += accepted + 1
    return rounds


def _drift(model: AcceptanceModel, requests: int, width: int, generator: np.random.Generator) -> Floats:
    """AR(1) along positions, stationary, shape (requests, width)."""
    correlation = model.effects.drift_correlation
    fresh = math.sqrt(1.0 - correlation**2)
    shocks = generator.standard_normal((width, requests))
    for place in range(1, width):
        shocks[place] = correlation * shocks[place - 1] + fresh * shocks[place]
    drift: Floats = model.effects.drift_sd * shocks.T
    return drift
