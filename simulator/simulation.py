"""`simulate(scenario)`: every arm on the same traffic and luck, measured and compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from simulator.arms import CompiledArm
from simulator.estimate import mean_estimate
from simulator.memory import require_fit
from simulator.record import RunRecord
from simulator.result import Provenance, Result
from simulator.scenario import Scenario, defaults_used
from simulator.summary import STEP_BAND, ArmMeasurement, ArmRuns, Traffic, compare
from simulator.workload import Requests, class_names, generate, workload_notes

if TYPE_CHECKING:
    from simulator.pipeline import Stage

Progress = Callable[[int, int, str], None]
"""(done, total, what) after each run."""

MOST_REPLICATIONS = 100
"""Where adding replications for a precision ends."""


def replication_seed(seed: int, replication: int) -> int:
    """Return the seed of one replication of a scenario seed, 63 bits."""
    return int(np.random.SeedSequence([seed, replication]).generate_state(1, np.uint64)[0] >> np.uint64(1))


@lru_cache(maxsize=16)
def traffic_of(scenario: Scenario, replication: int) -> Requests:
    """Return the requests of one replication; all arms meet the same."""
    return generate(scenario.workload, replication_seed(scenario.run.seed, replication), scenario.base_dir)


def simulate(
    scenario: Scenario, progress: Progress | None = None, trace_out: str | Path | None = None
) -> Result:
    """Run plain decoding and every speculative arm of a scenario and return what each gives.

    `trace_out`: the stages of all steps of the first replication are written there as a Chrome trace. Raises
    InputError where the scenario does not fit the memory, or names something that cannot be used.
    """
    if scenario.run.mechanisms.kv_limit:
        require_fit(scenario)
    arms = [CompiledArm.compile(scenario, arm) for arm in (None, *scenario.speculation)]
    timelines: dict[str, list[Stage]] | None = None
    if trace_out is not None:
        timelines = {arm.name: [] for arm in arms}
    runs = _Runs(scenario, arms, progress, timelines)
    runs.replicate(scenario.run.replications)
    if scenario.run.precision is not None:
        runs.reach(scenario.run.precision)
    measurements = runs.measurements()
    plain = measurements[0]
    comparison = {
        arm.name: compare(arm.name, plain, measured)
        for arm, measured in zip(arms[1:], measurements[1:], strict=True)
    }
    if trace_out is not None and timelines is not None:
        from simulator.timeline import write_chrome_trace

        rows = [
            stage._replace(replica=stage.replica + index * scenario.hardware.replicas)
            for index, arm in enumerate(arms)
            for stage in timelines[arm.name]
        ]
        write_chrome_trace(trace_out, rows, scenario.title)
    return Result(
        scenario=scenario.model_dump(mode="json"),
        provenance=_provenance(scenario, arms, measurements[0].runs.records),
        arms={arm.name: measured.summary() for arm, measured in zip(arms, measurements, strict=True)},
        comparison=comparison,
        notes=_notes(scenario, arms, measurements),
        records={arm.name: measured.runs.records for arm, measured in zip(arms, measurements, strict=True)},
    )


class _Runs:
    """The runs of all arms, replication by replication, on common luck."""

    def __init__(
        self,
        scenario: Scenario,
        arms: Sequence[CompiledArm],
        progress: Progress | None,
        timelines: dict[str, list[Stage]] | None,
    ) -> None:
        self.scenario, self.arms, self.progress, self.timelines = scenario, arms, progress, timelines
        self.records: list[list[RunRecord]] = [[] for _ in arms]
        self.ends: list[tuple[RunRecord, RunRecord]] = []
        self.done, self.total = 0, 0

    def replicate(self, replications: int) -> None:
        """Run until every arm has so many replications."""
        have = len(self.records[0])
        self.total += (replications - have) * len(self.arms) + (2 * len(self.arms) if not self.ends else 0)
        for replication in range(have, replications):
            requests = traffic_of(self.scenario, replication)
            seed = replication_seed(self.scenario.run.seed, replication)
            for arm, records in zip(self.arms, self.records, strict=True):
                timeline = None
                if self.timelines is not None and replication == 0:
                    timeline = self.timelines[arm.name]
                records.append(arm.run(requests, seed, timeline=timeline))
                self._tell(f"{arm.name}, replication {replication + 1}")
        if not self.ends:
            self._run_ends()

    def _run_ends(self) -> None:
        """Run the first replication at either end of the cost model's band."""
        requests, seed = traffic_of(self.scenario, 0), replication_seed(self.scenario.run.seed, 0)
        for arm in self.arms:
            faster, slower = (arm.run(requests, seed, step_scale=1 + end) for end in (-STEP_BAND, STEP_BAND))
            self.ends.append((faster, slower))
            self.done += 1
            self._tell(f"{arm.name}, band of the cost model")

    def reach(self, precision: float) -> None:
        """Add replications until the 95 % interval of every arm's throughput is within ± `precision` of it."""
        while len(self.records[0]) < MOST_REPLICATIONS:
            throughputs = [
                mean_estimate(measured.samples["throughput_tokens_per_s"]) for measured in self.measurements()
            ]
            if all(one is not None and one.relative_half_width <= precision for one in throughputs):
                return
            self.replicate(len(self.records[0]) + 2)

    def measurements(self) -> list[ArmMeasurement]:
        """Return the measurement of every arm, plain first."""
        workload = self.scenario.workload
        traffic = Traffic(
            open_loop=workload.arrivals.kind not in ("closed", "burst"),
            class_names=class_names(workload),
            limits=self.scenario.slo.model_dump(exclude_none=True) if self.scenario.slo else {},
            replicas=self.scenario.hardware.replicas,
        )
        return [
            ArmMeasurement(ArmRuns(tuple(records), (faster,), (slower,)), traffic)
            for records, (faster, slower) in zip(self.records, self.ends, strict=True)
        ]

    def _tell(self, what: str) -> None:
        self.done += 1
        if self.progress is not None:
            self.progress(min(self.done, self.total), self.total, what)


def _provenance(scenario: Scenario, arms: Sequence[CompiledArm], records: Sequence[RunRecord]) -> Provenance:
    setup = arms[0].setup
    return Provenance(
        version=version("decodesim"),
        seed=scenario.run.seed,
        scenario_sha256=scenario.scenario_sha256,
        profile=setup.profile.name,
        profile_sha256=setup.profile.sha256,
        preset=setup.preset.name,
        backend=records[0].driver,
        backend_reason=records[0].driver_reason,
        defaults_used=defaults_used(scenario),
        replications=len(records),
    )


def _notes(
    scenario: Scenario, arms: Sequence[CompiledArm], measurements: Sequence[ArmMeasurement]
) -> tuple[str, ...]:
    """What a reader must know before trusting the figures."""
    notes = [*workload_notes(scenario.workload, scenario.base_dir)]
    setup = arms[0].setup
    if setup.preset_note:
        notes.append(setup.preset_note)
    for arm, measured in zip(arms, measurements, strict=True):
        rejected = sum(int((record.status == 5).sum()) for record in measured.runs.records)
        if rejected:
            count = len(measured.runs.records)
            notes.append(
                f"{arm.name}: {rejected / count:g} requests a run can never be served "
                "(longer than the model's context or the KV memory) and are left out"
            )
    parts = setup.profile.statuses
    for status in ("inherited", "assumed"):
        names = sorted(name for name, of_part in parts.items() if of_part == status)
        if names:
            notes.append(f"{status} in the profile {setup.profile.name}: {', '.join(names)}")
    return tuple(notes)
