"""`advise(…)`: verdict, reason, causes, engine options and next steps from all that the user has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experiments.advice.runs import MeasuredRuns
from experiments.capacity.decision import DO_NOT, ENABLE, ENABLE_BELOW, MEASURE_FIRST
from simulator.results.verdict import LOSES, PAYS

if TYPE_CHECKING:
    from calibration.launch.launch import Artefact
    from experiments.check.lint import Diagnostic
    from experiments.compare.compare import RunComparison
    from simulator.results.result import Result
    from simulator.runs.replications import Progress
    from simulator.scenario import Scenario, Variant

SCHEMA = "decodesim/advise-1"
_REQUESTS = 1600
_MEASURED_CHANGE = 0.03
"""A measured speedup within this of 1 is neither a gain nor a loss."""
_TRADES = ("tpot_mean", "tpot_p99", "itl_p99", "ttft_p99", "e2e_mean")
"""Measured speedups that a verdict names when they are losses."""
_LOWER_LOADS = (1, 4, 16, 64)


@dataclass(frozen=True)
class Advice:
    """The answer. `scenario` and what follows from it are None without a launch line, scenario or flags."""

    runs: MeasuredRuns
    scenario: Scenario | None
    verdict: str
    reason: str
    diagnostics: tuple[Diagnostic, ...]
    comparison: RunComparison | None
    result: Result | None
    engine: Mapping[str, Artefact]
    own_engine: str | None
    next: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def causes(self) -> list[dict[str, Any]]:
        """Causes of a measured difference, the largest first, then findings of the configuration."""
        causes = [] if self.comparison is None else [cause.to_json() for cause in self.comparison.causes]
        findings = [diagnostic.to_json() for diagnostic in self.diagnostics]
        return causes + [
            {"code": finding["code"], "effect": None, "evidence": finding["text"], "fix": finding["fix"]}
            for finding in findings
            if finding["severity"] != "info"
        ]

    def to_json(self) -> dict[str, Any]:
        """The document of `decodesim advise`."""
        return {
            "schema": SCHEMA,
            "verdict": self.verdict,
            "reason": self.reason,
            "scenario": None if self.scenario is None else self.scenario.model_dump(mode="json"),
            "read": {"plain": self.runs.plain, "speculative": self.runs.speculative},
            "measured": None if self.comparison is None else self.comparison.pair.speedup(),
            "expected": None if self.result is None else self._expected(),
            "causes": self.causes,
            "engine": {name: artefact.text or None for name, artefact in self.engine.items()},
            "next": list(self.next),
            "notes": list(self.notes),
        }

    def _expected(self) -> dict[str, Any]:
        assert self.result is not None
        return {name: comparison.to_json() for name, comparison in self.result.comparison.items()}


def advise(
    runs: MeasuredRuns,
    scenario: Scenario | None,
    diagnostics: Sequence[Diagnostic] = (),
    notes: Sequence[str] = (),
    source: str = "scenario.yaml",
    first_steps: Sequence[str] = (),
    progress: Progress | None = None,
) -> Advice:
    """Put together what the runs measured and what the simulator expects of the scenario. Raises InputError.

    `diagnostics` are those of `check`. `source` is how next steps name the scenario, which
    `first_steps` make.
    """
    from calibration.launch.registry import artefacts, engine_key

    comparison = _measured(runs)
    if scenario is None:
        verdict, reason = _without_scenario(comparison)
        steps = ("decodesim advise FILE… --from-vllm 'vllm serve …'",)
        return Advice(runs, None, verdict, reason, (), comparison, None, {}, None, steps, tuple(notes))
    variant = scenario.speculation[0] if scenario.speculation else None
    if variant is not None and runs.speculative is not None:
        from experiments.measured_variant import with_measured

        scenario = with_measured(scenario, variant, runs.speculative)
        (variant,) = scenario.speculation
    result, verdict, reason = _expected(scenario, variant, progress)
    if comparison is not None:
        verdict, reason = _measured_verdict(comparison, verdict, reason)
    chosen = None if verdict == DO_NOT else variant
    return Advice(
        runs,
        scenario,
        verdict,
        reason,
        tuple(diagnostics),
        comparison,
        result,
        artefacts(scenario, chosen),
        engine_key(scenario),
        (*first_steps, *_next(verdict, variant, source)),
        tuple(notes),
    )


def _measured(runs: MeasuredRuns) -> RunComparison | None:
    from experiments.compare.compare import compare

    if runs.plain is None or runs.speculative is None:
        return None
    comparison = compare(runs.plain, runs.speculative)
    return comparison if comparison.pair.speedup() else None


def _expected(
    scenario: Scenario, variant: Variant | None, progress: Progress | None
) -> tuple[Result | None, str, str]:
    """The simulated result, the verdict on it, and its reason."""
    from simulator.scenario import acceptance_basis, with_workload
    from simulator.simulation import simulate

    if variant is None:
        return (
            None,
            MEASURE_FIRST,
            "the configuration does not speculate: add a method to learn whether it pays",
        )
    result = simulate(with_workload(scenario, requests=_REQUESTS), progress, keep_requests=False)
    judged = result.comparison[variant.name].verdict
    sentence = judged.sentence
    if judged.outcome == PAYS and acceptance_basis(scenario, variant.name) != "assumed":
        return result, ENABLE, sentence
    if judged.outcome == LOSES:
        below = _pays_below(scenario, variant, progress)
        verdict = DO_NOT if below is None else f"{ENABLE_BELOW} {below} clients"
        return result, verdict, sentence
    return result, MEASURE_FIRST, sentence


def _pays_below(scenario: Scenario, variant: Variant, progress: Progress | None) -> int | None:
    """The largest smaller load of `_LOWER_LOADS` at which the variant pays."""
    from simulator.breakeven.breakeven import breakeven
    from simulator.scenario import with_workload

    own = getattr(scenario.workload.arrivals, "concurrency", None)
    loads = [load for load in _LOWER_LOADS if own is not None and load < own]
    if not loads:
        return None
    rows = breakeven(
        with_workload(scenario, requests=_REQUESTS),
        [{"concurrency": load} for load in loads],
        metrics=("throughput",),
        progress=progress,
        variant=variant.name,
    ).rows
    paying = [load for load, row in zip(loads, rows, strict=True) if row.verdict == PAYS]
    return max(paying, default=None)


def _without_scenario(comparison: RunComparison | None) -> tuple[str, str]:
    if comparison is None:
        return (
            MEASURE_FIRST,
            "one run alone does not tell what speculation gains: give the launch line as well",
        )
    return _measured_verdict(comparison, MEASURE_FIRST, "the configuration is not known")


def _measured_verdict(comparison: RunComparison, expected: str, reason: str) -> tuple[str, str]:
    """What was measured decides; what was expected says whether another load would do."""
    speedups = comparison.pair.speedup()
    name = next(key for key in ("throughput", "tpot_mean", "itl_token_mean", *speedups) if key in speedups)
    speedup = speedups[name]["value"]
    measured = f"measured: {name.replace('_', ' ')} × {speedup:.2f} with speculation"
    trades = [
        f"{metric.replace('_', ' ')} × {speedups[metric]['value']:.2f}"
        for metric in _TRADES
        if metric in speedups and metric != name and speedups[metric]["value"] < 1 - _MEASURED_CHANGE
    ]
    if trades:
        measured += f", but worse: {', '.join(trades)}"
    measured += f"; simulated: {reason}"
    if speedup > 1 + _MEASURED_CHANGE:
        return ENABLE, measured
    if speedup < 1 - _MEASURED_CHANGE:
        return (expected if expected.startswith(ENABLE_BELOW) else DO_NOT), measured
    return MEASURE_FIRST, f"{measured}; the measured difference is too small to decide"


def _next(verdict: str, variant: Variant | None, source: str) -> tuple[str, ...]:
    """Commands that follow, most useful first."""
    if variant is None:
        return ("decodesim methods", f"decodesim simulate {source} --method ngram --alpha 0.5")
    if verdict == MEASURE_FIRST:
        return (
            "decodesim read before.metrics.txt after.metrics.txt -o acceptance.json",
            f"decodesim breakeven {source}",
        )
    if verdict == DO_NOT:
        return (f"decodesim tune {source}", f"decodesim breakeven {source} --concurrency 1,8,32,128")
    return (f"decodesim tune {source}", f"decodesim rollout {source} --slo ttft_p99=1s,tpot_p99=50ms")
