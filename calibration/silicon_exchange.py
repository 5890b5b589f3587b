"""Sending tokens to the experts of other GPUs: a part of a profile from DeepEP's kernels in the public
tables.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from calibration.smoothing import significant
from calibration.tables import Tables, medians
from simulator.costs.profiles import Part

SGLANG = ("sglang", "0.5.6.post2")
"""The tables with measurements over several nodes."""
HIDDEN, PER_TOKEN, EXPERTS = 7168, 8, 256
"""DeepSeek-V3, the only model that they have for several nodes."""
GPUS_PER_NODE = 8
MAX_TOKENS = 8192


def exchange_points(tables: Tables) -> Mapping[tuple[int, ...], float]:
    """(GPUs, tokens of one GPU) → µs of dispatch and combine; {} without the tables.

    It is the faster of DeepEP's kernels for few and for many tokens, the latter with the best measured number
    of SMs.
    """
    best: dict[tuple[int, ...], float] = {}
    for op in ("dispatch_few", "dispatch"):
        rows = tables.read(op, *SGLANG)
        if rows is None:
            return {}
        selected = (rows["hidden"] == HIDDEN) & (rows["topk"] == PER_TOKEN) & (rows["experts"] == EXPERTS)
        selected &= rows["tokens"] <= MAX_TOKENS
        sms = [name for name in ("dispatch_sms", "combine_sms") if name in rows]
        for (nodes, tokens, *_), us in medians(rows, ("node_num", "tokens", *sms), selected).items():
            key = (GPUS_PER_NODE * nodes, tokens)
            best[key] = min(us, best.get(key, us))
    return best


def exchange_part(tables: Tables) -> Part | None:
    """The part; None without the tables."""
    points = exchange_points(tables)
    if not points:
        return None
    table = {}
    for gpus in sorted({key[0] for key in points}):
        times = sorted((tokens, us) for (count, tokens), us in points.items() if count == gpus)
        powers = [(tokens, us) for tokens, us in times if tokens & (tokens - 1) == 0]
        # The kernel for few tokens was not timed at one token on several nodes.
        # One token takes no longer than two.
        rising = np.minimum.accumulate([us for _, us in powers][::-1])[::-1]
        table[str(gpus)] = {"tokens": [tokens for tokens, _ in powers], "us": significant(rising)}
    return Part(
        name="exchange",
        status="measured",
        source=f"{' '.join(SGLANG)} DeepEP, dispatch and combine",
        coefficients={"hidden": float(HIDDEN), "per_token": float(PER_TOKEN)},
        table=table,
        residual={},
        note="tokens of one GPU; H100 nodes of eight, RDMA between them; nothing is computed meanwhile",
    )
