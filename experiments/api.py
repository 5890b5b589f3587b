"""The calls of `import decodesim`: each command of the command line as a function.

Answers are typed records: frozen, with estimates (`value`, `ci95`, `band`) in SI units. `columns` makes
arrays of any of them, by name, as pandas, polars and plots take them. Bad input raises `InputError`, whose
text has one line per problem. docs/library.md shows all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from calibration.validation.validate import Validation
    from experiments.capacity.answer import Plan
    from experiments.maps.speedup import SpeedupMap
    from experiments.maps.study_map import StudyMap
    from experiments.runner.pools import Pool
    from experiments.sensitivity.sobol import Sobol
    from experiments.sensitivity.tornado import Tornado
    from experiments.study.study import Study
    from experiments.sweep import Standing
    from experiments.whatif import WhatIf
    from simulator.breakeven.answer import BreakEven
    from simulator.memory.report import MemoryReport
    from simulator.results.result import Result
    from simulator.runs.replications import Progress
    from simulator.scenario import Scenario

    Columns = dict[str, npt.NDArray[np.float64] | npt.NDArray[np.object_]]
    """Name → one value per row: float64 with NaN for what is missing, text as objects."""

__all__ = [
    "break_even",
    "break_even_map",
    "columns",
    "load",
    "memory",
    "plan",
    "requests",
    "results",
    "simulate",
    "sobol",
    "speedup_map",
    "sweep",
    "tornado",
    "validate",
    "what_if",
]


def load(source: str | Path | Mapping[str, Any] | Scenario, *settings: str) -> Scenario:
    """The scenario of a file, of a mapping with the same keys, or another scenario, with fields set as
    `path=value`."""
    from simulator.scenario import Scenario, load_scenario, scenario_from_data

    if isinstance(source, Scenario):
        from experiments.alternatives import scenario_with

        return scenario_with(source, settings)
    if isinstance(source, Mapping):
        return scenario_from_data(source, overrides=settings)
    return load_scenario(source, settings)


def simulate(
    scenario: Scenario, precision: float | str | None = None, progress: Progress | None = None
) -> Result:
    """Plain decoding and every speculative variant on the same traffic and luck.

    `precision`: replications until the 95 % interval of the throughput is within ± so much, `0.01` or `"1%"`.
    """
    from simulator.simulation import simulate as run

    return run(_with_precision(scenario, precision), progress)


def break_even(
    scenario: Scenario,
    concurrency: Sequence[int] | None = None,
    rate_per_s: Sequence[float] | None = None,
    draft_length: Sequence[int] | None = None,
    target_speedup: Sequence[float] = (1.0,),
    metric: Sequence[str] | None = None,
    variant: str | None = None,
    progress: Progress | None = None,
) -> BreakEven:
    """The acceptance that a variant (default the first) needs, by load, draft length, target and metric."""
    from simulator.breakeven.breakeven import breakeven

    loads: list[Mapping[str, float]] = [{"concurrency": clients} for clients in concurrency or ()]
    loads += [{"rate_per_s": rate} for rate in rate_per_s or ()]
    return breakeven(scenario, loads or None, draft_length, target_speedup, metric, progress, variant)


def memory(scenario: Scenario) -> MemoryReport:
    """What every variant takes of a GPU's memory and what it leaves for KV."""
    from simulator.memory.report import memory as report

    return report(scenario)


def what_if(
    scenario: Scenario,
    *alternatives: str | Sequence[str],
    precision: float | str | None = None,
    progress: Progress | None = None,
) -> WhatIf:
    """The scenario against others on the same luck. An alternative is `path=value`, or several of them."""
    from experiments.alternatives import alternatives_of
    from experiments.whatif import what_if as compare

    asked = [[one] if isinstance(one, str) else list(one) for one in alternatives]
    return compare(_with_precision(scenario, precision), alternatives_of(asked), progress)


def tornado(
    scenario: Scenario,
    variant: str | None = None,
    of: str = "speedup",
    ranges: Mapping[str, tuple[float, float]] | None = None,
    progress: Progress | None = None,
) -> Tornado:
    """The answer at either end of every uncertain input; `ranges`: fields of the scenario beside ours."""
    from experiments.sensitivity.inputs import inputs_from
    from experiments.sensitivity.tornado import tornado as turn

    return turn(scenario, variant, of, inputs_from(_texts(ranges), scenario), progress)


def sobol(
    scenario: Scenario,
    variant: str | None = None,
    of: str = "speedup",
    ranges: Mapping[str, tuple[float, float]] | None = None,
    samples: int = 128,
    progress: Progress | None = None,
) -> Sobol:
    """Which uncertain inputs make the spread of the answer, when all of them vary."""
    from experiments.sensitivity.inputs import inputs_from
    from experiments.sensitivity.sobol import sobol as vary

    return vary(scenario, variant, of, inputs_from(_texts(ranges), scenario), samples, progress)


def speedup_map(
    scenario: Scenario,
    variant: str | None = None,
    concurrency: Sequence[int] | None = None,
    alpha: Sequence[float] | None = None,
    progress: Progress | None = None,
) -> SpeedupMap:
    """Throughput of a variant ÷ that of plain decoding, by clients at work and acceptance."""
    from experiments.maps.speedup import ALPHAS
    from experiments.maps.speedup import speedup_map as draw
    from simulator.scenario import chosen_variant

    chosen = chosen_variant(scenario, variant, "compare with plain decoding")
    return draw(scenario, chosen, concurrency, ALPHAS if alpha is None else alpha, progress)


def sweep(
    study: str | Path | Study,
    store: str | Path,
    workers: int = 0,
    dask: str | None = None,
    tell: Callable[[Standing], None] = lambda standing: None,
) -> Standing:
    """Run what a store does not have yet of a study. `workers` 0: in this process; more are processes, and a
    script that starts them keeps its work under `if __name__ == "__main__":`. `dask`: address, or `local`."""
    from experiments.store.store import Store
    from experiments.study.load import load_study
    from experiments.study.study import Study
    from experiments.sweep import sweep as run

    read = study if isinstance(study, Study) else load_study(study)
    with Store.create_or_open(store, read.document, read.sha256) as kept, _pool(workers, dask) as pool:
        return run(read, kept, pool, tell)


def results(store: str | Path, where: str | None = None, columns: Sequence[str] | None = None) -> Columns:
    """The cells of a store as arrays, filtered by an SQL expression over its columns. It may still grow."""
    from experiments.store.reader import StoreReader

    with StoreReader(store) as cells:
        return cells.arrays(where, columns)


def break_even_map(store: str | Path, where: str | None = None) -> StudyMap:
    """The cells of a study's store by load and place: acceptance needed, speedups, best draft lengths."""
    from experiments.maps.study_map import study_map
    from experiments.store.columns import SETTING
    from experiments.store.reader import StoreReader

    with StoreReader(store) as cells:
        settings = [column.name for column in cells.columns() if column.role == SETTING]
        return study_map(cells.rows(where), settings)


def plan(
    scenario: Scenario,
    slo: str | None = None,
    rate_per_s: float | None = None,
    gpu_hour_cost: float | None = None,
    progress: Progress | None = None,
) -> Plan:
    """Replicas, cost and verdict for the scenario's traffic within an SLO, `ttft_p99=1s,tpot_p99=25ms`."""
    from experiments.capacity.plan import plan as make

    return make(scenario, slo, rate_per_s, gpu_hour_cost, progress)


def validate(*files: str | Path, progress: Progress | None = None) -> Validation:
    """Published measurements, simulated and compared: those of case files, or the ones that come along."""
    from calibration.validation.reconstruction.cases import committed_cases, read_cases
    from calibration.validation.validate import validate as compare

    return compare(read_cases(files) if files else committed_cases(), 1, progress)


def requests(result: Result, variant: str = "plain") -> Columns:
    """Every request of a variant in all replications: times in s, tokens, drafts, whether it is measured."""
    from experiments.tables import request_columns

    return request_columns(result.records.get(variant, ()))


def columns(answer: object) -> Columns:
    """Any answer of this module as arrays: a row per variant, load, alternative, input, request class, …

    An estimate becomes five columns: `NAME`, `NAME_low` and `NAME_high` of its sampling interval,
    `NAME_band_low` and `NAME_band_high`.
    """
    from experiments.tables import columns_of, rows_of

    return columns_of(rows_of(answer))


def _with_precision(scenario: Scenario, precision: float | str | None) -> Scenario:
    return scenario if precision is None else load(scenario, f"run.precision={precision}")


def _texts(ranges: Mapping[str, tuple[float, float]] | None) -> list[str]:
    return [f"{path}={low}:{high}" for path, (low, high) in (ranges or {}).items()]


@contextmanager
def _pool(workers: int, dask: str | None) -> Iterator[Pool]:
    if dask is not None:
        from experiments.runner.dask_pool import dask_pool

        with dask_pool(dask, workers or None) as cluster:
            yield cluster
    elif workers:
        from experiments.runner.pools import local_pool

        with local_pool(workers) as processes:
            yield processes
    else:
        from experiments.runner.inline_pool import InlinePool

        yield InlinePool()
