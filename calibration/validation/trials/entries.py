"""A stated acceptance as the `acceptance` entry of a scenario's arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simulator.acceptance import Hierarchical
from simulator.acceptance.base import logit
from simulator.roots import bracketed_root
from simulator.theory import harmonic_mean, tokens_per_verify

Entry = dict[str, Any]

FALL_PER_POSITION = 0.1
"""Fall of the logit of conditional acceptance per position that carries a length from one K to another: the
survivals of vllm:test_acceptance_length fall by 0.09 (Llama-3.1-8B) and 0.2 (gpt-oss-20b), those of arXiv
2601.11580 by less.
"""
REQUEST_SD: Mapping[str, float] = {"gsm8k": 0.2, "sharegpt": 0.4}
USUAL_REQUEST_SD = 0.3
"""Spread of acceptance between requests, in logits: between the tenth and the ninetieth percentile of the
requests' own lengths in arXiv 2601.11580 (cases sdb_trace_gsm8k_eagle3 and sdb_trace_sharegpt_eagle3, K = 1
to 7), less the luck of a request's rounds; for other text between the two.
"""
_MATCH: Mapping[str, float] = {"sharegpt": 0.2, "cnn_dailymail": 0.4, "gsm8k": 0.2, "instructcoder": 0.8}
USUAL_MATCH = 0.3
"""Share of rounds that find an n-gram again (case sdb_cost_fit_l8_h100), and for other text."""
_RUN = 0.75
"""Conditional acceptance after a find's first token: between GSM8K's 0.6 and ShareGPT's 0.85 (sdb_trace)."""
_MOST, _LEAST = 1 - 1e-3, 1e-4
"""Bounds of a rate that a logit can still shift."""


def entry_of_length(length: float, at: int, draft_length: int, datasets: Sequence[str]) -> Entry:
    """A chain for an arm that drafts `draft_length`, of requests that differ: at draft length `at`, all their
    tokens per all their rounds are `length`.
    """
    if length >= at + 1:
        return {"model": "geometric", "alpha": 1.0}
    if length <= 1:
        return {"model": "geometric", "alpha": 0.0}
    delta = 0.0 if at == draft_length else FALL_PER_POSITION
    spread = {"delta": delta, "request_sd": request_sd(datasets)}

    def shown(mu: float) -> float:
        """The requests' tokens per round: a slow one has more rounds."""
        return harmonic_mean(*Hierarchical(mu, **spread).mean_acceptance_lengths_by_request(at))

    mu = bracketed_root(lambda mu: shown(mu) - length, logit(_LEAST), logit(_MOST))
    mean = Hierarchical(mu, **spread).mean_acceptance_length(at)
    return {"model": "hierarchical", "mean_acceptance_length": mean, "at_draft_length": at, **spread}


def request_sd(datasets: Sequence[str]) -> float:
    """How much requests of these data sets differ, in logits."""
    return next((REQUEST_SD[name] for name in datasets if name in REQUEST_SD), USUAL_REQUEST_SD)


def length_of_survival(survival: Sequence[float], draft_length: int) -> float:
    """Tokens per round at K; beyond what is known, conditional acceptance stays as it was last."""
    found = list(survival[:draft_length])
    before = found[-2] if len(found) > 1 else 1.0
    ratio = found[-1] / before if before > 0 else 0.0
    while len(found) < draft_length:
        found.append(found[-1] * ratio)
    return 1.0 + sum(found)


def entry_of_lookup(
    length: float,
    at: int,
    datasets: Sequence[str],
    survival: Sequence[float] = (),
    drafted_rounds_only: bool = False,
) -> Entry:
    """A lookup that finds something in a share of rounds, and whose finds then run.

    `length` at draft length `at` counts all rounds, or only those that found something.
    """
    match = next((_MATCH[name] for name in datasets if name in _MATCH), USUAL_MATCH)
    run = _RUN  # a find whose first token passes gives `tokens_per_verify(run, at - 1)` tokens
    if len(survival) > 1 and survival[-1] > 0:
        run = min((survival[-1] / survival[0]) ** (1 / (len(survival) - 1)), _MOST)
    accepted = min(max(length - 1, _LEAST), at * _MOST)
    if not drafted_rounds_only:
        # The usual share of finds, unless more are needed to get there.
        match = max(match, min(accepted / (_MOST * tokens_per_verify(run, at - 1)), 1.0))
        accepted = accepted / match
    if accepted > _MOST * tokens_per_verify(run, at - 1) * (1 + 1e-9):
        run = bracketed_root(lambda rate: _MOST * tokens_per_verify(rate, at - 1) - accepted, 0.0, 1.0)
    first = min(max(accepted / tokens_per_verify(run, at - 1), _LEAST), _MOST)
    return {"model": "gated", "match": match, "first": first, "run": run}
