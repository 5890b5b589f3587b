"""The compiled acceptance, run by a plain reference, against the formulas
of the models; tolerances from standard errors.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from simulator.acceptance import (
    AcceptanceModel,
    Decay,
    Fixed,
    Gated,
    Geometric,
    Hierarchical,
    Positional,
    ReplayedAcceptance,
)
from simulator.breakeven import theory
from tests import closed_forms
from tests.acceptance_reference import ReferenceRequest, first_rounds, one_class, survival_scores, tables_of

SEED = 7
K = 5
ROUNDS = 12_000

MODELS = {
    "fixed": Fixed(0.47, K),
    "geometric": Geometric(0.7),
    "positional": Positional((0.6, 0.59, 0.64, 0.69, 0.73)),
    "decay": Decay.from_alpha(0.75, 0.2),
    "requests differ": Hierarchical.from_alpha(0.65, 0.1, request_sd=1.2),
    "drift": Hierarchical.from_alpha(0.65, 0.1, drift_sd=1.5, drift_correlation=0.95),
    "both": Hierarchical.from_alpha(0.6, 0.0, request_sd=0.8, drift_sd=0.8, drift_correlation=0.8),
    "gated": Gated(0.3, 0.6, 0.5, 0.9),
    "matches differ": Gated(0.3, 0.4, 0.7, 0.9, request_sd=1.3),
}


def largest_score(drawn_from: AcceptanceModel, claimed: AcceptanceModel, heterogeneity: bool = True) -> float:
    """Largest |z| of S_1..S_K between rounds of one model and the formula of another."""
    tables = tables_of(drawn_from, ROUNDS, SEED, K, heterogeneity)
    accepted = first_rounds(tables, SEED, K, range(ROUNDS))
    return float(np.abs(survival_scores(accepted, claimed.survival(K))).max())


@pytest.mark.parametrize("name", MODELS)
def test_rounds_have_the_survival_of_the_formula(name: str) -> None:
    assert largest_score(MODELS[name], MODELS[name]) < 3.0


@pytest.mark.parametrize("name", ["requests differ", "drift", "both", "gated", "matches differ"])
def test_without_heterogeneity_the_population_is_the_same(name: str) -> None:
    assert largest_score(MODELS[name], MODELS[name], heterogeneity=False) < 3.0


@pytest.mark.parametrize(
    ("drawn_from", "claimed"),
    [
        (Geometric(0.7), Geometric(0.73)),
        (Fixed(0.47, K), Geometric(theory.alpha_from_tokens_per_verify(1 + 0.47 * K, K) or 0.0)),
        (Decay.from_alpha(0.75, 0.2), Geometric(0.75)),
        (Hierarchical.from_alpha(0.65, 0.1, request_sd=1.2), Decay.from_alpha(0.65, 0.1)),
        (
            Hierarchical.from_alpha(0.65, 0.1, drift_sd=1.5, drift_correlation=0.95),
            Hierarchical.from_alpha(0.65, 0.1, drift_sd=1.5, drift_correlation=0.0),
        ),
        (Gated(0.3, 0.6, 0.5, 0.9), Gated(0.33, 0.6, 0.5, 0.9)),
        (Gated(0.3, 0.6, 0.5, 0.9), Gated(0.3, 0.6, 0.5, 0.85)),
        (MODELS["matches differ"], Gated(0.33, 0.4, 0.7, 0.9, request_sd=1.3)),
    ],
)
def test_a_wrong_model_fails_the_same_check(drawn_from: AcceptanceModel, claimed: AcceptanceModel) -> None:
    assert largest_score(drawn_from, claimed) > 4.0


@pytest.mark.parametrize("name", ["fixed", "geometric", "positional", "decay", "gated"])
def test_rounds_along_a_request_are_stationary(name: str) -> None:
    """Every later round has the survival of the first:
    nothing is carried over but the match, which starts stationary.
    """
    requests, rounds = 800, 15
    tables = tables_of(MODELS[name], requests, SEED, K)
    accepted = np.empty((requests, rounds))
    for r in range(requests):
        reference = ReferenceRequest(tables, SEED, r)
        accepted[r] = [reference.round(K) for _ in range(rounds)]
    expected = MODELS[name].survival(K)
    for j in range(1, K + 1):
        per_request = (accepted >= j).mean(axis=1)
        error = per_request.std(ddof=1) / math.sqrt(requests)
        assert abs(per_request.mean() - expected[j - 1]) <= 3.0 * error + 1e-12


def test_matches_stick_as_asked() -> None:
    model = Gated(0.3, 0.6, 0.5, 0.9)
    tables = tables_of(model, 3000, SEED, K)
    pairs = np.zeros((2, 2))
    for r in range(3000):
        reference = ReferenceRequest(tables, SEED, r)
        before = reference.matched
        for _ in range(4):
            reference.round(K)
            pairs[int(before), int(reference.matched)] += 1
            before = reference.matched
    match = model.match_at(np.zeros(1))
    for before, (chance,) in enumerate((match.after_miss, match.after_match)):
        seen = pairs[before].sum()
        assert abs(pairs[before, 1] / seen - chance) < 3.0 * math.sqrt(chance * (1 - chance) / seen)
    assert match.after_match - match.after_miss == pytest.approx(0.6)


TRACE = ReplayedAcceptance(((1, 3, 2, 1, 6, 2, 2, 1, 4), (2, 2, 5, 1, 1, 3)))


@pytest.mark.parametrize("model", [*MODELS.values(), TRACE], ids=[*MODELS, "trace"])
def test_the_same_luck_gives_nested_acceptance(model: AcceptanceModel) -> None:
    """At one output position, K drafts accept what K' > K would, cut at K:
    the token's luck knows nothing of K.
    """
    tables = tables_of(model, 60, SEED, K)
    seen = set()
    for r in range(60):
        for emitted in range(1, 12):
            at_most = [ReferenceRequest(tables, SEED, r, emitted=emitted).accepted(k) for k in range(K + 1)]
            assert at_most == [min(at_most[K], k) for k in range(K + 1)]
            seen.add(at_most[K])
    assert len(seen) >= 2


def test_tables_of_another_draft_length_hold_the_same_thresholds() -> None:
    for model in MODELS.values():
        if isinstance(model, Fixed):
            continue
        short, long = (tables_of(model, 40, SEED, k) for k in (2, K))
        for r in range(40):
            for emitted in (1, 5, 9):
                two, five = (ReferenceRequest(t, SEED, r, emitted=emitted).accepted(2) for t in (short, long))
                assert two == five


@pytest.mark.parametrize("k", [1, 3, 5])
def test_a_replayed_trace_has_the_survival_it_states(k: int) -> None:
    """One pass over each sequence, the first token by prefill; exact, there is no luck in it."""
    tables = tables_of(TRACE, 2, SEED, k)
    accepted = []
    for r, sequence in enumerate(TRACE.sequences):
        reference = ReferenceRequest(tables, SEED, r)
        while reference.emitted < len(sequence):
            accepted.append(reference.round(k))
    counted = [np.mean(np.array(accepted) >= j) for j in range(1, k + 1)]
    assert TRACE.survival(k).tolist() == pytest.approx(counted, abs=0.0)


def test_a_closed_loop_shows_the_harmonic_mean_over_requests() -> None:
    """Tokens ÷ rounds of equal, long outputs: the harmonic mean
    of the requests' own E, not the population's E.
    """
    model = Hierarchical.from_alpha(0.65, 0.0, request_sd=1.5)
    requests, output = 400, 400
    tables = tables_of(model, requests, SEED, K)
    rounds = np.zeros(requests)
    for r in range(requests):
        reference = ReferenceRequest(tables, SEED, r)
        while reference.emitted < output + 1:
            reference.round(K)
            rounds[r] += 1
    per_token = rounds / output
    error = per_token.std(ddof=1) / math.sqrt(requests)
    harmonic = theory.harmonic_mean(*model.mean_acceptance_lengths_by_request(K))
    # The last round, cut at the stop, adds less than one round per request.
    assert -3.0 * error < per_token.mean() - 1.0 / harmonic < 3.0 * error + 1.0 / output
    assert per_token.mean() - 1.0 / model.mean_acceptance_length(K) > 5.0 * error


def test_finite_outputs_match_the_recursion() -> None:
    """Rounds to emit 20 tokens, geometric; the endless form is the negative control."""
    alpha, k, output, requests = 0.9, 4, 20, 4000
    tables = tables_of(Geometric(alpha), requests, SEED, k)
    rounds = np.zeros(requests)
    for r in range(requests):
        reference = ReferenceRequest(tables, SEED, r)
        while reference.emitted < output + 1:
            reference.round(k)
            rounds[r] += 1
    error = rounds.std(ddof=1) / math.sqrt(requests)
    assert abs(rounds.mean() - output / closed_forms.finite_tokens_per_verify(alpha, k, output)) < 3.0 * error
    assert abs(rounds.mean() - output / theory.tokens_per_verify(alpha, k)) > 5.0 * error


def test_luck_does_not_depend_on_how_many_requests_there_are() -> None:
    model = Hierarchical.from_alpha(0.6, request_sd=1.0)
    few, many = (tables_of(model, n, SEED, K) for n in (10, 30))
    assert few.request_effect.tolist() == many.request_effect[:10].tolist()
    assert len(one_class(30).output_tokens) == len(many.request_effect)


def test_request_effects_are_normal_with_their_sd() -> None:
    effects = tables_of(Hierarchical.from_alpha(0.6, request_sd=1.5), 20_000, SEED, 1).request_effect / 1.5
    assert abs(effects.mean()) < 3.0 / math.sqrt(20_000)
    assert abs(effects.var() - 1.0) < 3.0 * math.sqrt(2.0 / 20_000)
    assert abs((effects**4).mean() - 3.0) < 3.0 * math.sqrt(96.0 / 20_000)


def test_a_drifting_request_shows_its_slow_stretches_more_often() -> None:
    """docs/acceptance.md: rounds of a drifting output show 2.16 where the stationary average is 2.36."""
    model = Hierarchical.from_alpha(0.65, drift_sd=1.0, drift_correlation=0.95)
    requests, output = 400, 300
    tables = tables_of(model, requests, SEED, 3)
    rounds = np.zeros(requests)
    for r in range(requests):
        reference = ReferenceRequest(tables, SEED, r)
        while reference.emitted < output + 1:
            reference.round(3)
            rounds[r] += 1
    per_token = rounds / output
    error = per_token.std(ddof=1) / math.sqrt(requests)
    assert model.mean_acceptance_length(3) == pytest.approx(2.36, abs=0.0051)
    assert abs(per_token.mean() - 1.0 / 2.16) < 3.0 * error + 1.0 / output
    assert per_token.mean() - 1.0 / model.mean_acceptance_length(3) > 5.0 * error
