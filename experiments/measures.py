"""What is measured on a cell: all arms as they are, as `simulate` does it, and the acceptance they need.

Cells that differ in their speculation only share the runs of plain decoding, which are remembered in each
process. That changes no figure: a run follows from its scenario and seed alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from experiments.cell import BREAK_EVEN, DONE, SIMULATE, Cell, Metric
from experiments.metrics import SATURATED, SPEEDUP_AT, VERDICT, Keep
from simulator.arms import CompiledArm
from simulator.breakeven.breakeven import FEWEST_FOR_BREAK_EVEN
from simulator.breakeven.case import Case
from simulator.breakeven.simulated_bench import SimulatedBench
from simulator.memory import shortage_of
from simulator.replications import ArmRuns, Replications, traffic_of
from simulator.results.estimate import Estimate
from simulator.results.record import RunRecord
from simulator.results.summary import STEP_BAND, Traffic, compare
from simulator.results.verdict import DOES_NOT_FIT
from simulator.scenario import Scenario, scenario_from_data

_PLAIN_ARMS = 256
"""Plain arms whose figures are remembered, a few kilobytes each."""
_PLAIN_RECORDS = 2
"""Plain arms whose runs are remembered, megabytes each: neighbouring cells share them."""

Found = tuple[str, str, Metric]
"""(arm, metric, value)"""


def measured(cell: Cell) -> tuple[str, Mapping[str, Metric], str | None]:
    """(status, metrics, why it is not DONE) of a cell. Raises InputError for a scenario that is wrong."""
    data = json.loads(cell.scenario)
    scenario, keep = scenario_from_data(data), Keep(cell.keep)
    shared = _without_speculation(data)
    plain = _plain_runs(shared)
    short = shortage_of(scenario, plain.arm.memory)
    if short is not None:
        return DOES_NOT_FIT, {}, short
    arms = [CompiledArm.compile(scenario, arm) for arm in scenario.speculation]
    shortages = {arm.name: text for arm in arms if (text := shortage_of(scenario, arm.memory)) is not None}
    fitting = [arm for arm in arms if arm.name not in shortages]
    found: list[Found] = []
    if SIMULATE in cell.measures:
        found += _simulated(scenario, plain, fitting, keep)
        found += [(name, VERDICT, DOES_NOT_FIT) for name in shortages]
    if BREAK_EVEN in cell.measures:
        for arm in fitting:
            found += _break_even(scenario, arm, keep, _plain_records(shared))
        found += [(name, "break_even_verdict", DOES_NOT_FIT) for name in shortages]
    kept = {f"{arm}.{name}": value for arm, name, value in found if keep.holds(arm, name)}
    if shortages and not fitting:
        return DOES_NOT_FIT, kept, "; ".join(shortages.values())
    return DONE, kept, None


def _simulated(
    scenario: Scenario, plain: ArmRuns, arms: Sequence[CompiledArm], keep: Keep
) -> Iterator[Found]:
    """The figures of `simulate`. Bands need runs of their own, and are there when a verdict is kept."""
    runs = [plain, *(ArmRuns(arm, plain.traffic) for arm in arms)]
    study = Replications(scenario, runs, bands=keep.verdicts, traffic=traffic_of)
    study.run()
    measurements = study.measurements()
    for one, measurement in zip(runs, measurements, strict=True):
        name = one.arm.name
        kept = (path for path in measurement.samples if keep.holds(name, path))
        for path in kept:
            if (estimate := measurement.estimate(path)) is not None:
                yield name, path, _json(estimate, study.bands)
        yield name, SATURATED, float(measurement.saturation.saturated)
    for one, measurement in zip(runs[1:], measurements[1:], strict=True):
        name, comparison = one.arm.name, compare(one.arm.name, measurements[0], measurement)
        for ratio, estimate in comparison.ratios.items():
            if estimate is not None and keep.holds(name, ratio):
                yield name, ratio, _json(estimate, study.bands)
        yield name, VERDICT, comparison.verdict.outcome
        yield name, "reason", comparison.verdict.sentence


def _json(estimate: Estimate, bands: bool) -> Metric:
    """An estimate as JSON; a band that holds sampling only is none."""
    return {**estimate.to_json(), **({} if bands else {"band": None})}


def _break_even(
    scenario: Scenario, compiled: CompiledArm, keep: Keep, plain: dict[int, RunRecord]
) -> Iterator[Found]:
    """The acceptance that an arm needs: for throughput, where requests come at a rate for mean TPOT."""
    arm = compiled.arm
    assert arm is not None
    if arm.max_draft_length == 0:
        yield arm.name, "break_even_note", "drafts nothing"
        return
    bench = SimulatedBench(scenario, arm, own_draft_length=True, plain_runs=plain)
    replications = max(scenario.run.replications, FEWEST_FOR_BREAK_EVEN)
    case = Case(bench, arm.max_draft_length, replications, STEP_BAND)
    row = case.row("tpot_mean" if bench.open_loop else "throughput", 1.0, keep.alphas)
    estimates = {
        "break_even_alpha": row.simulated_alpha,
        "break_even_acceptance_length": row.mean_acceptance_length,
        **{f"{SPEEDUP_AT}.{alpha}": speedup for alpha, speedup in row.speedup_at.items()},
    }
    yield from ((arm.name, name, e.to_json()) for name, e in estimates.items() if e is not None)
    others = {
        "break_even_verdict": row.verdict,
        "break_even_note": row.note,
        "overhead": row.overhead,
        "geometric_alpha": row.geometric_alpha,
        "linear_acceptance_rate": row.linear_acceptance_rate,
        "scenario_alpha": row.scenario_alpha,
        "plain_mean_batch": row.plain_mean_batch,
    }
    yield from ((arm.name, name, value) for name, value in others.items() if value is not None)


def _without_speculation(data: Mapping[str, Any]) -> str:
    """What plain decoding depends on, as text."""
    plain = {key: value for key, value in data.items() if key not in ("name", "speculation")}
    workload = plain.get("workload") or {}
    if workload.get("classes"):  # their acceptance is that of arms
        classes = [
            {key: value for key, value in entry.items() if key != "acceptance"}
            for entry in workload["classes"]
        ]
        plain["workload"] = {**workload, "classes": classes}
    return json.dumps(plain)


@lru_cache(maxsize=_PLAIN_ARMS)
def _plain_runs(scenario_without_speculation: str) -> ArmRuns:
    scenario = scenario_from_data(json.loads(scenario_without_speculation))
    plain = CompiledArm.compile(scenario, None)
    return ArmRuns(plain, Traffic.of(plain))


@lru_cache(maxsize=_PLAIN_RECORDS)
def _plain_records(scenario_without_speculation: str) -> dict[int, RunRecord]:
    """Plain decoding by replication, as far as break-evens have run it."""
    return {}
