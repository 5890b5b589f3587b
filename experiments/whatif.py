"""What if: compares a scenario with others that differ in a few fields, variant by variant.

All scenarios use the same seed in each replication. Ratios are paired, so that a change is far more precise
than either side.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from experiments.alternatives import Alternative, scenario_with
from simulator.results.catalogue import COMPARED, COMPARED_BY_PATH, metric_of, paths_shown
from simulator.results.change import change_of, speedup_change
from simulator.results.comparison import ratio_of
from simulator.results.estimate import Estimate
from simulator.results.metric import Detail
from simulator.results.verdict import DOES_NOT_FIT, LOSES, PAYS, judge_speedup
from simulator.scenario import PLAIN

if TYPE_CHECKING:
    from simulator.results.precision import Precision
    from simulator.results.summary import VariantMeasurement
    from simulator.runs.replications import Progress, Replications, VariantRuns
    from simulator.runs.variant import CompiledVariant
    from simulator.scenario import Scenario


@dataclass(frozen=True)
class FigureChange:
    """A figure before and after; `ratio` is after ÷ before.

    None where undefined, as latencies at saturation.
    """

    baseline: Estimate | None
    alternative: Estimate | None
    ratio: Estimate | None

    def to_json(self) -> dict[str, Any]:
        """Three estimates."""
        named = {"baseline": self.baseline, "alternative": self.alternative, "ratio": self.ratio}
        return {name: estimate and estimate.to_json() for name, estimate in named.items()}


@dataclass(frozen=True)
class VariantChange:
    """The change of one variant. `verdict` is pays, loses or undecided for the change itself.

    It is based on throughput, or on mean TPOT where requests arrive at a rate. `speedup` is the variant's
    speedup over plain decoding in the same figure; None for plain decoding itself.
    """

    figures: Mapping[str, FigureChange]
    verdict: str
    speedup: FigureChange | None = None

    def to_json(self) -> dict[str, Any]:
        """`{"figures", "speedup", "verdict"}`."""
        figures = {path: change.to_json() for path, change in self.figures.items()}
        return {
            "figures": figures,
            "speedup": self.speedup and self.speedup.to_json(),
            "verdict": self.verdict,
        }


@dataclass(frozen=True)
class AlternativeOutcome:
    """One alternative: variant → its change.

    `variants` is empty and `why_not` given where it does not fit.
    """

    alternative: Alternative
    variants: Mapping[str, VariantChange] = field(default_factory=dict)
    why_not: str | None = None

    def to_json(self) -> dict[str, Any]:
        """One entry of `alternatives`."""
        return {
            "name": self.alternative.name,
            "settings": list(self.alternative.settings),
            "arms": {name: variant.to_json() for name, variant in self.variants.items()},
            "verdict": DOES_NOT_FIT if self.why_not else None,
            "why_not": self.why_not,
        }


@dataclass(frozen=True)
class WhatIf:
    """The alternatives in the order they were asked for, all against one baseline."""

    baseline: str
    metric: str
    """The figure of the verdicts and speedups."""
    outcomes: tuple[AlternativeOutcome, ...]
    replications: int
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The document of `decodesim whatif --json`."""
        return {
            "schema": "decodesim/whatif-1",
            "baseline": self.baseline,
            "metric": self.metric,
            "alternatives": [outcome.to_json() for outcome in self.outcomes],
            "replications": self.replications,
            "notes": list(self.notes),
        }


def what_if(
    scenario: Scenario, alternatives: Sequence[Alternative], progress: Progress | None = None
) -> WhatIf:
    """Run the baseline and every alternative on common random numbers, and compare them by variant.

    `run.precision` is asked of every ratio of `run.precision_metric`. Raises InputError for settings that
    cannot be used, and where the baseline does not fit.
    """
    from simulator.runs.fit import compile_variants, fitting_variants, shortage_of

    pairs = [(alternative, scenario_with(scenario, alternative.settings)) for alternative in alternatives]
    runs = _SharedRuns(progress)
    before = runs.of(scenario, fitting_variants(scenario))
    compiled = {alternative.name: compile_variants(changed) for alternative, changed in pairs}
    shortages = {name: shortage_of(*variants) for name, variants in compiled.items()}
    after = {
        alternative.name: runs.of(changed, compiled[alternative.name])
        for alternative, changed in pairs
        if not shortages[alternative.name]
    }
    precision_note = _run_replications(scenario, before, after.values())
    before_measurements = _by_variant(before)
    metric = "tpot_s.mean" if before_measurements[PLAIN].scope.open_loop else "throughput_tokens_per_s"
    outcomes = tuple(
        AlternativeOutcome(alternative, why_not=shortages[alternative.name])
        if shortages[alternative.name]
        else AlternativeOutcome(
            alternative,
            _changes(metric, before_measurements, _by_variant(after[alternative.name]), alternative),
        )
        for alternative, _ in pairs
    )
    notes = [*before.notes()]
    for alternative, changed in pairs:
        names = {variant.name for variant in changed.speculation} ^ {
            variant.name for variant in scenario.speculation
        }
        notes += [f"{alternative.name}: {name} is no variant of both scenarios" for name in sorted(names)]
        notes += [
            f"{alternative.name}: {note}"
            for note in (after[alternative.name].notes() if alternative.name in after else ())
        ]
    return WhatIf(
        scenario.title, metric, outcomes, before.have, (*notes, *([precision_note] if precision_note else ()))
    )


class _SharedRuns:
    """The replications of several scenarios; variants that are the same in two of them are run once."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress = progress
        self._variants: dict[str, VariantRuns] = {}

    def of(self, scenario: Scenario, variants: Sequence[CompiledVariant]) -> Replications:
        """The replications of one of the scenarios, not yet run."""
        from simulator.runs.replications import Replications, VariantRuns, traffic_of

        data = scenario.model_dump(mode="json", exclude={"name", "speculation"})
        runs = []
        for compiled in variants:
            variant = compiled.variant
            key = json.dumps([data, None if variant is None else variant.model_dump(mode="json")])
            if key not in self._variants:
                self._variants[key] = VariantRuns(compiled, compiled.measurement_scope)
            runs.append(self._variants[key])
        return Replications(scenario, runs, self.progress, traffic=traffic_of)


def _run_replications(scenario: Scenario, before: Replications, after: Iterable[Replications]) -> str | None:
    """Run the replications that the scenario asks for, or that its precision of the ratios needs.

    Returns a note where the precision is not reached.
    """
    from simulator.results.precision import FEWEST_REPLICATIONS, MOST_REPLICATIONS, Precision

    studies, precision = [before, *after], Precision.of(scenario.run)
    count = max(scenario.run.replications, FEWEST_REPLICATIONS if precision else 0)
    for study in studies:
        study.start(count)
    warm_up = max(study.warm_up for study in studies)  # so that all measure the same requests
    for study in studies:
        study.leave_out(warm_up)
    widest = 0.0
    while precision is not None:
        widest = max((_widest(precision, before, other) for other in studies[1:]), default=0.0)
        replications_needed = precision.replications(widest, count) if math.isfinite(widest) else count
        if replications_needed <= count or count >= MOST_REPLICATIONS:
            break
        count = min(replications_needed, 2 * count, MOST_REPLICATIONS)
        for study in studies:
            study.replicate(count)
    for study in studies:
        study.add_bands()
    if precision is None or widest <= precision.fraction:
        return None
    reached = f"± {widest:.2g}" if math.isfinite(widest) else "no interval"
    return f"the requested precision is not reached: {reached} at {count} replications"


def _widest(precision: Precision, before: Replications, after: Replications) -> float:
    """The widest relative half-width of the ratios of what the precision is asked of."""
    before_measurements, after_measurements = _by_variant(before), _by_variant(after)
    variants, name = precision.asked(before_measurements)
    ratios = [
        speedup_change(
            name,
            (before_measurements[PLAIN], before_measurements[variant]),
            (after_measurements[PLAIN], after_measurements[variant]),
            True,
        )
        if name in COMPARED
        else change_of(name, before_measurements[variant], after_measurements[variant], True)
        for variant in variants
        if variant in after_measurements
    ]
    return max((math.inf if ratio is None else ratio.relative_half_width for ratio in ratios), default=0.0)


def _by_variant(study: Replications) -> dict[str, VariantMeasurement]:
    return {
        runs.variant.name: measurement
        for runs, measurement in zip(study.variants, study.measurements(), strict=True)
    }


def _changes(
    metric: str,
    before_measurements: Mapping[str, VariantMeasurement],
    after_measurements: Mapping[str, VariantMeasurement],
    alternative: Alternative,
) -> dict[str, VariantChange]:
    return {
        name: _change(
            name, metric, before_measurements, after_measurements, alternative.runs_the_same_kernels(name)
        )
        for name in before_measurements
        if name in after_measurements
    }


def _change(
    name: str,
    metric: str,
    before_measurements: Mapping[str, VariantMeasurement],
    after_measurements: Mapping[str, VariantMeasurement],
    same_kernels: bool,
) -> VariantChange:
    before, after = before_measurements[name], after_measurements[name]
    before_estimates, after_estimates = before.summary().estimates, after.summary().estimates
    figures = {
        path: FigureChange(
            before_estimates.get(path),
            after_estimates.get(path),
            change_of(path, before, after, same_kernels),
        )
        for path in paths_shown(Detail.TABLE)
        if before_estimates.get(path) is not None or after_estimates.get(path) is not None
    }
    speedup = None
    if name != PLAIN:
        ratio = COMPARED_BY_PATH[metric].name
        pairs = (before_measurements[PLAIN], before), (after_measurements[PLAIN], after)
        speedup = FigureChange(
            ratio_of(ratio, *pairs[0]),
            ratio_of(ratio, *pairs[1]),
            speedup_change(ratio, *pairs, same_kernels),
        )
    if before.saturation.saturated != after.saturation.saturated:
        return VariantChange(figures, LOSES if after.saturation.saturated else PAYS, speedup)
    if before.saturation.saturated:  # both serve less than is asked for
        metric = "throughput_tokens_per_s"
    ratio_of_metric = figures[metric].ratio if metric in figures else None
    if ratio_of_metric is not None and metric_of(metric).better < 0:
        ratio_of_metric = ratio_of_metric.inverse()
    return VariantChange(figures, judge_speedup(ratio_of_metric), speedup)
