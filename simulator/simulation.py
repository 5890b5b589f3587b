"""`simulate(scenario)`: every arm on the same traffic and luck, measured and compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from simulator.arms import CompiledArm
from simulator.memory import require_fit
from simulator.results.estimate import mean_estimate
from simulator.results.record import STATUS_REJECTED, RunRecord
from simulator.results.result import Provenance, Result
from simulator.results.summary import STEP_BAND, ArmMeasurement, Measured, Traffic, compare
from simulator.scenario import Scenario, defaults_used
from simulator.traffic.workload import Requests, generate, workload_notes

if TYPE_CHECKING:
    from simulator.pipeline import Stage

Progress = Callable[[int, int, str], None]
"""(done, total, what) after each run."""

MOST_REPLICATIONS = 100
"""Where adding replications for a precision ends."""


def replication_seed(seed: int, replication: int) -> int:
    """Return the seed of one replication of a scenario seed, 63 bits."""
    return int(np.random.SeedSequence([seed, replication]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def make_traffic(scenario: Scenario, replication: int) -> Requests:
    """Return the requests of one replication; all arms meet the same."""
    return generate(scenario.workload, replication_seed(scenario.run.seed, replication), scenario.base_dir)


_WITHOUT_MISSES = ("geometric", "decay", "hierarchical")
"""Acceptance models that a lookup cannot miss with."""

traffic_of = lru_cache(maxsize=8)(make_traffic)
"""`make_traffic`, remembered: for searches that run the same requests many times."""


def simulate(
    scenario: Scenario,
    progress: Progress | None = None,
    trace_out: str | Path | None = None,
    keep_requests: bool = True,
) -> Result:
    """Run plain decoding and every speculative arm of a scenario and return what each gives.

    `trace_out`: the stages of all steps of the first replication are written there as a Chrome trace.
    `keep_requests`: the result holds every request of every run; without, memory does not grow
    with replications. Raises InputError where the scenario does not fit the memory,
    or names something that cannot be used.
    """
    if scenario.run.mechanisms.kv_limit:
        require_fit(scenario)
    arms = [CompiledArm.compile(scenario, arm) for arm in (None, *scenario.speculation)]
    timelines: dict[str, list[Stage]] = {arm.name: [] for arm in arms}
    runs = [_ArmRuns(arm, Traffic.of(scenario), keep_requests) for arm in arms]
    study = _Study(scenario, runs, progress, timelines if trace_out is not None else None)
    study.replicate(scenario.run.replications)
    missed = None if scenario.run.precision is None else study.reach(scenario.run.precision)
    measurements = [one.measurement() for one in runs]
    if trace_out is not None:
        _write_trace(trace_out, scenario, timelines)
    return Result(
        scenario=scenario.model_dump(mode="json"),
        provenance=_provenance(scenario, runs[0]),
        arms={one.arm.name: measured.summary() for one, measured in zip(runs, measurements, strict=True)},
        comparison={
            one.arm.name: compare(one.arm.name, measurements[0], measured)
            for one, measured in zip(runs[1:], measurements[1:], strict=True)
        },
        notes=(*_notes(scenario, runs), *([missed] if missed else ())),
        records={one.arm.name: tuple(one.records) for one in runs} if keep_requests else {},
    )


class _ArmRuns:
    """The runs of one arm, measured as they are made."""

    def __init__(self, arm: CompiledArm, traffic: Traffic, keep_requests: bool) -> None:
        self.arm, self.traffic, self.keep_requests = arm, traffic, keep_requests
        self.runs: list[Measured] = []
        self.ends: list[tuple[Measured, ...]] = []
        self.records: list[RunRecord] = []
        self.rejected = 0
        self.beyond_drafter: str | None = None
        self.driver: tuple[str, str | None] = ("", None)

    def run(self, requests: Requests, seed: int, timeline: list[Stage] | None) -> None:
        """Run one replication."""
        record = self.arm.run(requests, seed, timeline=timeline)
        if not self.runs:
            self.beyond_drafter = self.arm.beyond_drafter(requests)
        self.runs.append(Measured.of(record, self.traffic))
        self.rejected += int((record.status == STATUS_REJECTED).sum())
        self.driver = record.driver, record.driver_reason
        if self.keep_requests:
            self.records.append(record)

    def run_ends(self, requests: Requests, seed: int) -> None:
        """Run a replication again at both ends of the cost model's band: whole steps, then decodes only."""
        for decodes_only in (False, True) if self.arm.arm is not None else (False,):
            for end in (-STEP_BAND, STEP_BAND):
                scaled = self.arm.run(requests, seed, step_scale=1 + end, scales_decodes_only=decodes_only)
                self.ends.append((Measured.of(scaled, self.traffic),))
                del scaled

    def measurement(self) -> ArmMeasurement:
        """Return what the runs so far say."""
        return ArmMeasurement(self.traffic, tuple(self.runs), *self.ends)


class _Study:
    """All arms, replication by replication, on common luck."""

    def __init__(
        self,
        scenario: Scenario,
        arms: Sequence[_ArmRuns],
        progress: Progress | None,
        timelines: dict[str, list[Stage]] | None,
    ) -> None:
        self.scenario, self.arms, self.progress, self.timelines = scenario, arms, progress, timelines
        self.have, self.done, self.total = 0, 0, len(arms)

    def replicate(self, replications: int) -> None:
        """Run until every arm has so many replications."""
        self.total += (replications - self.have) * len(self.arms)
        while self.have < replications:
            self._replicate_once()

    def _replicate_once(self) -> None:
        requests = make_traffic(self.scenario, self.have)
        seed = replication_seed(self.scenario.run.seed, self.have)
        for one in self.arms:
            watched = self.timelines is not None and self.have == 0
            one.run(requests, seed, self.timelines[one.arm.name] if watched and self.timelines else None)
            self._tell(f"{one.arm.name}, replication {self.have + 1}")
        if self.have == 0:
            for one in self.arms:
                one.run_ends(requests, seed)
                self._tell(f"{one.arm.name}, band of the cost model")
        self.have += 1

    def reach(self, precision: float) -> str | None:
        """Add replications until the 95 % interval of every throughput is within ± `precision` of it.

        Returns what is missing where the replications end before that.
        """
        while (widest := self._widest()) > precision and self.have < MOST_REPLICATIONS:
            self.replicate(self.have + 2)
        if widest <= precision:
            return None
        reached = f"± {widest:.2g}" if math.isfinite(widest) else "no interval"
        return (
            f"the precision asked for, {precision:g}, is not reached: {reached} at {self.have} replications"
        )

    def _widest(self) -> float:
        """The largest relative half-width of a throughput's interval; infinite where one has none."""
        throughputs = (
            mean_estimate(one.measurement().samples["throughput_tokens_per_s"]) for one in self.arms
        )
        return max(math.inf if one is None else one.relative_half_width for one in throughputs)

    def _tell(self, what: str) -> None:
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, self.total, what)


def _write_trace(path: str | Path, scenario: Scenario, timelines: dict[str, list[Stage]]) -> None:
    """Write the stages of all arms as one Chrome trace, arm after arm."""
    from simulator.results.timeline import write_chrome_trace

    replicas = scenario.hardware.replicas
    rows = [
        stage._replace(replica=stage.replica + index * replicas)
        for index, stages in enumerate(timelines.values())
        for stage in stages
    ]
    names = {
        index * replicas + replica: arm if replicas == 1 else f"{arm}, replica {replica}"
        for index, arm in enumerate(timelines)
        for replica in range(replicas)
    }
    write_chrome_trace(path, rows, scenario.title, names)


def _provenance(scenario: Scenario, plain: _ArmRuns) -> Provenance:
    setup = plain.arm.setup
    driver, reason = plain.driver
    return Provenance(
        version=version("decodesim"),
        seed=scenario.run.seed,
        scenario_sha256=scenario.scenario_sha256,
        profile=setup.profile.name,
        profile_sha256=setup.profile.sha256,
        preset=setup.preset.name,
        backend=driver,
        backend_reason=reason,
        defaults_used=defaults_used(scenario),
        replications=len(plain.runs),
    )


def _never_served(one: _ArmRuns) -> str:
    """How many requests are left out, and what they exceed."""
    settings = one.arm.settings
    limits = [f"the model's context ({settings.max_context_tokens:,} tokens)"]
    if one.arm.scenario.run.mechanisms.kv_limit:
        limits.append(f"the KV memory ({settings.total_blocks * settings.block_tokens:,})")
    if not settings.chunked_prefill:
        limits.append(f"a step that prompts may not be cut for ({settings.max_num_batched_tokens:,})")
    count = one.rejected / len(one.runs)
    return f"{count:g} requests a run are left out, as they are longer than {' or '.join(limits)}"


def _notes(scenario: Scenario, arms: Sequence[_ArmRuns]) -> tuple[str, ...]:
    """What a reader must know before trusting the figures."""
    notes = [*workload_notes(scenario.workload, scenario.base_dir)]
    setup = arms[0].arm.setup
    if setup.preset_note:
        notes.append(setup.preset_note)
    for one in arms:
        if one.rejected:
            notes.append(f"{one.arm.name}: {_never_served(one)}")
        if one.beyond_drafter:
            notes.append(f"{one.arm.name}: {one.beyond_drafter}")
        entry = one.arm.arm
        if entry is not None and entry.method == "ngram" and entry.acceptance.model in _WITHOUT_MISSES:
            notes.append(
                f"{one.arm.name}: {entry.acceptance.model} acceptance supposes that every n-gram lookup "
                "finds a match; {model: gated, …} says how often one does"
            )
    ranks, measured = scenario.hardware.tensor_parallel, max(setup.profile.allreduce().tables, default=0)
    if ranks > measured > 0:
        notes.append(
            f"all-reduces of {ranks} GPUs are priced as those of {measured}, the most that the profile "
            "knows: between nodes they take longer"
        )
    parts = setup.profile.statuses
    for status in ("inherited", "assumed"):
        names = sorted(name for name, of_part in parts.items() if of_part == status)
        if names:
            notes.append(f"{status} in the profile {setup.profile.name}: {', '.join(names)}")
    return tuple(notes)
