"""Small real scenarios, variants whose every price is known, and standard errors of what a run shows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.acceptance import AcceptanceModel, compile_acceptance
from simulator.costs.prices import Prices
from simulator.drivers.pipeline import Simulation, TimelineStage
from simulator.results.record import RunRecord
from simulator.results.warm_up import measured_requests
from simulator.runs.variant import CompiledVariant
from simulator.scenario import Scenario, scenario_from_data
from simulator.step.build import new_state
from simulator.step.settings import EngineSettings
from simulator.step.state import State
from simulator.traffic.workload import Requests, generate

BASE: dict[str, Any] = {
    "target": {"model": "llama-3.1-8b-instruct"},
    "hardware": {"gpu": "h100-sxm"},
    "engine": {"max_num_seqs": 64, "max_num_batched_tokens": 2048},
    "speculation": [
        {
            "name": "eagle3",
            "method": "eagle3",
            "draft": "eagle3-llama-3.1-8b",
            "draft_length": 3,
            "acceptance": {"model": "geometric", "alpha": 0.7},
        }
    ],
    "workload": {
        "arrivals": {"kind": "closed", "concurrency": 8},
        "requests": 40,
        "prompt_tokens": {"kind": "fixed", "tokens": 100},
        "output_tokens": {"kind": "fixed", "tokens": 100},
        "ends": "max_tokens",
    },
    "run": {"seed": 0},
}
"""Llama-3.1-8B on one H100 with an EAGLE-3 head; 8 clients."""

NO_FRONT_END = {"engine.host": {"request_latency_s": 0, "request_s": 0, "prompt_token_s": 0}}
"""Requests join the engine's queue as they arrive."""

BUSY: dict[str, Any] = {
    "workload.requests": 60,
    "workload.arrivals": {"kind": "poisson", "rate_per_s": 40.0},
    "workload.prompt_tokens": {"kind": "lognormal", "median": 200, "p95": 900},
    "workload.output_tokens": {"kind": "lognormal", "median": 40, "p95": 150},
    "workload.ends": "eos",
}
"""Changes to `BASE`: requests of all lengths that come at a rate."""


def small_scenario(changes: dict[str, Any] | None = None, base: dict[str, Any] | None = None) -> Scenario:
    """`BASE` (or another) with changes by dotted path, as `--set` takes them."""
    overrides = [f"{path}={json.dumps(value)}" for path, value in (changes or {}).items()]
    return scenario_from_data(deepcopy(base or BASE), overrides=overrides)


def plain_variant(scenario: Scenario) -> CompiledVariant:
    """Plain decoding."""
    return CompiledVariant.compile(scenario, None)


def drafting_variant(scenario: Scenario, index: int = 0) -> CompiledVariant:
    """A speculative variant of the scenario, the first by default."""
    return CompiledVariant.compile(scenario, scenario.speculation[index])


def traffic(scenario: Scenario, seed: int = 0) -> Requests:
    """The requests of a scenario under a seed."""
    return generate(scenario.workload, seed, scenario.base_dir)


def run(variant: CompiledVariant, seed: int = 0, **options: Any) -> RunRecord:
    """One run of a variant on its scenario's traffic."""
    return variant.run(traffic(variant.scenario, seed), seed, **options)


def watched(variant: CompiledVariant, seed: int = 0) -> tuple[RunRecord, list[TimelineStage]]:
    """One run under the pipeline, with the stages of all its steps."""
    stages: list[TimelineStage] = []
    return run(variant, seed, timeline=stages), stages


def without_host(settings: EngineSettings, **changes: Any) -> EngineSettings:
    """A synchronous engine whose host takes no time and whose CUDA graphs hold every step."""
    nothing = {field.name: 0 for field in fields(settings) if field.name in HOST}
    quiet = {"asynchronous": False, "emits_before_drafting": False, "graph_padding": False}
    return replace(settings, **{**nothing, **quiet, **changes})


HOST = frozenset(
    "host_step_ns host_per_sequence_ns draft_pass_ns draft_step_ns "
    "hidden_step_ns hidden_per_sequence_ns request_latency_ns request_ns prompt_token_ns".split()
)


def constant_steps(
    variant: CompiledVariant, target_ns: int, draft_pass_ns: int = 0, **settings: Any
) -> CompiledVariant:
    """The variant on an engine where every step takes one target pass and the passes of its drafter, each a
    constant, and nothing else."""
    prices = {name: np.zeros_like(table) for name, table in variant.prices._asdict().items()}
    prices["target_tokens"][1:] = target_ns
    prices["draft_tokens"][1:] = draft_pass_ns
    knots = {name: getattr(variant.prices, name) for name in ("query_knots", "batch_knots", "context_knots")}
    return with_prices(
        replace(variant, settings=without_host(variant.settings, **settings)), Prices(**{**prices, **knots})
    )


def with_prices(variant: CompiledVariant, prices: Prices) -> CompiledVariant:
    """The variant with other price tables."""
    return replace(variant, setup=replace(variant.setup, prices=prices))


def final_state(
    variant: CompiledVariant,
    requests: Requests,
    seed: int,
    acceptance: Sequence[AcceptanceModel | None] | None = None,
) -> State:
    """What the engine itself knows at the end of a run in the compiled loop."""
    drafts = [
        entry.drafts and variant.variant is not None for entry in variant.scenario.workload.traffic_classes
    ]
    models = variant.acceptance if acceptance is None else tuple(acceptance)
    tables = compile_acceptance(models, requests, seed, variant.settings.max_depth, True, drafts)
    measured = measured_requests(variant.scenario, len(requests.arrival_ns))
    state = new_state(variant.settings, variant.prices, tables, requests, seed, measured)
    Simulation([state]).run()
    return state


def array_fields(record: RunRecord) -> dict[str, Any]:
    """Everything a record holds but the name of the driver and why it ran."""
    names = (field.name for field in fields(record))
    return {name: getattr(record, name) for name in names if name not in ("driver", "driver_reason")}


def differences(first: RunRecord, other: RunRecord) -> list[str]:
    """Names of what differs between two records, compared with ==."""
    a, b = array_fields(first), array_fields(other)
    return [name for name, value in a.items() if not np.array_equal(value, b[name])]


class Measured(NamedTuple):
    """A figure of a run with its standard error."""

    value: float
    error: float

    def score(self, claimed: float) -> float:
        """How many standard errors a claim is off."""
        return abs(self.value - claimed) / self.error


def mean(samples: npt.ArrayLike) -> Measured:
    """Mean of independent samples."""
    values = np.asarray(samples, dtype=np.float64)
    return Measured(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))


def ratio(numerators: npt.ArrayLike, denominators: npt.ArrayLike) -> Measured:
    """Sum ÷ sum over independent requests, with the error of a ratio estimator (delta method)."""
    top, bottom = np.asarray(numerators, dtype=np.float64), np.asarray(denominators, dtype=np.float64)
    value = top.sum() / bottom.sum()
    residuals = top - value * bottom
    count = len(top)
    return Measured(float(value), float(np.sqrt((residuals**2).sum() * count / (count - 1)) / bottom.sum()))


def tokens_per_verify(record: RunRecord) -> Measured:
    """1 + accepted ÷ rounds with a draft, over all requests; acceptance is counted before any stop."""
    return ratio(record.accepted_tokens + record.draft_rounds, record.draft_rounds)


def fingerprint(changes: dict[str, Any], seed: int) -> str:
    """A hash of all that the drafting variant of a changed `BASE` leaves behind; other processes call
    it too.
    """
    record = run(drafting_variant(small_scenario(changes)), seed)
    digest = hashlib.sha256()
    for name, value in sorted(array_fields(record).items()):
        digest.update(name.encode())
        digest.update(value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode())
    return digest.hexdigest()
