"""A question about two scenarios, simulated: what the comparison needs, and nothing that was measured.

A `Question` holds no published figure, so whoever answers it cannot have seen one. `Prediction` holds the
figures of both variants by path, the stages of a uniform step, and the closed form of the same prices.
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

Figures = Mapping[str, float]

Alteration = Callable[[CompiledVariant], CompiledVariant]
"""Changes a compiled variant before it runs: another cost model, to see what the comparison says of it."""

DOES_NOT_FIT = "does not fit the memory of the GPUs"
FAILED = "failed"

_FEWEST_REQUESTS = 200
_FEWEST_FOR_P99 = 1300
_FEWEST_OPEN = 2000
_ROUNDS_OF_CLIENTS = 8
_FEWEST_ROUNDS = 4
_SAMPLE = 500
_OF_ALL_REPLICAS = "throughput_tokens_per_s"
_MOST_TOKENS = 1_500_000
"""A run is cut to about so many output tokens: both variants meet the same requests and luck, so that
their ratio
is known to a fraction of a per cent long before that.
"""


@dataclass(frozen=True)
class Question:
    """What is simulated. `spec` holds one speculative variant.

    `sent`: requests that the client sent, when published: then the run is theirs, from the first to the last.
    `mean_tokens`: field of the workload → mean of its lengths, where published: a run of few requests draws
    lengths that have it.
    `p99`: percentiles are wanted, so that runs must be long. `runs` False: only steps are asked for.
    """

    plain: Scenario | None
    spec: Scenario | None
    sent: int | None = None
    mean_tokens: Mapping[str, float] = field(default_factory=dict)
    p99: bool = False
    runs: bool = True


@dataclass(frozen=True)
class Prediction:
    """The answer. `missing`: variant → why it has no figures. `closed_form`: E / (1 + o), the speedup of two
    uniform steps.
    """

    figures: Mapping[str, Figures] = field(default_factory=dict)
    """Arm → figures by path, as in `results/measure.py`."""
    steps: Mapping[str, Figures] = field(default_factory=dict)
    """Arm → stages of a uniform step at the mean batch and context, s: host, verify, accept, draft, total."""
    closed_form: float | None = None
    missing: Mapping[str, str] = field(default_factory=dict)


def predict(question: Question, alter: Alteration | None = None) -> Prediction:
    """Simulate both variants. What cannot be simulated is said in `missing`, never raised."""
    variants: dict[str, CompiledVariant] = {}
    missing: dict[str, str] = {}
    for name, scenario in ((PLAIN, question.plain), (SPEC, question.spec)):
        if scenario is None:
            continue
        try:
            variants[name] = compiled_variant(scenario, name == SPEC, alter)
        except InputError as error:
            missing[name] = str(error.problems[0].message)
    figures: dict[str, Figures] = {}
    for name, variant in variants.items() if question.runs else ():
        found = run_figures(variant, question)
        if found:
            figures[name] = found
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
    """The plain or the only speculative variant of a scenario. Raises InputError."""
    variant = CompiledVariant.compile(scenario, scenario.speculation[0] if speculative else None)
    return variant if alter is None else alter(variant)


def run_figures(
    variant: CompiledVariant,
    question: Question,
    acceptance: AcceptanceModel | None = None,
    step_scale: float = 1.0,
) -> Figures | None:
    """Figures of a run, the mean over replications; None where the variant does not fit the memory.

    `acceptance` takes the place of the scenario's own; `step_scale` multiplies the GPU time of decodes.
    """
    if variant.scenario.run.mechanisms.kv_limit and variant.memory.shortage:
        return None
    variant, at_work = one_replica(variant)
    sent = None if question.sent is None else max(1, round(question.sent / at_work))
    requests, replications, whole = _extent(variant.scenario, replace(question, sent=sent))
    variant = replace(variant, scenario=with_requests(variant.scenario, requests))
    if acceptance is not None:
        variant = replace(variant, acceptance=tuple(model and acceptance for model in variant.acceptance))
    found = [
        _figures_of(variant, question.mean_tokens, replication, whole, step_scale)
        for replication in range(replications)
    ]
    figures = {path: _mean([one[path] for one in found if path in one]) for path in found[0]}
    return figures | {_OF_ALL_REPLICAS: at_work * figures[_OF_ALL_REPLICAS]}


def one_replica(variant: CompiledVariant) -> tuple[CompiledVariant, float]:
    """The variant on one of its replicas with that one's share of the load, and how many such shares
    there are.

    A router that shares evenly makes all alike; several at once would need the slow driver.
    """
    scenario = variant.scenario
    arrivals, replicas = scenario.workload.arrivals, scenario.hardware.replicas
    at_work = float(replicas)
    if arrivals.kind == "closed":
        clients = max(1, round(arrivals.concurrency / replicas))
        at_work = arrivals.concurrency / clients
        arrivals = arrivals.model_copy(update={"concurrency": clients})
    elif arrivals.kind == "poisson":
        arrivals = arrivals.model_copy(update={"rate_per_s": arrivals.rate_per_s / replicas})
    workload = scenario.workload.model_copy(
        update={"arrivals": arrivals, "requests": max(1, round(scenario.workload.requests / replicas))}
    )
    hardware = scenario.hardware.model_copy(update={"replicas": 1})
    return replace(
        variant, scenario=scenario.model_copy(update={"workload": workload, "hardware": hardware})
    ), at_work


def with_requests(scenario: Scenario, requests: int) -> Scenario:
    """The scenario with so many requests."""
    return with_workload(scenario, requests=requests)


def with_means(requests: Requests, mean_tokens: Mapping[str, float]) -> Requests:
    """The requests with their lengths stretched to these means, none beyond the longest of them.

    Lengths that spread as in chat are 3 % off their mean even over a thousand requests.
    """
    stretched = {}
    for name, mean in mean_tokens.items():
        tokens: NDArray[np.int64] = getattr(requests, name)
        factor = mean / float(tokens.mean())
        stretched[name] = np.clip(np.rint(tokens * factor), 1, tokens.max()).astype(np.int64)
    return requests._replace(**stretched)


def _figures_of(
    variant: CompiledVariant,
    mean_tokens: Mapping[str, float],
    replication: int,
    whole: bool,
    step_scale: float,
) -> dict[str, float]:
    seed = replication_seed(variant.scenario.run.seed, replication)
    requests = with_means(make_traffic(variant.scenario, replication), mean_tokens)
    record = variant.run(requests, seed, step_scale=step_scale, scales_decodes_only=True)
    if whole:
        return measure(record) | client_figures(record)
    return steady_figures(record, variant.measurement_scope)


def _extent(scenario: Scenario, question: Question) -> tuple[int, int, bool]:
    """Requests of a run, how many runs, and whether all of it counts, as a client does that sent so many."""
    arrivals = scenario.workload.arrivals
    clients = arrivals.concurrency if arrivals.kind == "closed" else 1
    tokens = float(_sample(scenario).output_tokens.mean())
    most = max(int(_MOST_TOKENS / tokens), _FEWEST_ROUNDS * clients)
    if arrivals.kind == "burst":
        sent = question.sent or scenario.workload.requests
        return min(sent, max(most, 1)), _repeats(sent), True
    if question.sent is not None and question.sent <= most:
        return question.sent, _repeats(question.sent), True
    wanted = max(_FEWEST_REQUESTS, _ROUNDS_OF_CLIENTS * clients)
    if arrivals.kind != "closed":
        wanted = _FEWEST_OPEN
    elif question.p99:
        wanted = max(wanted, _FEWEST_FOR_P99 + 3 * clients)
    return min(wanted, most), 1, False


def _repeats(sent: int) -> int:
    """Few requests are sent again with other luck, so that the mean is known."""
    return max(1, min(4, _FEWEST_REQUESTS // sent))


def _sample(scenario: Scenario) -> Requests:
    """Some requests of the workload, for the means of their lengths."""
    return make_traffic(with_requests(scenario, _SAMPLE), 0)


def _mean(values: list[float]) -> float:
    """The mean of the runs that have the figure; NaN where none has."""
    known = [value for value in values if math.isfinite(value)]
    return math.fsum(known) / len(known) if known else math.nan


def uniform_step(variant: CompiledVariant, figures: Figures | None) -> Figures:
    """The stages of a step at the plain variant's mean batch where a run tells it, else at the clients'."""
    return variant.step_times(seated(variant, figures), _sample(variant.scenario).mean_context_tokens)


def seated(variant: CompiledVariant, figures: Figures | None) -> int:
    """Requests of that step, as far as the variant has seats."""
    arrivals = variant.scenario.workload.arrivals
    batch = (figures or {}).get("mean_batch", math.nan)
    if not math.isfinite(batch):
        clients = arrivals.concurrency if arrivals.kind == "closed" else 1
        batch = clients / variant.scenario.hardware.replicas
    return int(np.clip(round(batch), 1, variant.settings.max_num_seqs))


def _closed_form(
    variants: Mapping[str, CompiledVariant], steps: Mapping[str, Figures], plain: Figures | None
) -> float | None:
    """E / (1 + o): tokens per verify of the acceptance alone, and the ratio of two uniform steps, each for
    the requests that have a seat in it.
    """
    if PLAIN not in variants or SPEC not in variants:
        return None
    model = next((model for model in variants[SPEC].acceptance if model is not None), None)
    if model is None:
        return None
    tokens = harmonic_mean(*model.mean_acceptance_lengths_by_request(variants[SPEC].settings.max_depth))
    per_request = {name: steps[name]["total"] / seated(variants[name], plain) for name in (PLAIN, SPEC)}
    return speedup(tokens, per_request[SPEC] / per_request[PLAIN] - 1)
