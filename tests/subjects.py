"""What pages are made of in tests: one small simulated subject, and subjects written by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from dashboards.subject import ReportedResult, reported_result
from experiments.maps.speedup import SpeedupMap
from simulator.results.comparison import Comparison
from simulator.results.estimate import Estimate
from simulator.results.result import Provenance, Result
from simulator.results.summary import VariantSummary
from simulator.results.verdict import Verdict
from simulator.scenario import load_scenario
from simulator.simulation import simulate
from tests.shared_data import ROOT

EXAMPLE = ROOT / "examples" / "llama-3.3-70b-eagle3-h100.yaml"
SMALL = (
    "workload.requests=300",
    "workload.arrivals.concurrency=8",
    "engine.max_num_seqs=16",
    "run.replications=2",
)
"""Changes that make the example quick, its study of the load included."""

VARIANT = "eagle3-k3"


@cache
def small_result() -> Result:
    """The example, simulated small."""
    return simulate(load_scenario(EXAMPLE, SMALL))


@cache
def small_subject() -> ReportedResult:
    """The small example with its study over the load."""
    return reported_result(small_result())


def estimate(value: float, share: float = 0.1) -> Estimate:
    """A value with a sampling interval of ±1 % and a band of ± `share`."""
    around = (value * 0.99, value * 1.01), (value * (1 - share), value * (1 + share))
    return Estimate(value, *around)


def by_hand(
    plain: Mapping[str, float],
    speculative: Mapping[str, float],
    ratios: Mapping[str, Estimate] | None = None,
    verdict: Verdict | None = None,
    **scenario: Any,
) -> ReportedResult:
    """A subject whose every figure is given; `scenario` replaces sections of a minimal one."""
    document: dict[str, Any] = {
        "name": "by hand",
        "speculation": [{"name": VARIANT, "draft_length": 3}],
        "workload": {"arrivals": {"kind": "closed", "concurrency": 64}},
        **scenario,
    }
    provenance = Provenance("0.1.0", 0, "ab" * 32, "h100-sxm", "cd" * 32, "vllm-0.33", "fast_forward")
    variants = {
        name: VariantSummary({path: estimate(value) for path, value in figures.items()}, saturated=False)
        for name, figures in (("plain", plain), (VARIANT, speculative))
    }
    verdict = verdict or Verdict("pays", f"{VARIANT}: pays: throughput × 1.50 (1.35 to 1.65): so it is")
    return ReportedResult(
        Result(document, provenance, variants, {VARIANT: Comparison(dict(ratios or {}), verdict)})
    )


def with_variants_saturated(subject: ReportedResult, *names: str) -> ReportedResult:
    """The subject with some variants above their capacity."""
    variants = {
        name: VariantSummary(variant.estimates, saturated=name in names)
        for name, variant in subject.result.variants.items()
    }
    return replace(subject, result=replace(subject.result, variants=variants))


def break_even_row(
    concurrency: int, needed: float | None, verdict: str, alpha: float | None = 0.7
) -> dict[str, Any]:
    """One row of the document of `decodesim breakeven`."""
    simulated = None if needed is None else estimate(needed).to_json()
    return {
        "load": {"concurrency": concurrency},
        "concurrency": concurrency,
        "draft_length": 3,
        "simulated_alpha": simulated,
        "geometric_alpha": needed,
        "linear_acceptance_rate": 0.1,
        "scenario_alpha": alpha,
        "verdict": verdict,
    }


def with_break_even(subject: ReportedResult, rows: Sequence[Mapping[str, Any]]) -> ReportedResult:
    """The subject with these rows as the break-even of its variant."""
    document = {"rows": rows, "best_draft_length": {}, "cost_ratio": {}}
    return replace(subject, study=replace(subject.study, break_even={VARIANT: document}))


def with_map(subject: ReportedResult, result: SpeedupMap) -> ReportedResult:
    """The subject with this speedup map of its variant."""
    return replace(subject, study=replace(subject.study, speedup={VARIANT: result}))


def without_scripts(page: str) -> str:
    return re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)
