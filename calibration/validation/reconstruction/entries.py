"""Turns a stated acceptance into the `acceptance` entry of a variant."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from simulator.acceptance import Gated, Hierarchical
from simulator.breakeven.theory import harmonic_mean
from simulator.numerics.roots import bracketed_root

Entry = dict[str, Any]

FALL_PER_POSITION = 0.1
"""Decrease per position of the logit of conditional acceptance, used to convert a length from one K to
another. It is 0.09 (Llama-3.1-8B) and 0.2 (gpt-oss-20b) in vllm:test_acceptance_length, and less in arXiv
2601.11580.
"""
REQUEST_SD: Mapping[str, float] = {"gsm8k": 0.17, "sharegpt": 0.4}
_USUAL_REQUEST_SD = 0.3
"""Standard deviation of acceptance between requests, in logits. It is derived from the 10th and 90th
percentile of the requests' own lengths in arXiv 2601.11580 (cases sdb_trace_gsm8k_eagle3 and
sdb_trace_sharegpt_eagle3, K = 1 to 7), less the sampling noise of a request's rounds. Other text gets a value
between the two.
"""
MATCH_SD: Mapping[str, float] = {"gsm8k": 0.45, "sharegpt": 0.8}
_USUAL_MATCH_SD = 0.6
"""The same for the probability of an n-gram match (cases sdb_trace_gsm8k_ngram, sdb_trace_sharegpt_ngram)."""
_MATCH: Mapping[str, float] = {"sharegpt": 0.2, "cnn_dailymail": 0.4, "gsm8k": 0.2, "instructcoder": 0.8}
USUAL_MATCH = 0.3
"""Share of rounds with an n-gram match, for text not in `_MATCH` (case sdb_cost_fit_l8_h100)."""
_RUN = 0.75
"""Conditional acceptance after the first token of a match: between GSM8K's 0.6 and ShareGPT's 0.85
(sdb_trace).
"""
_MOST, _LEAST = 1 - 1e-3, 1e-4
"""Largest and smallest rate in a fit; beyond them a shift of the logit has no effect."""
_REACH = 30.0
"""Logits beyond which acceptance is 0 or 1."""
_NEAR = 1e-6
"""Distance in tokens per round from 1 or K + 1 within which acceptance counts as 0 or 1."""


def entry_of_length(length: float, at: int, draft_length: int, datasets: Sequence[str]) -> Entry:
    """A chain for a variant that drafts `draft_length` tokens, with a spread between requests.

    At draft length `at`, all tokens divided by all rounds are `length`.
    """
    if not 1 + _NEAR < length < at + 1 - _NEAR:
        return {"model": "geometric", "alpha": float(length > 1 + _NEAR)}
    delta = 0.0 if at == draft_length else FALL_PER_POSITION
    spread = {"delta": delta, "request_sd": _value_of(REQUEST_SD, datasets, _USUAL_REQUEST_SD)}

    def tokens_per_round(mu: float) -> float:
        """Tokens per round over all requests. A request with low acceptance has more rounds."""
        return harmonic_mean(*Hierarchical(mu, **spread).mean_acceptance_lengths_by_request(at))

    mu = bracketed_root(lambda mu: tokens_per_round(mu) - length, -_REACH, _REACH)
    mean = Hierarchical(mu, **spread).mean_acceptance_length(at)
    return {"model": "hierarchical", "mean_acceptance_length": mean, "at_draft_length": at, **spread}


def length_of_survival(survival: Sequence[float], draft_length: int) -> float:
    """Tokens per round at K; beyond the stated positions, conditional acceptance stays at its last value."""
    extended = list(survival[:draft_length])
    previous = extended[-2] if len(extended) > 1 else 1.0
    ratio = extended[-1] / previous if previous > 0 else 0.0
    while len(extended) < draft_length:
        extended.append(extended[-1] * ratio)
    return 1.0 + sum(extended)


def entry_of_lookup(
    length: float,
    at: int,
    datasets: Sequence[str],
    survival: Sequence[float] = (),
    drafted_rounds_only: bool = False,
) -> Entry:
    """Prompt lookup with a probability of a match and acceptance of its tokens, with a spread between
    requests.

    `length` at draft length `at` counts all rounds or, with `drafted_rounds_only`, the rounds with a match.
    """
    match, sd = _value_of(_MATCH, datasets, USUAL_MATCH), _value_of(MATCH_SD, datasets, _USUAL_MATCH_SD)
    run = _RUN
    if len(survival) > 1 and survival[-1] > 0:
        run = min((survival[-1] / survival[0]) ** (1 / (len(survival) - 1)), _MOST)

    def tokens_per_round(gate: dict[str, float]) -> float:
        """Tokens per round over all requests."""
        model = Gated(gate["match"], 0.0, gate["first"], gate["run"], sd)
        return harmonic_mean(*model.mean_acceptance_lengths_by_request(at))

    # First raise the acceptance of a match's first token. If that does not reach the length, raise the share
    # of rounds with a match, and then the acceptance of later tokens.
    gate = {"match": 1.0 if drafted_rounds_only else match, "first": _LEAST, "run": run}
    for name in ("first", "match", "run"):
        gate = _raised(gate, name, tokens_per_round, length)
    return {"model": "gated", **gate, "request_sd": sd} | ({"match": match} if drafted_rounds_only else {})


def _raised(
    gate: dict[str, float], name: str, tokens_per_round: Callable[[dict[str, float]], float], length: float
) -> dict[str, float]:
    """The gate with one rate raised until the length is reached, or raised to its maximum."""

    def with_rate(rate: float) -> dict[str, float]:
        return {**gate, name: rate}

    if tokens_per_round(gate) >= length:
        return gate
    if tokens_per_round(with_rate(_MOST)) <= length:
        return with_rate(_MOST)
    return with_rate(
        bracketed_root(lambda rate: tokens_per_round(with_rate(rate)) - length, gate[name], _MOST)
    )


def _value_of(values: Mapping[str, float], datasets: Sequence[str], usual: float) -> float:
    """The value of the first of these data sets that has one, else the usual value."""
    return next((values[name] for name in datasets if name in values), usual)
