"""Replications of one variant as estimates.

Figures of single runs come from `measure.py`; here they get their Student t interval over replications and
the band of the cost model: the same random numbers are run again with every GPU stage longer and shorter by
`STEP_BAND`, and what a figure becomes there is the model's part of its band. `comparison.py` compares two
variants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from simulator.results.catalogue import metric_of
from simulator.results.estimate import Estimate, mean_estimate
from simulator.results.measure import measure, window_of
from simulator.results.metric import Kind
from simulator.results.metrics import samples_needed
from simulator.results.record import STATUS_DONE
from simulator.results.saturation import Saturation, SaturationEvidence, evidence, judge
from simulator.results.tails import FEWEST_BUNCHES, Tail, bunches, tails
from simulator.results.variant_summary import MeasurementScope, VariantSummary

__all__ = ["STEP_BAND", "MeasuredRun", "MeasurementScope", "VariantMeasurement", "VariantSummary"]

if TYPE_CHECKING:
    from simulator.results.record import RunRecord

STEP_BAND = 0.10
"""P95 of the cost model's relative error, on step time and on the ratio
of two step times (docs/results.md).
"""

_BUNCHES = f"as its tail samples come in fewer than {FEWEST_BUNCHES} bunches a replication"


@dataclass(frozen=True)
class MeasuredRun:
    """One run, measured: what is left of it when its record is gone."""

    figures: Mapping[str, float]
    """Those of `measure.measure`."""
    figures_above_capacity: Mapping[str, float]
    """The same, should the load turn out to be above capacity."""
    evidence: SaturationEvidence | None
    """Whether it is; None where it cannot be (closed loops, bursts)."""
    requests: int
    """Requests of the run."""
    measured: int
    """Of them, those that are measured and ended."""
    drafted: bool
    steady: bool
    """There was a stretch of steady arrivals to take rates from."""
    tails: Mapping[str, Tail] = field(default_factory=dict)
    """Tail samples of its percentiles."""

    @staticmethod
    def of(record: RunRecord, scope: MeasurementScope, *, intervals: bool = True) -> MeasuredRun:
        """Measure a run. Without `intervals` nothing is made of it that only they need."""
        how = (scope.class_names, dict(scope.limits), scope.replicas)
        figures = measure(record, *how)
        return MeasuredRun(
            figures=figures,
            figures_above_capacity=measure(record, *how, True) if scope.open_loop else figures,
            evidence=evidence(record) if scope.open_loop else None,
            requests=len(record.arrival_ns),
            measured=int((record.status[record.first_measured : record.end_measured] == STATUS_DONE).sum()),
            drafted=bool(record.drafted_at[:, 1:].any()),
            steady=window_of(record).last >= 0,
            tails=tails(record, scope.class_names) if intervals else {},
        )


@dataclass(frozen=True)
class VariantMeasurement:
    """One variant's figures of every replication, before they become estimates: what pairing needs.

    `runs` are the replications in order of seed. `faster` and `slower` hold the same seeds with every GPU
    stage × (1 − band) and × (1 + band); they may be fewer than the replications, or none: then the bands hold
    sampling only. `decodes_faster` and `decodes_slower` hold them with only the decodes scaled: what a
    comparison with plain decoding does not share with it, since both variants compute the same prompts.
    """

    scope: MeasurementScope
    runs: tuple[MeasuredRun, ...]
    faster: tuple[MeasuredRun, ...] = ()
    slower: tuple[MeasuredRun, ...] = ()
    decodes_faster: tuple[MeasuredRun, ...] = ()
    decodes_slower: tuple[MeasuredRun, ...] = ()

    @cached_property
    def samples(self) -> dict[str, tuple[float, ...]]:
        """Path → figure of every replication."""
        return self._figures(self.runs)

    @cached_property
    def without_interval(self) -> frozenset[str]:
        """Percentiles whose tail samples come in too few bunches (`tails.py`). One run is not judged."""
        runs = [run.tails for run in self.runs]
        paths = runs[0] if len(runs) > 1 else ()
        return frozenset(path for path in paths if bunches(runs, path) < FEWEST_BUNCHES)

    @cached_property
    def model_ends(self) -> tuple[dict[str, tuple[float, ...]], ...]:
        """The same for the runs at either end of the cost model's band, where there are any."""
        return tuple(self._figures(runs) for runs in (self.faster, self.slower) if runs)

    @cached_property
    def decode_ends(self) -> tuple[dict[str, tuple[float, ...]], ...]:
        """The same with only the decodes at either end."""
        return tuple(self._figures(runs) for runs in (self.decodes_faster, self.decodes_slower) if runs)

    def has(self, path: str) -> bool:
        """Whether this variant can have such a figure: acceptance belongs to variants that draft."""
        drafts = any(run.drafted for run in self.runs)
        return path in self.samples and (drafts or metric_of(path).kind is not Kind.ACCEPTANCE)

    @cached_property
    def saturation(self) -> Saturation:
        """Whether the load is above capacity; a closed loop or a burst never is."""
        seen = [run.evidence for run in self.runs if run.evidence is not None]
        return judge(seen, self.scope.running_limit) if seen else Saturation(False, 1.0)

    def summary(self) -> VariantSummary:
        """The estimates. A saturated variant reports the rate served, and no latency,
        which grows with the length of the run.
        """
        speculative = any(run.drafted for run in self.runs)
        estimates: dict[str, Estimate | None] = {}
        missing: dict[str, list[str]] = {}
        for path in self.samples:
            estimates[path] = self.estimate(path)
            if estimates[path] is None:
                missing.setdefault(self._why_missing(path, speculative), []).append(path)
        for path in self.samples:  # in their order
            if path in self.without_interval and estimates[path] is not None:
                missing.setdefault(f"no interval for {path.rsplit('.', 1)[-1]}, {_BUNCHES}", []).append(path)
        notes = [f"{reason}: {_brief(paths)}" for reason, paths in missing.items()]
        if self.saturation.reason:
            notes.insert(0, f"saturated: {self.saturation.reason}")
        if not self.saturation.saturated and not all(run.steady for run in self.runs):
            notes.append(
                "rates are over the whole run, its filling and draining included: "
                "no stretch of steady arrivals to take them from"
            )
        if len(self.runs) == 1:
            notes.append("one replication: no intervals")
        return VariantSummary(estimates, self.saturation.saturated, tuple(notes))

    def _figures(self, runs: Sequence[MeasuredRun]) -> dict[str, tuple[float, ...]]:
        full = self.saturation.saturated
        figures = [run.figures_above_capacity if full else run.figures for run in runs]
        return {path: tuple(run[path] for run in figures) for path in figures[0]} if figures else {}

    def estimate(self, path: str) -> Estimate | None:
        """One figure; None where the runs cannot tell."""
        if self.saturation.saturated and metric_of(path).is_void_above_capacity:
            return None
        samples = self.samples[path]
        estimate = mean_estimate(samples)
        if estimate is None:
            return None
        if path in self.without_interval:
            return Estimate(estimate.value)
        factors = [model_factor(end[path], samples) for end in self.model_ends]
        if factors:
            estimate = estimate.with_model_range(*(estimate.value * f for f in (min(factors), max(factors))))
        return estimate.clipped(0.0, 1.0 if metric_of(path).is_fraction else float("inf"))

    def _why_missing(self, path: str, speculative: bool) -> str:
        if self.saturation.saturated and metric_of(path).is_void_above_capacity:
            return "not defined above capacity, where waiting grows with the length of the run"
        if metric_of(path).kind is Kind.SLO:
            return "the scenario sets no SLO"
        if metric_of(path).kind is Kind.ACCEPTANCE:
            return "no drafts were verified" if speculative else "no drafts, so no acceptance"
        statistic = path.rsplit(".", 1)[-1]
        if metric_of(path).is_latency and statistic != "mean":
            return f"too few samples for {statistic} ({samples_needed(statistic):,} in each replication)"
        return "nothing to measure it on"


def model_factor(scaled: Sequence[float], samples: Sequence[float]) -> float:
    """What a figure becomes with other GPU times: mean of the scaled runs ÷ mean
    of the same seeds; 1 where it cannot be told.
    """
    same = sum(samples[: len(scaled)])
    factor = sum(scaled) / same if same > 0 else 1.0
    return factor if 0 < factor < float("inf") else 1.0


def _is_block(path: str) -> bool:
    return metric_of(path).is_latency or metric_of(path).by_position


def _brief(paths: Sequence[str], most: int = 8) -> str:
    """The figures, their statistics and positions left out."""
    names = list(dict.fromkeys(path.rpartition(".")[0] if _is_block(path) else path for path in paths))
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
