"""Acceptance as data for the compiled step: one of three samplers, its thresholds by (class, effect bin,
position), and what its random numbers need.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from simulator.acceptance.base import GATED, TABLE, TRACE, AcceptanceModel, LookupMatch, RequestEffects, fault
from simulator.numerics.arrays import Floats

EFFECT_BINS_PER_UNIT = 128
"""Bins per logit: a draft is judged at the middle of its bin,
at most 1/256 away, so c_j is off by at most 1/1024.
"""
_EFFECT_REACH_SD = 6.0
"""The grid covers ± this many standard deviations of the sum of effects; beyond, the last bin stands in."""
NORMAL_LEVELS = 1024


class RequestColumns(Protocol):
    """What is read of the requests; the workload's `Requests` has it."""

    @property
    def traffic_class(self) -> NDArray[np.int32]:
        """Class of each request, shape (n,)."""

    @property
    def output_tokens(self) -> NDArray[np.int64]:
        """Output tokens of each request, shape (n,)."""


class AcceptanceTables(NamedTuple):
    """What the step needs to decide which drafts are accepted: contiguous arrays; n requests, D positions."""

    kind: int
    """TABLE, GATED or TRACE."""
    conditional: Floats
    """(classes, bins, D): the draft at position j is accepted if u < c_j, u from STREAM_SURVIVAL at its
    output position.
    """
    request_effect: Floats
    """(n,) u_r, logits; zeros when requests do not differ."""
    effect_low: float
    """bin = clip(int((u_r + v - effect_low) * effect_bins_per_unit), 0, bins - 1)."""
    effect_bins_per_unit: float
    drift_sd: float
    """v_1 = sd·z_1, v_i = rho·v_{i-1} + sd·sqrt(1 - rho²)·z_i along output positions i; 0: no drift."""
    drift_correlation: float
    normal_quantiles: Floats
    """(1024,): z_i = normal_quantiles[int(1024 u)], u from STREAM_DRIFT at output position i; variance 1."""
    drafts: NDArray[np.bool_]
    """(classes,): the class drafts at all."""
    match_by_request: bool
    """Whether matches are of a request rather than of its class."""
    match_after_miss: Floats
    """(classes,) or (n,) GATED: P(match) of a round whose predecessor had none,
    u from STREAM_MATCH at position emitted + 1.
    """
    match_after_match: Floats
    """(classes,) or (n,) the same after a match."""
    match_drafts: NDArray[np.int64]
    """(classes, L) GATED: drafts that a match brings at most, u from STREAM_LENGTH at position emitted + 1;
    L = 0: always K.
    """
    trace_lengths: NDArray[np.int64]
    """(m,) TRACE: emission lengths of all sequences, one after the other."""
    trace_start: NDArray[np.int64]
    """(sequences + 1,): request r replays sequence r mod sequences;
    at output position i it accepts min(entry_i - 1, k).
    """
    matched_before: NDArray[np.bool_]
    """(n,) GATED: the outcome that precedes a request's first round, drawn at the long-run rate
    (STREAM_MATCH, position 0).
    """


def compile_acceptance(
    models: Sequence[AcceptanceModel | None],
    requests: RequestColumns,
    seed: int,
    depth: int,
    heterogeneity: bool = True,
    class_drafts: Sequence[bool] | None = None,
) -> AcceptanceTables:
    """Return the tables of one variant: one model per traffic class (None only where the class does not
    draft).

    `depth`: positions at which a draft can be accepted, at most. `heterogeneity` off: no effects, no
    correlation of matches, every class at the survival of all drafting classes blended by their share of
    output tokens. Raises InputError for classes that one variant cannot hold together (a trace with any other
    model, different drifts).
    """
    drafts = np.array([True] * len(models) if class_drafts is None else list(class_drafts), dtype=np.bool_)
    drafting = [(index, model) for index, model in enumerate(models) if drafts[index] and model is not None]
    if len(drafting) < int(drafts.sum()):
        raise fault("acceptance", None, "is missing for a class that drafts", "one model per traffic class")
    width = max(1, depth)
    count = len(requests.traffic_class)
    if not heterogeneity and drafting:
        return _blended(drafting, requests, width, drafts)
    kind = _common_kind([model for _, model in drafting])
    effects = _common_effects([model for _, model in drafting])
    middles, low, per_unit = _effect_grid(effects)
    conditional = np.zeros((len(models), len(middles), width))
    request_sd = np.zeros(len(models))
    for index, model in drafting:
        conditional[index] = model.conditional_at(middles, width)
        request_sd[index] = model.effects.request_sd or model.match_sd
    classes = np.asarray(requests.traffic_class)
    request_effect = np.zeros(count)
    if request_sd.any():
        request_effect = request_sd[classes] * request_normals(seed, count)
    by_request = any(model.match_sd > 0.0 for _, model in drafting)
    match = LookupMatch(*np.zeros((len(LookupMatch._fields), count if by_request else len(models))))
    for index, model in drafting:
        own = classes == index if by_request else slice(index, index + 1)
        effect = request_effect[own] if by_request else np.zeros(1)
        for chance, of_class in zip(match, model.match_at(effect), strict=True):
            chance[own] = of_class
    sequences = drafting[0][1].sequences if kind == TRACE else ()
    match_drafts = _match_drafts(len(models), drafting)
    return AcceptanceTables(
        kind=kind,
        conditional=conditional,
        request_effect=request_effect,
        effect_low=low,
        effect_bins_per_unit=per_unit,
        drift_sd=effects.drift_sd,
        drift_correlation=effects.drift_correlation,
        normal_quantiles=normal_quantiles(),
        drafts=drafts,
        match_by_request=by_request,
        match_after_miss=match.after_miss,
        match_after_match=match.after_match,
        match_drafts=match_drafts,
        trace_lengths=np.array([length for sequence in sequences for length in sequence], dtype=np.int64),
        trace_start=np.cumsum([0, *(len(sequence) for sequence in sequences)], dtype=np.int64),
        matched_before=_matched_before(
            kind, seed, match.stationary if by_request else match.stationary[classes]
        ),
    )


def _blended(
    drafting: list[tuple[int, AcceptanceModel]],
    requests: RequestColumns,
    width: int,
    drafts: NDArray[np.bool_],
) -> AcceptanceTables:
    """Return the tables of a population in which all requests are alike."""
    tokens = np.bincount(requests.traffic_class, weights=requests.output_tokens, minlength=len(drafts))
    shares = np.array([tokens[index] for index, _ in drafting], dtype=np.float64)
    shares = shares / shares.sum() if shares.sum() > 0.0 else np.full(len(drafting), 1.0 / len(drafting))
    gated = any(model.kind == GATED for _, model in drafting)
    match = float(shares @ [model.match_share for _, model in drafting])
    survival = shares @ [model.survival(width) for _, model in drafting]
    # The conditionals presuppose a match: the first is P(accept 1 | match).
    earlier = np.concatenate([[match], survival[:-1]])
    alone = shares @ [model.conditional_at(np.zeros(1), width)[0] for _, model in drafting]
    conditional = np.minimum(np.divide(survival, earlier, out=alone, where=earlier > 0.0), 1.0)
    classes, count = len(drafts), len(requests.traffic_class)
    return AcceptanceTables(
        kind=GATED if gated else TABLE,
        conditional=np.tile(conditional, (classes, 1, 1)),
        request_effect=np.zeros(count),
        effect_low=0.0,
        effect_bins_per_unit=0.0,
        drift_sd=0.0,
        drift_correlation=0.0,
        normal_quantiles=normal_quantiles(),
        drafts=drafts,
        match_by_request=False,
        match_after_miss=np.full(classes, match),
        match_after_match=np.full(classes, match),
        match_drafts=_match_drafts(classes, drafting),
        trace_lengths=np.zeros(0, dtype=np.int64),
        trace_start=np.zeros(1, dtype=np.int64),
        matched_before=np.zeros(count, dtype=np.bool_),
    )


def _match_drafts(classes: int, drafting: list[tuple[int, AcceptanceModel]]) -> NDArray[np.int64]:
    """The lengths of matches by class; none where no class has any."""
    levels = max((len(model.match_drafts) for _, model in drafting), default=0)
    lengths = np.full((classes, levels), np.iinfo(np.int64).max)
    for index, model in drafting:
        if model.match_drafts:
            lengths[index] = model.match_drafts
    return lengths


def _common_kind(models: list[AcceptanceModel]) -> int:
    """The sampler that serves all classes of a variant; a table serves behind a gate that is always open."""
    kinds = {model.kind for model in models}
    if TRACE in kinds and (len(kinds) > 1 or len({model.sequences for model in models}) > 1):
        raise fault(
            "acceptance",
            None,
            "mixes a trace with another model or trace in one variant",
            "the same trace for every class that drafts, or no trace",
        )
    return max(kinds, default=TABLE)


def _common_effects(models: list[AcceptanceModel]) -> RequestEffects:
    """The drift that all classes share, and the largest spread between requests."""
    with_effects = [model.effects for model in models if model.effects.any]
    drifts = {
        (effects.drift_sd, effects.drift_correlation if effects.drift_sd > 0.0 else 0.0)
        for effects in with_effects
    }
    if len(drifts) > 1:
        raise fault(
            "acceptance",
            sorted(drifts),
            "gives classes of one variant different drifts",
            "the same drift_sd and drift_correlation in every class with random effects",
        )
    drift_sd, drift_correlation = drifts.pop() if drifts else (0.0, 0.0)
    return RequestEffects(
        max((effects.request_sd for effects in with_effects), default=0.0), drift_sd, drift_correlation
    )


def _effect_grid(effects: RequestEffects) -> tuple[Floats, float, float]:
    """Return (middles of the bins, lower edge, bins per logit); one bin without effects."""
    if not effects.any:
        return np.zeros(1), 0.0, 0.0
    reach = _EFFECT_REACH_SD * math.hypot(effects.request_sd, effects.drift_sd)
    half = math.ceil(reach * EFFECT_BINS_PER_UNIT)
    middles = (np.arange(-half, half) + 0.5) / EFFECT_BINS_PER_UNIT
    return middles, -half / EFFECT_BINS_PER_UNIT, float(EFFECT_BINS_PER_UNIT)


@lru_cache(maxsize=1)
def normal_quantiles() -> Floats:
    """Return the means of 1024 equally likely slices of N(0, 1), scaled to unit variance, shape (1024,).

    Slice means keep the tails better than slice middles: a population c_1 moves by less than 1e-5.
    """
    normal = NormalDist()  # as exact as scipy's ndtri, which costs a third of a second to import
    edges = np.array([normal.inv_cdf(level / NORMAL_LEVELS) for level in range(1, NORMAL_LEVELS)])
    density = np.concatenate([[0.0], np.exp(-0.5 * edges * edges), [0.0]])
    means = density[:-1] - density[1:]
    scaled: Floats = means / math.sqrt(float(means @ means) / NORMAL_LEVELS)
    return scaled


def request_normals(seed: int, count: int) -> Floats:
    """Return a standard normal per request, shape (count,)."""
    from scipy.special import ndtri

    from simulator.numerics.random_numbers import STREAM_REQUEST, request_draws

    uniforms = request_draws(seed, count, STREAM_REQUEST)
    normals: Floats = ndtri(np.clip(uniforms, 2.0**-54, None))
    return normals


def _matched_before(kind: int, seed: int, match: Floats) -> NDArray[np.bool_]:
    if kind != GATED:
        return np.zeros(len(match), dtype=np.bool_)
    from simulator.numerics.random_numbers import STREAM_MATCH, request_draws

    return request_draws(seed, len(match), STREAM_MATCH) < match
