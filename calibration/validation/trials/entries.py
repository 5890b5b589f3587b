"""A stated acceptance as the `acceptance` entry of a scenario's variant."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from simulator.acceptance import Gated, Hierarchical
from simulator.breakeven.theory import harmonic_mean
from simulator.numerics.roots import bracketed_root

Entry = dict[str, Any]

FALL_PER_POSITION = 0.1
"""Fall of the logit of conditional acceptance per position that carries a length from one K to another: the
survivals of vllm:test_acceptance_length fall by 0.09 (Llama-3.1-8B) and 0.2 (gpt-oss-20b), those of arXiv
2601.11580 by less.
"""
REQUEST_SD: Mapping[str, float] = {"gsm8k": 0.17, "sharegpt": 0.4}
_USUAL_REQUEST_SD = 0.3
"""Spread of acceptance between requests, in logits: between the tenth and the ninetieth percentile of the
requests' own lengths in arXiv 2601.11580 (cases sdb_trace_gsm8k_eagle3 and sdb_trace_sharegpt_eagle3, K = 1
to 7), less the luck of a request's rounds; for other text between the two.
"""
MATCH_SD: Mapping[str, float] = {"gsm8k": 0.45, "sharegpt": 0.8}
_USUAL_MATCH_SD = 0.6
"""The same of how often n-grams are found again (cases sdb_trace_gsm8k_ngram, sdb_trace_sharegpt_ngram)."""
_MATCH: Mapping[str, float] = {"sharegpt": 0.2, "cnn_dailymail": 0.4, "gsm8k": 0.2, "instructcoder": 0.8}
USUAL_MATCH = 0.3
"""Share of rounds that find an n-gram again (case sdb_cost_fit_l8_h100), and for other text."""
_RUN = 0.75
"""Conditional acceptance after a find's first token: between GSM8K's 0.6 and ShareGPT's 0.85 (sdb_trace)."""
_MOST, _LEAST = 1 - 1e-3, 1e-4
"""Bounds of a rate that a logit can still shift."""
_REACH = 30.0
"""Logits beyond which all or nothing is accepted."""
_NEAR = 1e-6
"""Tokens per round from either end at which that is so."""


def entry_of_length(length: float, at: int, draft_length: int, datasets: Sequence[str]) -> Entry:
    """A chain for a variant that drafts `draft_length`, of requests that differ: at draft length `at`,
    all their
    tokens per all their rounds are `length`.
    """
    if not 1 + _NEAR < length < at + 1 - _NEAR:
        return {"model": "geometric", "alpha": float(length > 1 + _NEAR)}
    delta = 0.0 if at == draft_length else FALL_PER_POSITION
    spread = {"delta": delta, "request_sd": _of(REQUEST_SD, datasets, _USUAL_REQUEST_SD)}

    def shown(mu: float) -> float:
        """The requests' tokens per round: a slow one has more rounds."""
        return harmonic_mean(*Hierarchical(mu, **spread).mean_acceptance_lengths_by_request(at))

    mu = bracketed_root(lambda mu: shown(mu) - length, -_REACH, _REACH)
    mean = Hierarchical(mu, **spread).mean_acceptance_length(at)
    return {"model": "hierarchical", "mean_acceptance_length": mean, "at_draft_length": at, **spread}


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
    """A lookup that finds something in a share of rounds, and whose finds then run, of requests that differ.

    `length` at draft length `at` counts all rounds, or only those that found something.
    """
    match, sd = _of(_MATCH, datasets, USUAL_MATCH), _of(MATCH_SD, datasets, _USUAL_MATCH_SD)
    run = _RUN
    if len(survival) > 1 and survival[-1] > 0:
        run = min((survival[-1] / survival[0]) ** (1 / (len(survival) - 1)), _MOST)

    def shown(gate: dict[str, float]) -> float:
        """Tokens per round of all requests together."""
        model = Gated(gate["match"], 0.0, gate["first"], gate["run"], sd)
        return harmonic_mean(*model.mean_acceptance_lengths_by_request(at))

    # The usual share of finds whose first token passes as often as the length says; more finds, then longer
    # ones, where those would be too few.
    gate = {"match": 1.0 if drafted_rounds_only else match, "first": _LEAST, "run": run}
    for name in ("first", "match", "run"):
        gate = _raised(gate, name, shown, length)
    return {"model": "gated", **gate, "request_sd": sd} | ({"match": match} if drafted_rounds_only else {})


def _raised(
    gate: dict[str, float], name: str, shown: Callable[[dict[str, float]], float], length: float
) -> dict[str, float]:
    """The gate with a rate raised until the length is shown, or as far as it goes."""

    def at(rate: float) -> dict[str, float]:
        return {**gate, name: rate}

    if shown(gate) >= length:
        return gate
    if shown(at(_MOST)) <= length:
        return at(_MOST)
    return at(bracketed_root(lambda rate: shown(at(rate)) - length, gate[name], _MOST))


def _of(values: Mapping[str, float], datasets: Sequence[str], usual: float) -> float:
    """What is known of the first of these data sets of which something is."""
    return next((values[name] for name in datasets if name in values), usual)
