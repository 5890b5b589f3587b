"""Replications of one variant as estimates, and two variants against each other.

Figures of single runs come from `measure.py`; here they get their Student t interval over replications and
the band of the cost model: the same random numbers are run again with every GPU stage longer and shorter by
`STEP_BAND`, and what a figure becomes there is the model's part of its band. Ratios of two variants are
paired by replication. Their error is that of the ratio of both step times, which is as large: their band
leaves the plain variant as it is and scales the decodes of the other; prompts cost both variants the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from simulator.results.catalogue import COMPARED, metric_of
from simulator.results.estimate import Estimate, estimate_from_json, mean_estimate, paired_ratio
from simulator.results.measure import measure, window_of
from simulator.results.metric import Kind, Ratio
from simulator.results.metrics import samples_needed
from simulator.results.saturation import Saturation, SaturationEvidence, evidence, judge
from simulator.results.tails import FEWEST_BUNCHES, Tail, bunches, tails
from simulator.results.variant_summary import MeasurementScope, VariantSummary
from simulator.results.verdict import LOSES, PAYS, Verdict, explain

__all__ = [
    "STEP_BAND",
    "Comparison",
    "MeasuredRun",
    "MeasurementScope",
    "VariantMeasurement",
    "VariantSummary",
    "compare",
]

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


@dataclass(frozen=True)
class Comparison:
    """A speculative variant against the plain one: name of the ratio → estimate, and the verdict."""

    ratios: Mapping[str, Estimate | None]
    verdict: Verdict

    def to_json(self) -> dict[str, Any]:
        """`{"throughput_speedup": {…}, …, "verdict": "pays", "reason": "…"}`."""
        ratios = {name: ratio and ratio.to_json() for name, ratio in self.ratios.items()}
        return {**ratios, "verdict": self.verdict.outcome, "reason": self.verdict.sentence}


def comparison_from_json(document: Mapping[str, Any]) -> Comparison:
    """The comparison that `Comparison.to_json` wrote."""
    ratios = {
        name: value and estimate_from_json(value)
        for name, value in document.items()
        if name not in ("verdict", "reason")
    }
    return Comparison(ratios, Verdict(document["verdict"], document["reason"]))


def compare(name: str, plain: VariantMeasurement, speculative: VariantMeasurement) -> Comparison:
    """Ratios paired by replication, and the verdict:
    on throughput in a closed loop, on mean TPOT at an offered rate.
    """
    ratios = {ratio: ratio_of(ratio, plain, speculative) for ratio in COMPARED}
    return Comparison(ratios, _verdict(name, ratios, plain, speculative))


def ratio_of(name: str, plain: VariantMeasurement, speculative: VariantMeasurement) -> Estimate | None:
    """One of `COMPARED`, paired by replication; None where a variant lacks the figure."""
    compared = COMPARED[name]
    path = compared.path
    if (plain.saturation.saturated or speculative.saturation.saturated) and metric_of(
        path
    ).is_void_above_capacity:
        return None
    return _paired(compared, plain, speculative)


def _paired(compared: Ratio, plain: VariantMeasurement, speculative: VariantMeasurement) -> Estimate | None:
    path, sign = compared.path, -1 if compared.inverted else 1
    pair = (speculative.samples[path], plain.samples[path])[::sign]
    estimate = paired_ratio(*pair)
    factors = [model_factor(end[path], speculative.samples[path]) ** sign for end in speculative.decode_ends]
    if estimate is not None and path in plain.without_interval | speculative.without_interval:
        return Estimate(estimate.value)
    if estimate is None or not factors:
        return estimate
    return estimate.with_model_range(*(estimate.value * f for f in (min(factors), max(factors))))


def _verdict(
    name: str,
    ratios: Mapping[str, Estimate | None],
    plain: VariantMeasurement,
    speculative: VariantMeasurement,
) -> Verdict:
    before, after = plain.saturation, speculative.saturation
    if before.saturated and not after.saturated:
        return Verdict(
            PAYS, f"{name}: {PAYS}: it serves the rate, which plain decoding does not: {before.reason}"
        )
    if after.saturated and not before.saturated:
        return Verdict(
            LOSES, f"{name}: {LOSES}: plain decoding serves the rate, and it does not: {after.reason}"
        )
    offered = plain.scope.open_loop and not before.saturated
    metric, ratio = ("TPOT speedup", "tpot_mean_speedup") if offered else ("throughput", "throughput_speedup")
    before_after = [
        {path: sum(values) / len(values) for path, values in variant.samples.items()}
        for variant in (plain, speculative)
    ]
    return explain(name, metric, ratios[ratio], *before_after)


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
