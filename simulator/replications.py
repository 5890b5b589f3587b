"""The replications of a scenario: every arm on the same traffic and luck, measured as its runs end."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from simulator.arms import CompiledArm
from simulator.results.estimate import mean_estimate
from simulator.results.record import STATUS_REJECTED, RunRecord
from simulator.results.summary import STEP_BAND, ArmMeasurement, Measured, Traffic
from simulator.scenario import Scenario
from simulator.traffic.workload import Requests, generate

if TYPE_CHECKING:
    from simulator.pipeline import Stage
    from simulator.scenario.workload import Workload

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


def traffic_of(scenario: Scenario, replication: int) -> Requests:
    """`make_traffic`, remembered: for searches and studies that run the same requests many times."""
    seed = replication_seed(scenario.run.seed, replication)
    return _generated(scenario.workload, seed, scenario.base_dir)


@lru_cache(maxsize=8)
def _generated(workload: Workload, seed: int, base_dir: Path) -> Requests:
    return generate(workload, seed, base_dir)


class ArmRuns:
    """The runs of one arm, measured as they are made; what was run once is not run again, so that a plain
    arm can serve the comparisons of many scenarios that differ in their speculation only.
    """

    def __init__(self, arm: CompiledArm, traffic: Traffic, keep_requests: bool = False) -> None:
        self.arm, self.traffic, self.keep_requests = arm, traffic, keep_requests
        self.runs: list[Measured] = []
        self.ends: list[tuple[Measured, ...]] = []
        self.records: list[RunRecord] = []
        self.rejected = 0
        self.beyond_drafter: str | None = None
        self.driver: tuple[str, str | None] = ("", None)

    def run(self, requests: Requests, seed: int, timeline: list[Stage] | None = None) -> None:
        """Run the next replication."""
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

    def measurement(self, replications: int, bands: bool) -> ArmMeasurement:
        """What the first so many replications say, with the bands of the cost model or without."""
        return ArmMeasurement(self.traffic, tuple(self.runs[:replications]), *(self.ends if bands else ()))


class Replications:
    """All arms of a scenario, replication by replication, on common luck.

    `bands`: the ends of the cost model's band are run too; without, bands hold sampling only.
    `traffic` gives the requests of a replication.
    """

    def __init__(
        self,
        scenario: Scenario,
        arms: Sequence[ArmRuns],
        progress: Progress | None = None,
        *,
        bands: bool = True,
        traffic: Callable[[Scenario, int], Requests] = make_traffic,
        timelines: dict[str, list[Stage]] | None = None,
    ) -> None:
        self.scenario, self.arms, self.progress, self.timelines = scenario, arms, progress, timelines
        self.traffic = traffic
        intervals = scenario.run.replications > 1 or scenario.run.precision is not None
        self.bands = bands and intervals  # a band without an interval would claim to know more than it does
        self.have, self.done, self.total = 0, 0, len(arms) if self.bands else 0

    def run(self) -> str | None:
        """Run as many replications as the scenario asks for, or its precision needs.

        Returns what is missing where the replications end before the precision is met.
        """
        self._replicate(self.scenario.run.replications)
        precision = self.scenario.run.precision
        return None if precision is None else self._reach(precision)

    def measurements(self) -> list[ArmMeasurement]:
        """What the runs so far say, arm by arm."""
        return [one.measurement(self.have, self.bands) for one in self.arms]

    def _replicate(self, replications: int) -> None:
        """Run until every arm has so many replications."""
        self.total += (replications - self.have) * len(self.arms)
        while self.have < replications:
            self._replicate_once()

    def _replicate_once(self) -> None:
        requests = self.traffic(self.scenario, self.have)
        seed = replication_seed(self.scenario.run.seed, self.have)
        for one in self.arms:
            watched = self.timelines is not None and self.have == 0
            if len(one.runs) == self.have:
                one.run(requests, seed, self.timelines[one.arm.name] if watched and self.timelines else None)
            self._tell(f"{one.arm.name}, replication {self.have + 1}")
        if self.have == 0 and self.bands:
            for one in self.arms:
                if not one.ends:
                    one.run_ends(requests, seed)
                self._tell(f"{one.arm.name}, band of the cost model")
        self.have += 1

    def _reach(self, precision: float) -> str | None:
        """Add replications until the 95 % interval of every throughput is within ± `precision` of it."""
        while (widest := self._widest()) > precision and self.have < MOST_REPLICATIONS:
            self._replicate(self.have + 2)
        if widest <= precision:
            return None
        reached = f"± {widest:.2g}" if math.isfinite(widest) else "no interval"
        return (
            f"the precision asked for, {precision:g}, is not reached: {reached} at {self.have} replications"
        )

    def _widest(self) -> float:
        """The largest relative half-width of a throughput's interval; infinite where one has none."""
        throughputs = (mean_estimate(one.samples["throughput_tokens_per_s"]) for one in self.measurements())
        return max(math.inf if one is None else one.relative_half_width for one in throughputs)

    def _tell(self, what: str) -> None:
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, self.total, what)
