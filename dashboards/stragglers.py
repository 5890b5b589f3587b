"""Whether the slow requests of a speculative variant are those that go on without drafts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dashboards.subject import Subject
from simulator.results import metrics
from simulator.results.metrics import SAMPLES_BEYOND
from simulator.step.state import DONE

_SLOW_SHARE = 0.01
_WITHOUT, _WITH = 0.5, 0.9
"""A request goes without drafts if it drafts in fewer of its rounds than the first share;
it drafts from the second share on.
"""


@dataclass(frozen=True)
class Stragglers:
    """Shares of requests that go without drafts: of the slowest hundredth by TPOT, and of all.

    `others_p99_s` is the P99 of TPOT of the requests that draft, s.
    """

    of_slowest: float
    of_all: float
    others_p99_s: float

    @property
    def explain_the_tail(self) -> bool:
        """Whether most of the slow ones go without drafts, and far more than of all."""
        return self.of_slowest >= 0.5 and self.of_slowest >= 2 * self.of_all


def stragglers(subject: Subject, variant: str) -> Stragglers | None:
    """Who is slow, over all replications; None where too few requests tell, or no P99 is defined."""
    records = subject.result.records.get(variant, ())
    if not records or subject.result.variants[variant].saturated:
        return None
    tpot, drafted = [], []
    for record in records:
        chosen = np.zeros(len(record.arrival_ns), dtype=bool)
        chosen[record.first_measured : record.end_measured] = True
        chosen &= (record.status == DONE) & (record.emitted_tokens > 1)
        tpot.append(metrics.tpot_s(record.first_ns, record.last_ns, record.emitted_tokens)[chosen])
        drafted.append((record.draft_rounds / np.maximum(record.decode_rounds, 1))[chosen])
    times_s, share = np.concatenate(tpot), np.concatenate(drafted)
    others_s = times_s[share >= _WITH]
    if min(len(times_s), len(others_s)) * _SLOW_SHARE < SAMPLES_BEYOND:
        return None
    slow = times_s >= np.quantile(times_s, 1 - _SLOW_SHARE)
    without = share < _WITHOUT
    others_p99_s = float(np.quantile(others_s, 1 - _SLOW_SHARE))
    return Stragglers(float(without[slow].mean()), float(without.mean()), others_p99_s)
