"""Every metric, defined once: simulated runs and telemetry readers use these functions and no others.

Latency: TTFT = first emission − arrival; e2e = last emission − arrival; TPOT of a request = (last − first
emission) ÷ (tokens − 1); ITL = gap between two emissions of a request, pooled over requests (what vLLM's
server and benchmark client report); ITL per token = gap ÷ tokens of the emission that ends it, once per
token (what SGLang's server reports); worst gap = a request's largest ITL. Under speculation an emission
holds several tokens, so mean ITL = TPOT × tokens per emission: the two are never the same figure.

Acceptance: of R rounds with a draft, D tokens drafted and A accepted, the mean acceptance length is 1 + A / R
(the token that the target adds counts), the draft acceptance rate A / D, and the acceptance rate
at position j the share of R with at least j accepted. None of these is the α of the theory:
that is `conditional_acceptance`, the acceptance at j of those who got to j. All are counted
before a stop cuts the last round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from simulator.numerics.arrays import Floats, Ints
from simulator.results.catalogue import LIMITED
from simulator.results.metric import QUANTILE, STATISTICS
from simulator.units import NS_PER_S

SAMPLES_BEYOND = 10
"""Samples that must lie beyond a percentile for it to be reported:
1,000 for P99 and 10,000 for P99.9, in each replication.
"""

NAN = math.nan


def samples_needed(statistic: str) -> int:
    """Samples without which the statistic is not reported:
    one for the mean, `SAMPLES_BEYOND` beyond a percentile.
    """
    return 1 if statistic == "mean" else round(SAMPLES_BEYOND / (1 - QUANTILE[statistic]))


def statistics(samples: Floats) -> dict[str, float]:
    """Mean and percentiles (linear between order statistics, as in NumPy and vLLM's client);
    NaN where samples are too few.

    `samples` (n,), in any unit; samples that are NaN are not samples.
    """
    known = samples[~np.isnan(samples)]
    if not len(known):
        return dict.fromkeys(STATISTICS, NAN)
    mean = math.fsum(known.tolist()) / len(known)
    values = np.quantile(known, list(QUANTILE.values()), overwrite_input=True)
    figures = {"mean": mean, **dict(zip(QUANTILE, map(float, values), strict=True))}
    return {name: value if len(known) >= samples_needed(name) else NAN for name, value in figures.items()}


def histogram_statistics(counts: Ints, edges: Floats, mean: float) -> dict[str, float]:
    """Mean and percentiles of samples that were counted in bins; NaN where samples are too few.

    `counts` (bins,) and `edges` (bins + 1,), ascending, in the unit of the result; a percentile lies in its
    bin at the share of the bin's samples below it. `mean` is the exact mean, known from sums: a histogram
    would only approximate it.
    """
    total = int(counts.sum())
    if total == 0:
        return dict.fromkeys(STATISTICS, NAN)
    below = np.cumsum(counts)
    figures = {"mean": mean}
    for name, quantile in QUANTILE.items():
        rank = quantile * total
        cell = int(np.searchsorted(below, rank, side="left"))
        within = (rank - (below[cell] - counts[cell])) / counts[cell]
        figures[name] = float(edges[cell] + (edges[cell + 1] - edges[cell]) * within)
    return {name: value if total >= samples_needed(name) else NAN for name, value in figures.items()}


def elapsed_s(start_ns: Ints, end_ns: Ints, valid: npt.NDArray[np.bool_]) -> Floats:
    """Seconds from `start_ns` to `end_ns` (n,), NaN where not `valid`: TTFT, e2e, time in queue."""
    return np.where(valid, (end_ns - start_ns) / NS_PER_S, NAN)


def tpot_s(first_ns: Ints, last_ns: Ints, output_tokens: Ints) -> Floats:
    """Time per output token of each request (n,), s:
    (last − first emission) ÷ (tokens − 1); NaN for one token or none.
    """
    gaps = output_tokens - 1
    return np.where(gaps > 0, (last_ns - first_ns) / (np.maximum(gaps, 1) * float(NS_PER_S)), NAN)


def share(part: float, total: float) -> float:
    """`part ÷ whole`, NaN of nothing: a share of nothing is not zero."""
    return part / total if total > 0 else NAN


def mean_acceptance_length(accepted_tokens: float, draft_rounds: float) -> float:
    """1 + accepted ÷ rounds with a draft: what engine logs print. NaN without a round."""
    return 1 + share(accepted_tokens, draft_rounds)


def draft_acceptance_rate(accepted_tokens: float, drafted_tokens: float) -> float:
    """Accepted ÷ drafted. It falls with the draft length even when every position is as good as the first."""
    return share(accepted_tokens, drafted_tokens)


def accepted_from_counts(rounds_by_accepted: Ints) -> int:
    """Accepted tokens of rounds counted by how many each accepted, (K + 1,)."""
    return int(np.arange(len(rounds_by_accepted)) @ rounds_by_accepted)


def acceptance_rates_at(rounds_by_accepted: Ints, draft_rounds: int) -> list[float]:
    """Share of rounds with a draft that accepted at least j tokens, for j = 1…K,
    from rounds by number accepted (K + 1,).
    """
    at_least = np.cumsum(rounds_by_accepted[::-1])[::-1][1:]
    return [share(float(rounds), draft_rounds) for rounds in at_least]


def conditional_acceptance(rates_at: Sequence[float]) -> list[float]:
    """P(accept j | all before accepted), j = 1…K, from the rates at each position:
    the α of the theory. NaN where nobody got to.
    """
    before = [1.0, *rates_at][: len(rates_at)]
    return [share(rate, earlier) for rate, earlier in zip(rates_at, before, strict=True)]


def draft_coverage(draft_rounds: float, decode_rounds: float) -> float:
    """Share of decode rounds that had a draft:
    tokens per round = 1 + coverage × (mean acceptance length − 1).
    """
    return share(draft_rounds, decode_rounds)


def meets_limits(limits: Mapping[str, float], metric: str, values: Floats) -> npt.NDArray[np.bool_]:
    """Which requests (n,) meet every limit of the SLO that is about this metric, one of `LIMITED`'s values.

    `limits` as in the scenario, `{"ttft_p99_s": …}`: the part before the percentile names the metric, and
    each request is held to the limit itself. A request that has no value (never answered) misses it, except
    for the TPOT of a one-token answer. Raises ValueError for a limit of no known metric.
    """
    good = np.ones(len(values), dtype=np.bool_)
    for name, limit in limits.items():
        limited = name.removesuffix("_s").rsplit("_", 1)[0]
        if limited not in LIMITED:
            raise ValueError(f"{name} limits no known metric: {', '.join(LIMITED)}")
        if LIMITED[limited] == metric:
            good &= (values <= limit) | (np.isnan(values) if limited == "tpot" else False)
    return good
