"""What is measured on a cell: all variants as they are, as `simulate` does it, and the acceptance they need.

Cells that differ in their speculation only share the runs of plain decoding, which are remembered in each
process. That changes no figure: a run follows from its scenario and seed alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from experiments.cell import BREAK_EVEN, DONE, SIMULATE, Cell, Metric
from experiments.metrics import (
    BREAK_EVEN_NOTE,
    BREAK_EVEN_VERDICT,
    REASON,
    SATURATED,
    SPEEDUP_AT,
    VERDICT,
    Keep,
)
from simulator.breakeven.breakeven import FEWEST_FOR_BREAK_EVEN
from simulator.breakeven.case import BreakEvenCase
from simulator.breakeven.simulated_evaluator import SimulatedEvaluator
from simulator.results.estimate import Estimate
from simulator.results.record import RunRecord
from simulator.results.summary import STEP_BAND, compare
from simulator.results.verdict import DOES_NOT_FIT
from simulator.runs.fit import shortage_of
from simulator.runs.replications import Replications, VariantRuns, traffic_of
from simulator.runs.variant import CompiledVariant
from simulator.scenario import Scenario, scenario_from_data

_PLAIN_VARIANTS = 256
"""Plain variants whose figures are remembered, a few kilobytes each."""
_PLAIN_RECORDS = 2
"""Plain variants whose runs are remembered, megabytes each: neighbouring cells share them."""

Found = tuple[str, str, Metric]
"""(variant, metric, value)"""


def measured(cell: Cell) -> tuple[str, Mapping[str, Metric], str | None]:
    """(status, metrics, why it is not DONE) of a cell. Raises InputError for a scenario that is wrong."""
    data = json.loads(cell.scenario)
    scenario, keep = scenario_from_data(data), Keep(cell.keep)
    shared = _without_speculation(data)
    plain = _plain_runs(shared)
    short = shortage_of(plain.variant)
    if short is not None:
        return DOES_NOT_FIT, {}, short
    variants = [CompiledVariant.compile(scenario, variant) for variant in scenario.speculation]
    shortages = {variant.name: text for variant in variants if (text := shortage_of(variant)) is not None}
    fitting = [variant for variant in variants if variant.name not in shortages]
    found: list[Found] = []
    if SIMULATE in cell.measures:
        found += _simulated(scenario, plain, fitting, keep)
        found += [(name, VERDICT, DOES_NOT_FIT) for name in shortages]
    if BREAK_EVEN in cell.measures:
        for variant in fitting:
            found += _break_even(scenario, variant, keep, _plain_records(shared))
        found += [(name, BREAK_EVEN_VERDICT, DOES_NOT_FIT) for name in shortages]
    kept = {f"{variant}.{name}": value for variant, name, value in found if keep.holds(variant, name)}
    if shortages and not fitting:
        return DOES_NOT_FIT, kept, "; ".join(shortages.values())
    return DONE, kept, None


def _simulated(
    scenario: Scenario, plain: VariantRuns, variants: Sequence[CompiledVariant], keep: Keep
) -> Iterator[Found]:
    """The figures of `simulate`. Bands need runs of their own, and are there when a verdict is kept."""
    runs = [plain, *(VariantRuns(variant, plain.scope) for variant in variants)]
    study = Replications(scenario, runs, bands=keep.verdicts, traffic=traffic_of)
    study.run()
    measurements = study.measurements()
    for one, measurement in zip(runs, measurements, strict=True):
        name = one.variant.name
        kept = (path for path in measurement.samples if keep.holds(name, path))
        for path in kept:
            if (estimate := measurement.estimate(path)) is not None:
                yield name, path, _json(estimate, study.bands)
        yield name, SATURATED, float(measurement.saturation.saturated)
    for one, measurement in zip(runs[1:], measurements[1:], strict=True):
        name, comparison = one.variant.name, compare(one.variant.name, measurements[0], measurement)
        for ratio, estimate in comparison.ratios.items():
            if estimate is not None and keep.holds(name, ratio):
                yield name, ratio, _json(estimate, study.bands)
        yield name, VERDICT, comparison.verdict.outcome
        yield name, REASON, comparison.verdict.sentence


def _json(estimate: Estimate, bands: bool) -> Metric:
    """An estimate as JSON; a band that holds sampling only is none."""
    return {**estimate.to_json(), **({} if bands else {"band": None})}


def _break_even(
    scenario: Scenario, compiled: CompiledVariant, keep: Keep, plain: dict[int, RunRecord]
) -> Iterator[Found]:
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
    others = {
        BREAK_EVEN_VERDICT: row.verdict,
        BREAK_EVEN_NOTE: row.note,
        "overhead": row.overhead,
        "geometric_alpha": row.geometric_alpha,
        "linear_acceptance_rate": row.linear_acceptance_rate,
        "scenario_alpha": row.scenario_alpha,
        "plain_mean_batch": row.plain_mean_batch,
    }
    yield from ((variant.name, name, value) for name, value in others.items() if value is not None)


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
