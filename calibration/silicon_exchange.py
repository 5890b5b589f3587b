"""Tokens sent to the experts of other GPUs: DeepEP's kernels in the public tables → a part of a profile."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from calibration.smoothing import significant
from calibration.tables import Tables, medians
from simulator.costs.profiles import Part

SGLANG = ("sglang", "0.5.6.post2")
"""The tables that hold several nodes."""
HIDDEN, PER_TOKEN, EXPERTS = 7168, 8, 256
"""DeepSeek-V3, the one model that they hold for several nodes."""
GPUS_PER_NODE = 8
MOST_TOKENS = 8192


def exchange_points(tables: Tables) -> Mapping[tuple[int, ...], float]:
    """(GPUs, tokens of one GPU) → µs there and back: the faster of DeepEP's kernels for few tokens and for
    many, the latter with the best of the measured numbers of SMs; {} when absent.
    """
    best: dict[tuple[int, ...], float] = {}
    for op in ("dispatch_few", "dispatch"):
        rows = tables.read(op, *SGLANG)
        if rows is None:
            return {}
        kept = (rows["hidden"] == HIDDEN) & (rows["topk"] == PER_TOKEN) & (rows["experts"] == EXPERTS)
        kept &= rows["tokens"] <= MOST_TOKENS
        sms = [name for name in ("dispatch_sms", "combine_sms") if name in rows]
        for (nodes, tokens, *_), us in medians(rows, ("node_num", "tokens", *sms), kept).items():
            key = (GPUS_PER_NODE * nodes, tokens)
            best[key] = min(us, best.get(key, us))
    return best


def exchange_part(tables: Tables) -> Part | None:
    """The part, None without the tables."""
    points = exchange_points(tables)
    if not points:
        return None
    table = {}
    for gpus in sorted({key[0] for key in points}):
        found = sorted((tokens, us) for (count, tokens), us in points.items() if count == gpus)
        kept = [(tokens, us) for tokens, us in found if tokens & (tokens - 1) == 0]
        # The kernel for few tokens was not timed at one token on several nodes: it takes no longer than two.
        rising = np.minimum.accumulate([us for _, us in kept][::-1])[::-1]
        table[str(gpus)] = {"tokens": [tokens for tokens, _ in kept], "us": significant(rising)}
    return Part(
        name="exchange",
        status="measured",
        source=f"{' '.join(SGLANG)} DeepEP, dispatch and combine",
        coefficients={"hidden": float(HIDDEN), "per_token": float(PER_TOKEN)},
        table=table,
        residual={},
        note="tokens of one GPU; H100 nodes of eight, RDMA between them; nothing is computed meanwhile",
    )
