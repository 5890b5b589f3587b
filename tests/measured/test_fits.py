"""Fits give back the model that the rounds were drawn from, and the right one is said to describe them."""

import math

import numpy as np
import pytest

from calibration.acceptance.fits import (
    Trials,
    fit_all,
    fit_decay,
    fit_gated,
    fit_geometric,
    fit_hierarchical,
    fit_positional,
    hierarchical_log_likelihood,
    rouwenhorst,
    trials_of,
)
from calibration.acceptance.goodness import goodness
from calibration.acceptance.predict import predicted_length
from calibration.acceptance.rows import gate_of
from calibration.acceptance.samples import DecodingSetting, RequestSample
from simulator.acceptance import AcceptanceModel, Decay, Gated, Geometric, Hierarchical, Positional
from simulator.acceptance.base import logistic, logit
from simulator.breakeven.theory import harmonic_mean
from tests.measured.synthetic import synthetic_samples

SHORT = (1, 2, 3, 4)


def sample(drafted: list[int], accepted: list[int], prompt: str = "a") -> RequestSample:
    setting = DecodingSetting(0.0, max(drafted), "greedy")
    return RequestSample(
        "drawn", "code", prompt, 48, setting, 64, tuple(drafted), tuple(drafted), tuple(accepted), ()
    )


def test_rounds_become_trials_along_the_output() -> None:
    trials = trials_of([sample([3, 3, 0, 2], [2, 3, 0, 0])])
    # accepted, accepted, refused | three accepted, bonus | no draft | refused at once
    assert trials.outcome[0].tolist() == [1, 1, 0, 1, 1, 1, -1, -1, 0]
    assert trials.level[0][trials.outcome[0] >= 0].tolist() == [0, 1, 2, 0, 1, 2, 0]
    tried, accepted = trials.counts
    assert tried.tolist() == [3, 2, 2]
    assert accepted.tolist() == [2, 2, 1]


def test_memoryless_fits_are_the_counts() -> None:
    trials = trials_of([sample([3, 3, 3, 3], [3, 1, 0, 2])])
    assert fit_geometric(trials).model == Geometric(6 / 9)
    assert fit_positional(trials).model == Positional((3 / 4, 2 / 3, 1 / 2))
    expected = sum(math.log(chance) for chance in (0.75, 0.75, 0.75, 0.25, 2 / 3, 2 / 3, 1 / 3, 0.5, 0.5))
    assert fit_positional(trials).log_likelihood == pytest.approx(expected)


@pytest.mark.parametrize(
    "model",
    [
        Geometric(0.7),
        Decay.from_alpha(0.75, 0.3),
        Hierarchical(0.8, 0.1, 1.0),
        Hierarchical(0.6, 0.0, 0.5, 1.2, 0.9),
    ],
    ids=["geometric", "decay", "hierarchical", "with drift"],
)
def test_the_model_behind_the_rounds_is_found(model: AcceptanceModel) -> None:
    drifts = model.effects.drift_sd > 0  # which only twice the rounds show
    samples = synthetic_samples(model, SHORT, requests=60 if drifts else 30, tokens=64)
    best = fit_all(samples)[0]
    assert best.model.name == model.name
    requests, effects = len(samples), model.effects
    # A request's own level counts as one draw, a drift as a few; trials of one request are some fifty.
    error = math.hypot(effects.request_sd, effects.drift_sd / 2, 2 / math.sqrt(50)) / math.sqrt(requests)
    assert abs(logit(best.model.alpha) - logit(model.alpha)) < 4 * error
    if effects.request_sd:
        assert isinstance(best.model, Hierarchical)
        assert best.model.request_sd == pytest.approx(effects.request_sd, abs=0.25)
        assert best.model.drift_sd == pytest.approx(effects.drift_sd, abs=0.3)
        assert best.model.drift_correlation == pytest.approx(effects.drift_correlation, abs=0.06)
    longest = [sample for sample in samples if sample.setting.draft_length == 4]
    assert not goodness(best.model, longest).rejected


@pytest.mark.parametrize("delta", [-0.2, 0.0, 0.4])
def test_without_effects_the_hierarchical_likelihood_is_the_independent_one(delta: float) -> None:
    trials = trials_of(synthetic_samples(Decay.from_alpha(0.7, delta), SHORT, requests=8, tokens=40))
    fit = fit_decay(trials)
    assert isinstance(fit.model, Decay)
    same = Hierarchical(fit.model.mu, fit.model.delta)
    assert hierarchical_log_likelihood(same, trials) == pytest.approx(fit.log_likelihood, rel=1e-9)


@pytest.mark.parametrize("correlation", [0.0, 0.7, 0.9, 0.97])
def test_the_hierarchical_likelihood_is_the_integral_over_effects(correlation: float) -> None:
    model = Hierarchical(0.4, 0.2, 0.8, 1.0, correlation)
    outcomes, levels = [1, 1, 0, -1, 1, 0, 1, 1, -1, 0], [0, 1, 2, 0, 0, 1, 0, 1, 0, 0]
    trials = Trials(np.array([outcomes], dtype=np.int8), np.array([levels], dtype=np.int8), np.zeros(1, int))
    rng, count = np.random.default_rng(0), 400_000
    request = model.request_sd * rng.standard_normal(count)
    drift, total = rng.standard_normal(count), np.ones(count)
    for place, (outcome, level) in enumerate(zip(outcomes, levels, strict=True)):
        if place:
            drift = correlation * drift + math.sqrt(1 - correlation**2) * rng.standard_normal(count)
        chance = logistic(model.mu + request + model.drift_sd * drift - model.delta * level)
        total *= np.where(outcome == 1, chance, 1 - chance) if outcome >= 0 else 1.0
    error = float(total.std() / math.sqrt(count) / total.mean())
    result = hierarchical_log_likelihood(model, trials)
    assert result == pytest.approx(math.log(total.mean()), abs=4 * error + 0.01)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9, 0.98])
def test_the_drifts_chain_has_its_variance_and_memory(correlation: float) -> None:
    values, shares, moves = rouwenhorst(13, correlation)
    assert moves.sum(axis=1) == pytest.approx(np.ones(13))
    assert shares @ moves == pytest.approx(shares)
    assert shares @ values == pytest.approx(0.0)
    assert shares @ values**2 == pytest.approx(1.0)
    assert moves @ values == pytest.approx(correlation * values)


def test_runs_of_one_prompt_share_its_effect() -> None:
    model = Hierarchical(0.5, 0.0, 1.5)
    trials = trials_of([sample([4, 4], [4, 4], "a"), sample([4, 4], [0, 0], "a")])
    two = trials_of([sample([4, 4], [4, 4], "a"), sample([4, 4], [0, 0], "b")])
    assert hierarchical_log_likelihood(model, trials) < hierarchical_log_likelihood(model, two) - 1


def test_gated_is_read_from_rounds_with_and_without_a_match() -> None:
    samples = [sample([4, 4, 0, 4, 0, 0, 4, 4], [4, 0, 0, 3, 0, 0, 0, 4])]
    fit = fit_gated(trials_of(samples), samples)
    assert isinstance(fit.model, Gated)
    assert fit.model.match_probability == 5 / 8
    assert fit.model.first == 3 / 5
    assert fit.model.run == 8 / 9  # 3 + 3 + 3 tries behind the first, one refused
    assert fit.model.stickiness == 0.0  # of four rounds behind a match two have one: no more than chance
    expected = 3 * math.log(0.6) + 2 * math.log(0.4) + 8 * math.log(8 / 9) + math.log(1 / 9)
    assert fit.log_likelihood == pytest.approx(expected)
    sticky = [sample([4, 4, 4, 4, 0, 0, 0, 0], [1, 1, 1, 1, 0, 0, 0, 0])]
    assert gate_of(sticky).stickiness == pytest.approx((3 / 4 - 1 / 2) / (1 / 2))


@pytest.mark.parametrize(
    ("fitted", "truth", "p_value"),
    [
        (Geometric(0.7), Decay.from_alpha(0.85, 0.5), "counts"),
        (Geometric(0.6), Hierarchical(0.5, 0.0, 1.2), "spread"),
        (Hierarchical(0.9, 0.0, 1.2), Geometric(0.7), "spread"),
    ],
    ids=["falls with the position", "requests differ", "requests do not differ"],
)
def test_a_model_that_is_wrong_is_refused(
    fitted: AcceptanceModel, truth: AcceptanceModel, p_value: str
) -> None:
    result = goodness(fitted, synthetic_samples(truth, (4,), requests=40, tokens=64))
    assert result.rejected
    assert getattr(result, p_value) < 0.005
    assert not goodness(truth, synthetic_samples(truth, (4,), requests=40, tokens=64)).rejected


def test_the_right_model_is_hardly_ever_refused() -> None:
    refused = sum(
        goodness(Geometric(0.7), synthetic_samples(Geometric(0.7), (3,), 12, 48, seed=seed)).rejected
        for seed in range(40)
    )
    assert refused <= 3  # of 40 at 1 %, four would come once in a thousand


def test_what_a_run_shows_is_the_mean_or_the_harmonic_mean_over_requests() -> None:
    assert predicted_length(Geometric(0.7), 4, 64) == Geometric(0.7).mean_acceptance_length(4)
    model = Hierarchical(0.6, 0.0, 1.0)
    lengths, shares = model.mean_acceptance_lengths_by_request(3)
    assert predicted_length(model, 3, 2000) == pytest.approx(harmonic_mean(lengths, shares), rel=0.03)
    assert predicted_length(model, 3, 2000) < 0.95 * model.mean_acceptance_length(3)


def test_longer_drafts_follow_from_short_ones_where_the_model_holds() -> None:
    model = Hierarchical(0.8, 0.1, 0.8)
    fit = fit_hierarchical(trials_of(synthetic_samples(model, SHORT, requests=80, tokens=64)))
    for draft_length in (6, 8):
        truth = predicted_length(model, draft_length, 64)
        assert predicted_length(fit.model, draft_length, 64) == pytest.approx(truth, rel=0.06)
