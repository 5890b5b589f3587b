"""The answer at other values of the uncertain inputs, from short runs on common random numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from experiments.alternatives import scenario_with
from experiments.maps.speedup import requests_for_ratio
from experiments.sensitivity.inputs import ALPHA, STEP, UncertainInput
from experiments.sensitivity.parameters import AdjustableVariant, with_lengths
from simulator.breakeven.simulated_evaluator import acceptance_at
from simulator.errors import InputError, unknown_name
from simulator.numerics.roots import bracketed_root
from simulator.results.catalogue import COMPARED
from simulator.results.measure import measure
from simulator.results.steady import above_capacity
from simulator.runs.replications import replication_seed, traffic_of
from simulator.scenario import PLAIN, Scenario, with_workload

if TYPE_CHECKING:
    from simulator.results.record import RunRecord

BREAK_EVEN = "break_even_alpha"
SPEEDUP = "speedup"
REPLICATIONS = 3
_TOLERANCE = 1e-3

OutcomeFigures = Mapping[str, float]
"""Path of `measure.py` → figure of one run."""


class SensitivityRuns:
    """One variant of a scenario against plain decoding, at any values of the uncertain inputs.

    `of`: a ratio of the comparison, `speedup` (throughput; mean TPOT where requests come at a rate), or
    `break_even_alpha`: the acceptance at which that speedup is 1. Raises InputError for anything else.
    """

    def __init__(self, scenario: Scenario, variant: str, of: str = SPEEDUP) -> None:
        from simulator.runs.variant import CompiledVariant

        self.scope = CompiledVariant.compile(scenario, None).measurement_scope
        default_ratio = "tpot_mean_speedup" if self.scope.open_loop else "throughput_speedup"
        if of not in (SPEEDUP, BREAK_EVEN, *COMPARED):
            raise InputError(unknown_name("answer", of, [SPEEDUP, BREAK_EVEN, *COMPARED], field="--of"))
        self.of, self.variant = of, variant
        compared = COMPARED[of if of in COMPARED else default_ratio]
        self.path, self.sign = compared.path, -1 if compared.inverted else 1
        self.scenario = scenario if "p99" in self.path else with_few_requests(scenario)
        self._variants: dict[tuple[str, ...], tuple[AdjustableVariant, AdjustableVariant]] = {}
        self._plain_runs: dict[tuple[object, ...], OutcomeFigures] = {}

    def variants(self, settings: tuple[str, ...] = ()) -> tuple[AdjustableVariant, AdjustableVariant]:
        """Plain decoding and the variant, with fields of the scenario set.

        Raises InputError where the memory does not hold them.
        """
        if settings not in self._variants:
            self._variants[settings] = self._compiled(settings)
        return self._variants[settings]

    def _compiled(self, settings: tuple[str, ...]) -> tuple[AdjustableVariant, AdjustableVariant]:
        from simulator.runs.fit import fitting_variants

        scenario = scenario_with(self.scenario, settings) if settings else self.scenario
        variants = {variant.name: variant for variant in fitting_variants(scenario)}
        return AdjustableVariant(variants[PLAIN]), AdjustableVariant(variants[self.variant])

    def outcome(
        self, values: Mapping[UncertainInput, float], replications: int = REPLICATIONS
    ) -> tuple[float, ...]:
        """The answer in every replication; NaN where a variant cannot serve the rate."""
        return tuple(self._outcome(values, replication) for replication in range(replications))

    def _outcome(self, values: Mapping[UncertainInput, float], replication: int) -> float:
        if self.of != BREAK_EVEN:
            return math.exp(self._log_ratio(values, replication, None))
        score = {alpha: self._log_ratio(values, replication, alpha) for alpha in (0.0, 1.0)}
        if math.isnan(score[0.0]) or math.isnan(score[1.0]):
            return math.nan
        if score[0.0] >= 0 or score[1.0] <= 0:
            return 0.0 if score[0.0] >= 0 else 1.0

        def log_ratio_at(alpha: float) -> float:
            return score.get(alpha) or self._log_ratio(values, replication, alpha)

        return bracketed_root(log_ratio_at, 0.0, 1.0, tolerance=_TOLERANCE)

    def _log_ratio(
        self, values: Mapping[UncertainInput, float], replication: int, alpha: float | None
    ) -> float:
        """ln of the ratio, > 0 where speculation is better, at an acceptance of its own or the inputs'."""
        plain = self._plain(values, replication)[self.path]
        speculative = self._run(values, replication, 1, alpha)[self.path]
        if not (plain > 0 and speculative > 0):
            return math.nan
        return self.sign * math.log(speculative / plain)

    def _plain(self, values: Mapping[UncertainInput, float], replication: int) -> OutcomeFigures:
        plain_values = {
            uncertain_input: value for uncertain_input, value in values.items() if uncertain_input.of_plain
        }
        key = (
            replication,
            *sorted((uncertain_input.name, value) for uncertain_input, value in plain_values.items()),
        )
        if key not in self._plain_runs:
            self._plain_runs[key] = self._run(plain_values, replication, 0, None)
        return self._plain_runs[key]

    def _run(
        self, values: Mapping[UncertainInput, float], replication: int, side: int, alpha: float | None
    ) -> OutcomeFigures:
        parameters = {uncertain_input.parameter: value for uncertain_input, value in values.items()}
        settings = tuple(
            f"{uncertain_input.parameter}={_override_text(uncertain_input, value)}"
            for uncertain_input, value in values.items()
            if "." in uncertain_input.parameter
        )
        variant = self.variants(settings)[side].adjusted(parameters)
        requests = with_lengths(traffic_of(variant.scenario, replication), parameters)
        seed = replication_seed(variant.scenario.run.seed, replication)
        if side == 0:
            return self._figures(variant.run(requests, seed))
        if alpha is None:
            alpha = parameters.get(ALPHA)
        acceptance = None if alpha is None else acceptance_at(variant, alpha)
        record = variant.run(
            requests,
            seed,
            acceptance=acceptance,
            step_scale=parameters.get(STEP, 1.0),
            scales_decodes_only=True,
        )
        return self._figures(record)

    def _figures(self, record: RunRecord) -> OutcomeFigures:
        is_saturated = above_capacity([record], self.scope)
        figures = measure(record, (), dict(self.scope.limits), self.scope.replicas, is_saturated)
        is_throughput = self.path == "throughput_tokens_per_s"
        return {self.path: figures[self.path] if is_throughput or not is_saturated else math.nan}


def with_few_requests(scenario: Scenario) -> Scenario:
    """The scenario with no more requests than a ratio on common random numbers needs."""
    workload = scenario.workload
    clients = workload.arrivals.concurrency if workload.arrivals.kind == "closed" else 0
    return with_workload(scenario, requests=min(workload.requests, requests_for_ratio(clients)))


def _override_text(uncertain_input: UncertainInput, value: float) -> str:
    """A number as `--set` takes it."""
    return str(round(value)) if uncertain_input.integer else repr(float(value))
