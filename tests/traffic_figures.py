"""What a workload is like in figures: lengths, rate, burstiness,
and how much of its prompts could come from a cache.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simulator.traffic.workload import Requests
from simulator.units import NS_PER_S

_PERCENTILES = (50, 90, 95, 99)

Summary = dict[str, object]


def describe(requests: Requests, class_names: Sequence[str] = ()) -> Summary:
    """A summary of `requests` as plain numbers, ready for JSON; a figure that does not exist is None.

    `prompt_tokens` and `output_tokens`: mean, percentiles, min, max. `arrivals`: how many are known
    beforehand, and of those span_s, rate_per_s (of requests, later turns included) and cv (of the gaps).
    `prefix`: block_tokens, the share of prompt tokens in blocks with an id (`known_fraction`), and the
    `ideal_hit_rate`. `classes`: requests by class. `sessions`, `cancelled`: how many.
    """
    counts = np.bincount(requests.traffic_class, minlength=len(class_names))
    names = [class_names[index] if index < len(class_names) else str(index) for index in range(len(counts))]
    return {
        "requests": len(requests.prompt_tokens),
        "prompt_tokens": _lengths(requests.prompt_tokens),
        "output_tokens": _lengths(requests.output_tokens),
        "arrivals": _arrivals(requests.arrival_ns),
        "classes": {name: int(count) for name, count in zip(names, counts, strict=True)},
        "sessions": int(np.unique(requests.session[requests.session >= 0]).size),
        "cancelled": int(np.count_nonzero(requests.cancel_after_tokens)),
        "prefix": _prefix(requests),
    }


def ideal_hit_rate(requests: Requests) -> float | None:
    """Share of all prompt tokens that stand in blocks an earlier request already had:
    a cache that forgets nothing.

    Earlier means before in issue order, finished or not; partial blocks never count. None without prefix
    information. It bounds what a prefix cache with the trace's own block can do; an engine's smaller block
    finds at most one block of the trace more per request.
    """
    if requests.prefix_block_tokens == 0:
        return None
    request, in_prompt = _block_owners(requests)
    first = np.full(int(requests.prefix_ids.max(initial=-1)) + 1, len(requests.prompt_tokens), dtype=np.int64)
    np.minimum.at(first, requests.prefix_ids, request)
    seen = np.count_nonzero(in_prompt & (first[requests.prefix_ids] < request))
    return float(seen * requests.prefix_block_tokens / requests.prompt_tokens.sum())


def _block_owners(requests: Requests) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """For each prefix id its request, and whether its block lies within the prompt; shapes (m,)."""
    counts = np.diff(requests.prefix_start)
    request = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    position = np.arange(len(requests.prefix_ids), dtype=np.int64) - requests.prefix_start[request]
    in_prompt: NDArray[np.bool_] = (position + 1) * requests.prefix_block_tokens <= requests.prompt_tokens[
        request
    ]
    return request, in_prompt


def _prefix(requests: Requests) -> Summary:
    if requests.prefix_block_tokens == 0:
        return {"block_tokens": None, "known_fraction": None, "ideal_hit_rate": None}
    _, in_prompt = _block_owners(requests)
    known = np.count_nonzero(in_prompt) * requests.prefix_block_tokens / requests.prompt_tokens.sum()
    return {
        "block_tokens": requests.prefix_block_tokens,
        "known_fraction": float(known),
        "ideal_hit_rate": ideal_hit_rate(requests),
    }


def _lengths(tokens: NDArray[np.int64]) -> Summary:
    """Mean, percentiles and extremes of lengths."""
    figures: Summary = {"mean": float(tokens.mean())}
    for percent, value in zip(_PERCENTILES, np.percentile(tokens, _PERCENTILES), strict=True):
        figures[f"p{percent}"] = float(value)
    return {**figures, "min": int(tokens.min()), "max": int(tokens.max())}


def _arrivals(arrival_ns: NDArray[np.int64]) -> Summary:
    """Rate and burstiness of the known arrivals; the turns that follow them count in the rate."""
    known = np.sort(arrival_ns[arrival_ns >= 0])
    gaps_s = np.diff(known) / NS_PER_S
    span_s = float(gaps_s.sum())
    spread = len(gaps_s) > 1 and span_s > 0
    return {
        "known": len(known),
        "span_s": span_s,
        "rate_per_s": len(gaps_s) / span_s * len(arrival_ns) / len(known) if span_s > 0 else None,
        "cv": float(gaps_s.std() / gaps_s.mean()) if spread else None,
    }
