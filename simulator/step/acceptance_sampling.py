"""Acceptance sampling: how many of one round's drafts are accepted.

Every random number belongs to an output position of a request, never to a step. So a request meets the same
random numbers whatever the draft length, the batch and the driver, and asking twice changes nothing.
"""

from __future__ import annotations

import math

from simulator.acceptance.base import GATED, TRACE
from simulator.numerics.compiled import compiled
from simulator.numerics.random_numbers import (
    STREAM_DRIFT,
    STREAM_LENGTH,
    STREAM_MATCH,
    random_bits,
    stream_key,
    uniform,
)
from simulator.step.views import (
    Engine,
    depth_by_nodes_of,
    item,
    match_drafts_of,
    match_probability_of,
    normal_quantiles_of,
    request_at,
    request_effect_of,
    survival_bits_of,
    totals_of,
    trace_lengths_of,
    trace_start_of,
)


@compiled(inline=True)
def _finds_match(e: Engine, r: int) -> bool:
    """Return whether the prompt lookup for the round that starts after the emitted tokens of request `r`
    finds a match (a Markov chain: it depends on the match before).
    """
    q = request_at(e, r)
    u = uniform(stream_key(e.seed, r, STREAM_MATCH), q.emitted + 1)
    row = r if e.match_by_request else q.traffic_class
    return u < match_probability_of(e)[2 * row + q.matched]


@compiled(inline=True)
def prompt_lookup(e: Engine, r: int) -> bool:
    """Look up the newest tokens of request `r` in its context, remember whether they match, and return it."""
    q = request_at(e, r)
    q.matched = _finds_match(e, r)
    totals_of(e)[0].match_lookups += 1
    totals_of(e)[0].matches += q.matched
    return q.matched == 1


@compiled(inline=True)
def drafts_of_match(e: Engine, r: int, drafts: int) -> int:
    """Return how many of `drafts` drafts the match of request `r` brings, for the round that starts after its
    emitted tokens: no more than the tokens that matched.
    """
    if e.match_levels == 0:
        return drafts
    q = request_at(e, r)
    u = uniform(stream_key(e.seed, r, STREAM_LENGTH), q.emitted + 1)
    return min(drafts, item(match_drafts_of(e), q.traffic_class * e.match_levels + int(u * e.match_levels)))


@compiled()
def _drift_after(e: Engine, r: int, position: int, before: float) -> float:
    """Return the drift at output `position` from the drift `before` it: AR(1) along the output
    (docs/acceptance.md).
    """
    u = uniform(stream_key(e.seed, r, STREAM_DRIFT), position)
    z = normal_quantiles_of(e)[int(u * len(normal_quantiles_of(e)))]
    if position == 1:
        return e.drift_sd * z
    rho = e.drift_correlation
    return rho * before + e.drift_sd * math.sqrt(1.0 - rho * rho) * z


@compiled()
def advance_drift(e: Engine, r: int, tokens: int) -> None:
    """Carry the drift of request `r` over its next `tokens` output positions, before they are emitted."""
    q = request_at(e, r)
    drift = q.drift
    for position in range(q.emitted + 1, q.emitted + tokens + 1):
        drift = _drift_after(e, r, position, drift)
    q.drift = drift


@compiled(inline=True)
def _bin(e: Engine, effect: float) -> int:
    return min(max(int((effect - e.effect_low) * e.effect_bins_per_unit), 0), e.bins - 1)


@compiled(inline=True)
def accepted_drafts(e: Engine, r: int, drafts: int) -> int:
    """Return how many of the `drafts` drafts of request `r` are accepted: one after another along the output,
    as deep as the shape of these drafts reaches.

    Of a tree only the length of the accepted path counts. Its thresholds are effective ones: the probability
    that any node at depth j is accepted after one at depth j - 1 was.
    """
    q = request_at(e, r)
    depth = item(depth_by_nodes_of(e), drafts)
    if e.acceptance_kind == TRACE:
        sequence = r % (len(trace_start_of(e)) - 1)
        first = trace_start_of(e)[sequence]
        length = trace_lengths_of(e)[first + q.emitted % (trace_start_of(e)[sequence + 1] - first)]
        return min(length - 1, depth)
    if e.acceptance_kind == GATED and not (q.matched if e.ragged else _finds_match(e, r)):
        return 0
    if e.match_levels > 0:
        depth = drafts_of_match(e, r, depth)
    effect = 0.0
    row = 0
    if e.bins > 1:
        effect = request_effect_of(e)[r]
        row = _bin(e, effect)
    thresholds = survival_bits_of(e)
    first = (q.traffic_class * e.bins + row) * e.positions
    if e.drift_sd == 0.0:
        accepted = 0
        alive = 1
        # All positions are drawn. To stop at the first rejection costs more: no processor can predict where
        # that jump comes.
        for j in range(depth):
            alive &= random_bits(q.random_key, q.emitted + 1 + j) < item(thresholds, first + j)
            accepted += alive
        return accepted
    drift = q.drift
    for j in range(depth):
        position = q.emitted + 1 + j
        drift = _drift_after(e, r, position, drift)
        row = _bin(e, effect + drift)
        if (
            random_bits(q.random_key, position)
            >= thresholds[(q.traffic_class * e.bins + row) * e.positions + j]
        ):
            return j
    return depth
