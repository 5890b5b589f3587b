"""The replications of a scenario: every variant on the same requests and random numbers, measured as its runs
end.

The precision asked for decides how many there are and how long each is (`results/precision.py`). The first of
them decide where the warm-up ends (`results/warm_up.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from simulator.numerics.arrays import Floats
from simulator.results.precision import FEWEST_REPLICATIONS, MOST_REPLICATIONS, Precision
from simulator.results.record import STATUS_REJECTED, RunRecord
from simulator.results.summary import STEP_BAND, MeasuredRun, MeasurementScope, VariantMeasurement
from simulator.results.warm_up import STEADY_KINDS, Steadiness, measured_requests, stays_s, steadiness
from simulator.runs.variant import CompiledVariant
from simulator.scenario import Scenario
from simulator.traffic.workload import Requests, generate

if TYPE_CHECKING:
    from simulator.drivers.pipeline import TimelineStage
    from simulator.scenario.workload import Workload

Progress = Callable[[int, int, str], None]
"""(done, total, label) after each run."""

_MOST_KEPT = 200_000
"""Replications of more requests than this are not kept: 20 MB."""

MOST_LENGTHENING, ENOUGH_REQUESTS = 16, 10_000
"""A run becomes at most this many times longer, but may always have this many requests."""


def replication_seed(seed: int, replication: int) -> int:
    """Return the seed of one replication of a scenario seed, 63 bits."""
    return int(np.random.SeedSequence([seed, replication]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def make_traffic(scenario: Scenario, replication: int) -> Requests:
    """Return the requests of one replication; all variants meet the same."""
    return generate(scenario.workload, replication_seed(scenario.run.seed, replication), scenario.base_dir)


def traffic_of(scenario: Scenario, replication: int) -> Requests:
    """Return `make_traffic`, kept for searches and studies that run the same requests many times.

    Very many requests are drawn again each time: that takes little time compared with their run, and no
    memory.
    """
    if scenario.workload.requests > _MOST_KEPT:
        return make_traffic(scenario, replication)
    seed = replication_seed(scenario.run.seed, replication)
    return _generated(scenario.workload, seed, scenario.base_dir)


@lru_cache(maxsize=8)
def _generated(workload: Workload, seed: int, base_dir: Path) -> Requests:
    return generate(workload, seed, base_dir)


@dataclass
class _RunsOfWarmUp:
    """The runs that share one warm-up."""

    runs: list[MeasuredRun] = field(default_factory=list)
    ends: list[tuple[MeasuredRun, ...]] = field(default_factory=list)
    records: list[RunRecord] = field(default_factory=list)


class VariantRuns:
    """The runs of one variant, measured as they are made.

    No run is made twice, so that plain decoding can serve the comparisons of many scenarios that differ only
    in their speculation.
    """

    def __init__(
        self, variant: CompiledVariant, scope: MeasurementScope, keep_requests: bool = False
    ) -> None:
        self.variant, self.scope, self.keep_requests = variant, scope, keep_requests
        self._by_warm_up: dict[int, _RunsOfWarmUp] = {}
        self.stays: list[Floats] = []
        """Of the runs with the usual warm-up: they show whether it is long enough."""
        self.made = self.rejected = 0
        """Runs, and their requests that are too long to be served."""
        self.beyond_drafter: str | None = None
        self.driver: tuple[str, str | None] = ("", None)
        run = variant.scenario.run
        self.intervals = run.replications > 1 or run.precision is not None
        """Whether the runs are to give intervals."""

    def run(
        self,
        replication: int,
        requests: Requests,
        seed: int,
        warm_up: int,
        timeline: list[TimelineStage] | None,
    ) -> None:
        """Run a replication, the next one with this warm-up, unless it has been run."""
        same_warm_up = self._by_warm_up.setdefault(warm_up, _RunsOfWarmUp())
        if len(same_warm_up.runs) > replication:
            return
        record = self.variant.run(requests, seed, timeline=timeline, warm_up=warm_up)
        if not self.made:
            self.beyond_drafter = self.variant.beyond_drafter(requests)
        same_warm_up.runs.append(MeasuredRun.of(record, self.scope, intervals=self.intervals))
        self.made += 1
        self.rejected += int((record.status == STATUS_REJECTED).sum())
        self.driver = record.driver, record.driver_reason
        if warm_up == 0:
            self.stays.append(stays_s(record))
        if self.keep_requests:
            same_warm_up.records.append(record)

    def run_ends(self, requests: Requests, seed: int, warm_up: int) -> None:
        """Run a replication again at both ends of the cost model's band: whole steps, then decodes only."""
        ends = self._by_warm_up[warm_up].ends
        if ends:
            return
        for decodes_only in (False, True) if self.variant.variant is not None else (False,):
            for end in (-STEP_BAND, STEP_BAND):
                scaled = self.variant.run(
                    requests, seed, step_scale=1 + end, scales_decodes_only=decodes_only, warm_up=warm_up
                )
                ends.append((MeasuredRun.of(scaled, self.scope, intervals=False),))
                del scaled

    def measurement(self, replications: int, warm_up: int, bands: bool) -> VariantMeasurement:
        """Return the figures of the first `replications`, with or without the bands of the cost model."""
        same_warm_up = self._by_warm_up[warm_up]
        return VariantMeasurement(
            self.scope, tuple(same_warm_up.runs[:replications]), *(same_warm_up.ends if bands else ())
        )

    def records(self, warm_up: int) -> tuple[RunRecord, ...]:
        """Return the runs themselves, where they are kept."""
        return tuple(self._by_warm_up[warm_up].records)


class Replications:
    """All variants of a scenario, replication by replication, on common random numbers.

    `bands`: the ends of the cost model's band are run too; without, bands hold sampling only. `traffic`
    returns the requests of a replication. `variants` are replaced when runs must become longer.
    """

    def __init__(
        self,
        scenario: Scenario,
        variants: Sequence[VariantRuns],
        progress: Progress | None = None,
        *,
        bands: bool = True,
        traffic: Callable[[Scenario, int], Requests] = make_traffic,
        timelines: dict[str, list[TimelineStage]] | None = None,
    ) -> None:
        self.original = self.scenario = scenario
        self.variants, self.progress, self.timelines, self.traffic = variants, progress, timelines, traffic
        self.precision = Precision.of(scenario.run)
        intervals = scenario.run.replications > 1 or self.precision is not None
        self.bands = bands and intervals  # a band without an interval would claim to know more than it does
        self.done, self.total = 0, len(variants) if self.bands else 0
        self.have = self.requests = self.warm_up = 0
        self.steadiness: dict[str, Steadiness] = {}

    def run(self) -> str | None:
        """Run as many replications as the scenario asks for, or its precision needs.

        Returns what is missing where the replications end before the precision is met. Raises InputError
        where the precision is asked of an unknown figure.
        """
        missed = None
        if self.precision is None:
            self.start(self.scenario.run.replications)
        else:
            missed = self._reach(self.precision)
        self.add_bands()
        return missed

    def add_bands(self) -> None:
        """Run the first replication again at the ends of the cost model's band, where bands are asked for."""
        if not self.bands:
            return
        requests, seed = self.traffic(self.scenario, 0), replication_seed(self.scenario.run.seed, 0)
        for runs in self.variants:
            runs.run_ends(requests, seed, self.warm_up)
            self._report(f"{runs.variant.name}, band of the cost model")

    def start(self, replications: int) -> None:
        """Run the first replications and look for the end of the warm-up in them. Where that is later than
        usual, run them again.
        """
        self.replicate(replications)
        if self.scenario.workload.arrivals.kind not in STEADY_KINDS:
            return
        serving = zip(self.variants, self.measurements(), strict=True)
        self.steadiness = {
            runs.variant.name: steadiness(runs.stays[:replications], self.measured)
            for runs, measurement in serving
            if not measurement.saturation.saturated
        }
        self.leave_out(max((steady.warm_up for steady in self.steadiness.values()), default=0))

    def leave_out(self, warm_up: int) -> None:
        """Leave out at least `warm_up` requests at the start, and run again what left out fewer.

        Only where arrivals keep their rate: no warm-up is looked for in others.
        """
        if warm_up <= self.warm_up or self.scenario.workload.arrivals.kind not in STEADY_KINDS:
            return
        replications, self.have, self.warm_up = self.have, 0, warm_up
        self.replicate(replications)

    def replicate(self, replications: int) -> None:
        """Run until every variant has this many replications."""
        self.total += (replications - self.have) * len(self.variants)
        while self.have < replications:
            self._replicate_once()

    def lengthen(self, factor: int) -> bool:
        """Drop all runs for runs `factor` times as long. Return False where they cannot be longer."""
        before, now = self.original.workload.requests, self.scenario.workload.requests
        requests = min(now * factor, max(before * MOST_LENGTHENING, ENOUGH_REQUESTS))
        if self.scenario.workload.arrivals.kind not in STEADY_KINDS or requests <= now:
            return False
        workload = self.scenario.workload.model_copy(update={"requests": requests})
        self.scenario = self.scenario.model_copy(update={"workload": workload})
        self.variants = [
            VariantRuns(
                CompiledVariant.compile(self.scenario, runs.variant.variant), runs.scope, runs.keep_requests
            )
            for runs in self.variants
        ]
        self.have = self.warm_up = 0
        for timeline in (self.timelines or {}).values():
            timeline.clear()
        return True

    def measurements(self) -> list[VariantMeasurement]:
        """Return the figures of the runs so far, variant by variant."""
        return [runs.measurement(self.have, self.warm_up, self.bands) for runs in self.variants]

    @property
    def measured(self) -> tuple[int, int]:
        """The range of requests of a run that are measured."""
        return measured_requests(self.scenario, self.requests, self.warm_up)

    def notes(self) -> list[str]:
        """Return what a reader must know about the length of runs and warm-up."""
        notes = []
        before, now = self.original.workload.requests, self.scenario.workload.requests
        if now > before:
            notes.append(
                f"runs have {now:,} requests instead of {before:,}, as the precision asked for needs"
            )
        if self.warm_up:
            usual, _ = measured_requests(self.scenario, self.requests)
            notes.append(
                f"the first {self.measured[0]:,} requests are warm-up, as the runs show (usual: {usual:,})"
            )
        for variant, steady in self.steadiness.items():
            if steady.too_short:
                notes.append(
                    f"{variant}: {steady.too_short}: intervals may be too narrow, and more requests would "
                    "show it"
                )
        return notes

    def _replicate_once(self) -> None:
        requests = self.traffic(self.scenario, self.have)
        seed = replication_seed(self.scenario.run.seed, self.have)
        self.requests = len(requests.arrival_ns)
        for runs in self.variants:
            timeline = (
                self.timelines[runs.variant.name] if self.timelines is not None and self.have == 0 else None
            )
            runs.run(self.have, requests, seed, self.warm_up, None if timeline else timeline)
            self._report(f"{runs.variant.name}, replication {self.have + 1}")
        self.have += 1

    def _reach(self, precision: Precision) -> str | None:
        """Add replications, and requests to each, until the figure asked for is known well enough."""
        fewest = max(FEWEST_REPLICATIONS, self.original.run.replications)
        most = max(MOST_REPLICATIONS, fewest)
        self.start(fewest)
        while True:
            variants = {
                runs.variant.name: measurement
                for runs, measurement in zip(self.variants, self.measurements(), strict=True)
            }
            widest = precision.widest(variants)
            is_known = math.isfinite(widest)
            needed = precision.replications(widest, self.have) if is_known else most + 1
            short = any(steady.too_short for steady in self.steadiness.values())
            waits = not is_known and precision.waits_for_samples(variants)
            factor = 2 if short or waits else -(-needed // most) if is_known else 1
            if factor > 1 and self.lengthen(factor):
                self.start(fewest)
            elif is_known and self.have < min(needed, most):
                self.replicate(min(needed, 2 * self.have, most))
            else:
                break
        if needed <= self.have:
            return None
        reached = f"± {widest:.2g}" if is_known else "no interval"
        what = f"the precision asked for, {precision.fraction:g} of {precision.metric}, is not reached"
        return f"{what}: {reached} at {self.have} replications of {self.requests:,} requests"

    def _report(self, label: str) -> None:
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, self.total, label)
