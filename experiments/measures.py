"""The measurements of a cell: those of `simulate`, and the break-even acceptance of every variant.

Cells that differ only in their speculation share the runs of plain decoding, which each process caches. This
does not change results, because a run depends only on its scenario and seed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from experiments.cell import BREAK_EVEN, DONE, SIMULATE, Cell, MetricValue
from experiments.metrics import (
    BREAK_EVEN_NOTE,
    BREAK_EVEN_VERDICT,
    REASON,
    SATURATED,
    SPEEDUP_AT,
    VERDICT,
    KeptMetrics,
)
from simulator.breakeven.breakeven import FEWEST_FOR_BREAK_EVEN
from simulator.breakeven.case import BreakEvenCase
from simulator.breakeven.simulated_evaluator import SimulatedEvaluator
from simulator.results.comparison import compare
from simulator.results.estimate import Estimate
from simulator.results.record import RunRecord
from simulator.results.summary import STEP_BAND
from simulator.results.verdict import DOES_NOT_FIT, NO_VERDICT
from simulator.runs.fit import shortage_of
from simulator.runs.replications import Replications, VariantRuns, traffic_of
from simulator.runs.variant import CompiledVariant
from simulator.scenario import Scenario, acceptance_basis, scenario_from_data

_PLAIN_VARIANTS = 256
"""Plain variants whose figures are cached, a few kilobytes each."""
_PLAIN_RECORDS = 2
"""Plain variants whose runs are cached for neighbouring cells, megabytes each."""

MeasuredMetric = tuple[str, str, MetricValue]
"""(variant, metric, value)"""


def measure_cell(cell: Cell) -> tuple[str, Mapping[str, MetricValue], str | None]:
    """(status, metrics, why it is not DONE) of a cell. Raises InputError for a scenario that is wrong."""
    data = json.loads(cell.scenario)
    scenario, keep = scenario_from_data(data), KeptMetrics(cell.keep)
    shared = _without_speculation(data)
    plain = _plain_runs(shared)
    plain_shortage = shortage_of(plain.variant)
    if plain_shortage is not None:
        return DOES_NOT_FIT, {}, plain_shortage
    variants = [CompiledVariant.compile(scenario, variant) for variant in scenario.speculation]
    shortages = {variant.name: text for variant in variants if (text := shortage_of(variant)) is not None}
    fitting = [variant for variant in variants if variant.name not in shortages]
    metrics: list[MeasuredMetric] = []
    if SIMULATE in cell.measures:
        metrics += _simulated(scenario, plain, fitting, keep)
        metrics += [(name, VERDICT, DOES_NOT_FIT) for name in shortages]
    if BREAK_EVEN in cell.measures:
        for variant in fitting:
            metrics += _break_even(scenario, variant, keep, _plain_records(shared))
        metrics += [(name, BREAK_EVEN_VERDICT, DOES_NOT_FIT) for name in shortages]
    kept_metrics = {
        f"{variant}.{name}": value for variant, name, value in metrics if keep.holds(variant, name)
    }
    if shortages and not fitting:
        return DOES_NOT_FIT, kept_metrics, "; ".join(shortages.values())
    return DONE, kept_metrics, None


def _simulated(
    scenario: Scenario, plain: VariantRuns, variants: Sequence[CompiledVariant], keep: KeptMetrics
) -> Iterator[MeasuredMetric]:
    """The figures of `simulate`. Bands need additional runs, which are made only if a verdict is kept."""
    runs = [plain, *(VariantRuns(variant, plain.scope) for variant in variants)]
    study = Replications(scenario, runs, bands=keep.verdicts, traffic=traffic_of)
    study.run()
    measurements = study.measurements()
    for variant_runs, measurement in zip(runs, measurements, strict=True):
        name = variant_runs.variant.name
        paths = (path for path in measurement.samples if keep.holds(name, path))
        for path in paths:
            if (estimate := measurement.estimate(path)) is not None:
                yield name, path, _json(estimate, study.bands)
        yield name, SATURATED, float(measurement.saturation.saturated)
    for variant_runs, measurement in zip(runs[1:], measurements[1:], strict=True):
        name = variant_runs.variant.name
        comparison = compare(name, measurements[0], measurement, acceptance_basis(scenario, name))
        for ratio, estimate in comparison.ratios.items():
            if estimate is not None and keep.holds(name, ratio):
                yield name, ratio, _json(estimate, study.bands)
        if comparison.verdict.outcome is not NO_VERDICT:
            yield name, VERDICT, comparison.verdict.outcome
        yield name, REASON, comparison.verdict.sentence


def _json(estimate: Estimate, bands: bool) -> MetricValue:
    """An estimate as JSON, without a band that contains the sampling error only."""
    return {**estimate.to_json(), **({} if bands else {"band": None})}


def _break_even(
    scenario: Scenario, compiled: CompiledVariant, keep: KeptMetrics, plain: dict[int, RunRecord]
) -> Iterator[MeasuredMetric]:
    """The acceptance that a variant needs: for throughput, where requests come at a rate for mean TPOT."""
    variant = compiled.variant
    assert variant is not None
    if variant.max_draft_length == 0:
        yield variant.name, BREAK_EVEN_NOTE, "drafts nothing"
        return
    evaluator = SimulatedEvaluator(scenario, variant, own_draft_length=True, plain_runs=plain)
    replications = max(scenario.run.replications, FEWEST_FOR_BREAK_EVEN)
    case = BreakEvenCase(evaluator, variant.max_draft_length, replications, STEP_BAND)
    row = case.row("tpot_mean" if evaluator.open_loop else "throughput", 1.0, keep.alphas)
    estimates = {
        "break_even_alpha": row.simulated_alpha,
        "break_even_acceptance_length": row.mean_acceptance_length,
        **{f"{SPEEDUP_AT}.{alpha}": speedup for alpha, speedup in row.speedup_at.items()},
    }
    yield from ((variant.name, name, e.to_json()) for name, e in estimates.items() if e is not None)
    words_and_figures = {
        BREAK_EVEN_VERDICT: row.verdict,
        BREAK_EVEN_NOTE: row.note,
        "overhead": row.overhead,
        "geometric_alpha": row.geometric_alpha,
        "linear_acceptance_rate": row.linear_acceptance_rate,
        "scenario_alpha": row.scenario_alpha,
        "plain_mean_batch": row.plain_mean_batch,
    }
    yield from ((variant.name, name, value) for name, value in words_and_figures.items() if value is not None)


def _without_speculation(data: Mapping[str, Any]) -> str:
    """What plain decoding depends on, as text."""
    plain = {key: value for key, value in data.items() if key not in ("name", "speculation")}
    workload = plain.get("workload") or {}
    if workload.get("classes"):  # their acceptance is that of variants
        classes = [
            {key: value for key, value in entry.items() if key != "acceptance"}
            for entry in workload["classes"]
        ]
        plain["workload"] = {**workload, "classes": classes}
    return json.dumps(plain)


@lru_cache(maxsize=_PLAIN_VARIANTS)
def _plain_runs(scenario_without_speculation: str) -> VariantRuns:
    scenario = scenario_from_data(json.loads(scenario_without_speculation))
    plain = CompiledVariant.compile(scenario, None)
    return VariantRuns(plain, plain.measurement_scope)


@lru_cache(maxsize=_PLAIN_RECORDS)
def _plain_records(scenario_without_speculation: str) -> dict[int, RunRecord]:
    """Plain decoding by replication, as far as break-evens have run it."""
    return {}
