"""Predicts the figures of two scenarios from the simulation alone.

A `PredictionInput` holds no published figure, so a prediction cannot depend on one. `Prediction` holds the
figures of both variants by path, the stages of a uniform step, and the closed form on the same prices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from calibration.validation.client import client_figures
from simulator.acceptance import AcceptanceModel
from simulator.breakeven.theory import harmonic_mean, speedup
from simulator.errors import InputError
from simulator.results.measure import measure
from simulator.results.steady import steady_figures
from simulator.runs.replications import make_traffic, replication_seed
from simulator.runs.variant import CompiledVariant
from simulator.scenario import Scenario, with_workload
from simulator.traffic.workload import Requests

PLAIN, SPEC = "plain", "spec"

RunFigures = Mapping[str, float]

Alteration = Callable[[CompiledVariant], CompiledVariant]
"""Changes a compiled variant before it runs, such as its cost model, to test what the comparison notices."""

DOES_NOT_FIT = "does not fit the memory of the GPUs"
FAILED = "failed"

_MIN_REQUESTS = 200
_MIN_REQUESTS_FOR_P99 = 1300
_MIN_REQUESTS_OPEN = 2000
_REQUESTS_PER_CLIENT = 8
_MIN_REQUESTS_PER_CLIENT = 4
_SAMPLE_REQUESTS = 500
_OF_ALL_REPLICAS = "throughput_tokens_per_s"
_MAX_TOKENS = 1_500_000
"""A run is cut to about this many output tokens. Both variants serve the same requests with common random
numbers, so their ratio is known to a fraction of a per cent long before that.
"""


@dataclass(frozen=True)
class PredictionInput:
    """What is simulated. `spec` has exactly one speculative variant.

    `sent`: number of requests that the client sent, where published; the run then covers these requests, from
    the first to the last. `mean_tokens`: workload field → published mean of its lengths, to which a run's
    drawn lengths are scaled. `p99`: percentiles are compared, so the run must be long. `runs` False: only
    step times are needed.
    """

    plain: Scenario | None
    spec: Scenario | None
    sent: int | None = None
    mean_tokens: Mapping[str, float] = field(default_factory=dict)
    p99: bool = False
    runs: bool = True


@dataclass(frozen=True)
class Prediction:
    """Predicted figures. `missing`: variant → why it has no figures. `closed_form`: the speedup E / (1 + o)
    from two uniform steps.
    """

    figures: Mapping[str, RunFigures] = field(default_factory=dict)
    """Variant → figures by path, as in `results/measure.py`."""
    steps: Mapping[str, RunFigures] = field(default_factory=dict)
    """Variant → stages of a uniform step at the mean batch and context, in seconds: host, verify, accept,
    draft, total.
    """
    closed_form: float | None = None
    missing: Mapping[str, str] = field(default_factory=dict)


def predict(task: PredictionInput, alter: Alteration | None = None) -> Prediction:
    """Simulate both variants. A variant that cannot be simulated has its reason in `missing`; nothing is
    raised.
    """
    variants: dict[str, CompiledVariant] = {}
    missing: dict[str, str] = {}
    for name, scenario in ((PLAIN, task.plain), (SPEC, task.spec)):
        if scenario is None:
            continue
        try:
            variants[name] = compiled_variant(scenario, name == SPEC, alter)
        except InputError as error:
            missing[name] = str(error.problems[0].message)
    figures: dict[str, RunFigures] = {}
    for name, variant in variants.items() if task.runs else ():
        try:
            variant_figures = run_figures(variant, task)
        except InputError as error:  # not one request can be served
            missing[name] = str(error.problems[0].message)
            continue
        if variant_figures:
            figures[name] = variant_figures
        else:
            missing[name] = DOES_NOT_FIT
    steps = {
        name: uniform_step(variant, figures.get(PLAIN, figures.get(name)))
        for name, variant in variants.items()
    }
    return Prediction(figures, steps, _closed_form(variants, steps, figures.get(PLAIN)), missing)


def compiled_variant(
    scenario: Scenario, speculative: bool, alter: Alteration | None = None
) -> CompiledVariant:
    """The plain variant of a scenario, or its one speculative variant. Raises InputError."""
    variant = CompiledVariant.compile(scenario, scenario.speculation[0] if speculative else None)
    return variant if alter is None else alter(variant)


def run_figures(
    variant: CompiledVariant,
    task: PredictionInput,
    acceptance: AcceptanceModel | None = None,
    step_scale: float = 1.0,
) -> RunFigures | None:
    """Figures of a run, averaged over replications; None where the variant does not fit the memory.

    `acceptance` replaces the scenario's acceptance. `step_scale` multiplies the GPU time of decode steps.
    """
    if variant.scenario.run.mechanisms.kv_limit and variant.memory.shortage:
        return None
    variant, load_shares = one_replica(variant)
    sent = None if task.sent is None else max(1, round(task.sent / load_shares))
    requests, replications, all_requests_count = _extent(variant.scenario, replace(task, sent=sent))
    variant = replace(variant, scenario=with_requests(variant.scenario, requests))
    if acceptance is not None:
        variant = replace(variant, acceptance=tuple(model and acceptance for model in variant.acceptance))
    by_replication = [
        _figures_of(variant, task.mean_tokens, replication, all_requests_count, step_scale)
        for replication in range(replications)
    ]
    means = {
        path: _mean([figures[path] for figures in by_replication if path in figures])
        for path in by_replication[0]
    }
    return means | {_OF_ALL_REPLICAS: load_shares * means[_OF_ALL_REPLICAS]}


def one_replica(variant: CompiledVariant) -> tuple[CompiledVariant, float]:
    """The variant on one replica with that replica's share of the load, and the number of such shares.

    The router is assumed to share the load evenly, so that all replicas behave alike.
    """
    scenario = variant.scenario
    arrivals, replicas = scenario.workload.arrivals, scenario.hardware.replicas
    load_shares = float(replicas)
    if arrivals.kind == "closed":
        clients = max(1, round(arrivals.concurrency / replicas))
        load_shares = arrivals.concurrency / clients
        arrivals = arrivals.model_copy(update={"concurrency": clients})
    elif arrivals.kind == "poisson":
        arrivals = arrivals.model_copy(update={"rate_per_s": arrivals.rate_per_s / replicas})
    workload = scenario.workload.model_copy(
        update={"arrivals": arrivals, "requests": max(1, round(scenario.workload.requests / replicas))}
    )
    hardware = scenario.hardware.model_copy(update={"replicas": 1})
    return replace(
        variant, scenario=scenario.model_copy(update={"workload": workload, "hardware": hardware})
    ), load_shares


def with_requests(scenario: Scenario, requests: int) -> Scenario:
    """The scenario with this number of requests."""
    return with_workload(scenario, requests=requests)


def with_means(requests: Requests, mean_tokens: Mapping[str, float]) -> Requests:
    """The requests with their lengths scaled to these means; no length exceeds the longest drawn.

    The mean of drawn lengths that vary as in chat is off by 3 % even over a thousand requests.
    """
    scaled_lengths = {}
    for name, mean in mean_tokens.items():
        tokens: NDArray[np.int64] = getattr(requests, name)
        factor = mean / float(tokens.mean())
        scaled_lengths[name] = np.clip(np.rint(tokens * factor), 1, tokens.max()).astype(np.int64)
    return requests._replace(**scaled_lengths)


def _figures_of(
    variant: CompiledVariant,
    mean_tokens: Mapping[str, float],
    replication: int,
    all_requests_count: bool,
    step_scale: float,
) -> dict[str, float]:
    seed = replication_seed(variant.scenario.run.seed, replication)
    requests = with_means(make_traffic(variant.scenario, replication), mean_tokens)
    record = variant.run(requests, seed, step_scale=step_scale, scales_decodes_only=True)
    if all_requests_count:
        return measure(record) | client_figures(record)
    return steady_figures(record, variant.measurement_scope)


def _extent(scenario: Scenario, task: PredictionInput) -> tuple[int, int, bool]:
    """Requests of a run, number of runs, and whether figures cover all requests, as a client's do."""
    arrivals = scenario.workload.arrivals
    clients = arrivals.concurrency if arrivals.kind == "closed" else 1
    tokens = float(_sample(scenario).output_tokens.mean())
    max_requests = max(int(_MAX_TOKENS / tokens), _MIN_REQUESTS_PER_CLIENT * clients)
    if arrivals.kind == "burst":
        sent = task.sent or scenario.workload.requests
        return min(sent, max(max_requests, 1)), _repeats(sent), True
    if task.sent is not None and task.sent <= max_requests:
        return task.sent, _repeats(task.sent), True
    min_requests = max(_MIN_REQUESTS, _REQUESTS_PER_CLIENT * clients)
    if arrivals.kind != "closed":
        min_requests = _MIN_REQUESTS_OPEN
    elif task.p99:
        min_requests = max(min_requests, _MIN_REQUESTS_FOR_P99 + 3 * clients)
    return min(min_requests, max_requests), 1, False


def _repeats(sent: int) -> int:
    """Number of runs: few requests are repeated with other random numbers, so that the mean is known."""
    return max(1, min(4, _MIN_REQUESTS // sent))


def _sample(scenario: Scenario) -> Requests:
    """A sample of the workload's requests, for the means of their lengths."""
    return make_traffic(with_requests(scenario, _SAMPLE_REQUESTS), 0)


def _mean(values: list[float]) -> float:
    """The mean over the runs that have the figure; NaN where none has."""
    finite_values = [value for value in values if math.isfinite(value)]
    return math.fsum(finite_values) / len(finite_values) if finite_values else math.nan


def uniform_step(variant: CompiledVariant, figures: RunFigures | None) -> RunFigures:
    """The stages of a step (s) at the plain variant's mean batch, or at the clients' where no run has
    figures.
    """
    return variant.step_times(
        running_requests(variant, figures), _sample(variant.scenario).mean_context_tokens
    )


def running_requests(variant: CompiledVariant, figures: RunFigures | None) -> int:
    """Requests of that step, at most the variant's running-request limit."""
    arrivals = variant.scenario.workload.arrivals
    batch = (figures or {}).get("mean_batch", math.nan)
    if not math.isfinite(batch):
        clients = arrivals.concurrency if arrivals.kind == "closed" else 1
        batch = clients / variant.scenario.hardware.replicas
    return int(np.clip(round(batch), 1, variant.settings.max_num_seqs))


def _closed_form(
    variants: Mapping[str, CompiledVariant], steps: Mapping[str, RunFigures], plain: RunFigures | None
) -> float | None:
    """E / (1 + o): tokens per verify from the acceptance alone, over the ratio of two uniform steps, each
    divided by its running requests.
    """
    if PLAIN not in variants or SPEC not in variants:
        return None
    model = next((model for model in variants[SPEC].acceptance if model is not None), None)
    if model is None:
        return None
    tokens = harmonic_mean(*model.mean_acceptance_lengths_by_request(variants[SPEC].settings.max_depth))
    per_request = {
        name: steps[name]["total"] / running_requests(variants[name], plain) for name in (PLAIN, SPEC)
    }
    return speedup(tokens, per_request[SPEC] / per_request[PLAIN] - 1)
