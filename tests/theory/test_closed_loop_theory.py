"""Requests that differ, in a closed loop: the harmonic mean, and the laws that tie clients to rates."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.acceptance import Geometric, Hierarchical
from simulator.acceptance.tables import request_normals
from simulator.breakeven import theory
from simulator.results.measure import measure, window_of
from simulator.results.record import RunRecord
from simulator.runs.variant import CompiledVariant
from simulator.scenario import Scenario
from tests.runs import Measured, constant_steps, drafting_variant, mean, run, small_scenario

SIGMAS = 3.0
STEP_NS = 1_000_000
SD, DRAFT_LENGTH, REQUESTS = 1.2, 4, 400
MODEL = Hierarchical.from_alpha(0.65, 0.1, request_sd=SD)
SEED = 3


def closed_loop(**changes: object) -> Scenario:
    return small_scenario(
        {
            "speculation.eagle3.draft_length": DRAFT_LENGTH,
            "workload.arrivals.concurrency": 16,
            "workload.requests": REQUESTS,
            "workload.prompt_tokens.tokens": 2,  # one that lacks a single token verifies padding
            "workload.output_tokens.tokens": 1000,
            "run.mechanisms.stop_trim": False,
            **changes,
        }
    )


def variant_of(scenario: Scenario) -> CompiledVariant:
    return constant_steps(drafting_variant(scenario), STEP_NS)


def tokens_of_requests() -> np.ndarray:
    """E of every request of the run, from its own effect."""
    effects = SD * request_normals(SEED, REQUESTS)
    survival = np.cumprod(MODEL.conditional_at(effects, DRAFT_LENGTH), axis=1)
    return np.asarray(1.0 + survival.sum(axis=1))


@pytest.fixture(scope="module")
def record() -> RunRecord:
    return run(variant_of(closed_loop()), SEED, acceptance=[MODEL])


def rounds_against(record: RunRecord, expected: np.ndarray) -> Measured:
    """All rounds ÷ the rounds expected when request i needs tokens ÷ E_i, with the error over requests."""
    needed = (record.emitted_tokens - 1) / expected
    excess = record.decode_rounds - needed
    return Measured(1 + float(excess.sum() / needed.sum()), float(np.sqrt((excess**2).sum()) / needed.sum()))


def test_every_request_has_its_own_tokens_per_verify(record: RunRecord) -> None:
    expected = tokens_of_requests()
    scores = (record.decode_rounds * expected / (record.emitted_tokens - 1) - 1) * np.sqrt(
        record.decode_rounds
    )
    assert rounds_against(record, expected).score(1.0) < SIGMAS
    # The effect explains what each request does: without it the spread is many times larger.
    population = MODEL.mean_acceptance_length(DRAFT_LENGTH)
    alike = (record.decode_rounds * population / (record.emitted_tokens - 1) - 1) * np.sqrt(
        record.decode_rounds
    )
    assert alike.std() > 5 * scores.std()


def test_the_batch_emits_at_the_harmonic_mean(record: RunRecord) -> None:
    expected = tokens_of_requests()
    outputs = record.emitted_tokens - 1
    harmonic = theory.harmonic_mean(expected, outputs)
    emitted_per_round = outputs.sum() / record.decode_rounds.sum()
    error = rounds_against(record, expected).error * harmonic
    assert abs(emitted_per_round - harmonic) < SIGMAS * error
    arithmetic = float(outputs @ expected / outputs.sum())
    assert arithmetic - emitted_per_round > 6 * error
    figures = measure(record)
    assert figures["mean_acceptance_length"] < 0.97 * MODEL.mean_acceptance_length(DRAFT_LENGTH)


def test_mean_time_per_token_is_the_step_over_the_harmonic_mean_of_the_population(record: RunRecord) -> None:
    """mean TPOT = Ts · mean(1 / E_i) >= Ts / mean(E) (`harmonic_mean`); the error holds the draw of E_i."""
    tokens, weights = MODEL.mean_acceptance_lengths_by_request(DRAFT_LENGTH)
    tpot = mean((record.last_ns - record.first_ns) / (record.emitted_tokens - 1) / STEP_NS)
    assert tpot.score(1 / theory.harmonic_mean(tokens, weights)) < SIGMAS
    assert tpot.score(1 / float(tokens @ weights)) > 2 * SIGMAS


def test_without_heterogeneity_requests_emit_at_the_mean_of_the_population() -> None:
    alike = run(variant_of(closed_loop(**{"run.mechanisms.heterogeneity": False})), SEED, acceptance=[MODEL])
    population = np.full(REQUESTS, MODEL.mean_acceptance_length(DRAFT_LENGTH))
    assert rounds_against(alike, population).score(1.0) < SIGMAS


def test_two_classes_blend_harmonically_by_their_outputs() -> None:
    classes = [{"name": "chat", "share": 0.7}, {"name": "code", "share": 0.3}]
    alphas = {"chat": 0.7, "code": 0.4}
    models = [Geometric(alpha) for alpha in alphas.values()]
    record = run(variant_of(closed_loop(**{"workload.classes": classes})), SEED, acceptance=models)
    each = np.array([theory.tokens_per_verify(alpha, DRAFT_LENGTH) for alpha in alphas.values()])
    expected = each[record.traffic_class]
    assert rounds_against(record, expected).score(1.0) < SIGMAS
    outputs = record.emitted_tokens - 1
    harmonic = theory.harmonic_mean(expected, outputs)
    blended = float(outputs @ expected / outputs.sum())
    error = rounds_against(record, expected).error * harmonic
    assert (blended - outputs.sum() / record.decode_rounds.sum()) > 6 * error
    for index, tokens in enumerate(each):
        chosen = record.traffic_class == index
        excess = outputs[chosen] - tokens * record.decode_rounds[chosen]
        assert abs(excess.sum()) < SIGMAS * np.sqrt((excess**2).sum())


@pytest.mark.parametrize("think_time_s", [0.0, 0.05])
def test_clients_are_working_or_thinking(think_time_s: float) -> None:
    """The interactive response-time law, N = X (R + Z), over the steady window of real runs."""
    clients = 16
    scenario = small_scenario(
        {
            "workload.arrivals": {"kind": "closed", "concurrency": clients, "think_time_s": think_time_s},
            "workload.requests": 400,
            "workload.prompt_tokens": {"kind": "lognormal", "median": 200, "p95": 600},
            "workload.output_tokens": {"kind": "lognormal", "median": 40, "p95": 120},
        }
    )
    variant = drafting_variant(scenario)
    result, without_thinking = [], []
    for seed in range(12):
        record = run(variant, seed)
        window = window_of(record)
        arrived = (record.arrival_ns >= window.start_ns) & (record.arrival_ns < window.end_ns)
        rate = arrived.sum() / window.duration_s
        response_s = ((record.ended_ns - record.arrival_ns)[arrived] / 1e9).mean()
        result.append(rate * (response_s + think_time_s))
        without_thinking.append(rate * response_s)
    assert mean(result).score(clients) < SIGMAS
    if think_time_s:
        assert mean(without_thinking).score(clients) > 10 * SIGMAS


def test_clients_who_pause_do_not_stay_in_step() -> None:
    """With equal requests and pauses nothing would ever part clients who started together: all would be at
    work at once. A short run meets as many of them as the interactive response-time law says."""
    clients, pause_s = 32, 20.0
    scenario = small_scenario(
        {
            "workload.arrivals": {"kind": "closed", "concurrency": clients, "think_time_s": pause_s},
            "workload.requests": 6 * clients,
            "workload.prompt_tokens": {"kind": "fixed", "tokens": 200},
            "workload.output_tokens": {"kind": "fixed", "tokens": 100},
        }
    )
    record = run(drafting_variant(scenario), 1)
    stay_s = (record.ended_ns - record.arrival_ns) / 1e9
    steady = slice(clients, 5 * clients)
    under_way = [
        ((record.arrival_ns <= at) & (at < record.ended_ns)).sum() for at in record.arrival_ns[steady]
    ]
    assert max(under_way) <= 2 + clients * stay_s[steady].mean() / (pause_s + stay_s[steady].mean())


def test_a_full_batch_emits_its_harmonic_mean_every_step() -> None:
    """Throughput of the steady window = clients × tokens per request-step ÷ step, prompts' steps included."""
    variant = variant_of(closed_loop())
    shares = []
    for seed in range(12):
        record = run(variant, seed, acceptance=[MODEL])
        per_step = record.emitted_tokens.sum() / (record.decode_rounds + 1).sum()
        shares.append(measure(record)["throughput_tokens_per_s"] * STEP_NS / 1e9 / (16 * per_step))
    assert mean(shares).score(1.0) < SIGMAS
    assert mean(shares).score(15 / 16) > SIGMAS
