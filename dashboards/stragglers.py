"""Whether the slow requests of a speculative variant are those that go on without drafts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dashboards.subject import ReportedResult
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
    """Fractions of requests without drafts: of the slowest 1 % by TPOT, and of all.

    `drafting_p99_s` is the P99 of TPOT of the requests that draft, s.
    """

    slowest_fraction: float
    overall_fraction: float
    drafting_p99_s: float

    @property
    def explain_the_tail(self) -> bool:
        """Whether most of the slow ones go without drafts, and far more than of all."""
        return self.slowest_fraction >= 0.5 and self.slowest_fraction >= 2 * self.overall_fraction


def stragglers(subject: ReportedResult, variant: str) -> Stragglers | None:
    """The shares over all replications; None where the requests are too few, or no P99 is defined."""
    records = subject.result.records.get(variant, ())
    if not records or subject.result.variants[variant].saturated:
        return None
    tpot, drafted = [], []
    for record in records:
        is_measured = np.zeros(len(record.arrival_ns), dtype=bool)
        is_measured[record.first_measured : record.end_measured] = True
        is_measured &= (record.status == DONE) & (record.emitted_tokens > 1)
        tpot.append(metrics.tpot_s(record.first_ns, record.last_ns, record.emitted_tokens)[is_measured])
        drafted.append((record.draft_rounds / np.maximum(record.decode_rounds, 1))[is_measured])
    times_s, share = np.concatenate(tpot), np.concatenate(drafted)
    drafting_tpots_s = times_s[share >= _WITH]
    if min(len(times_s), len(drafting_tpots_s)) * _SLOW_SHARE < SAMPLES_BEYOND:
        return None
    slow = times_s >= np.quantile(times_s, 1 - _SLOW_SHARE)
    without = share < _WITHOUT
    drafting_p99_s = float(np.quantile(drafting_tpots_s, 1 - _SLOW_SHARE))
    return Stragglers(float(without[slow].mean()), float(without.mean()), drafting_p99_s)
