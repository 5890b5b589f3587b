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
    trials_of,
)
from calibration.acceptance.predict import shown_length
from calibration.acceptance.samples import Sample, Setting
from simulator.acceptance import AcceptanceModel, Decay, Geometric, Hierarchical, Positional
from simulator.acceptance.base import logistic
from simulator.theory import harmonic_mean
from tests.measured.synthetic import synthetic_samples

SHORT = (1, 2, 3, 4)


def sample(drafted: list[int], accepted: list[int], prompt: str = "a") -> Sample:
    setting = Setting(0.0, max(drafted), "greedy")
    return Sample("drawn", "code", prompt, 48, setting, 64, tuple(drafted), tuple(accepted), ())


def test_rounds_become_trials_along_the_output() -> None:
    trials = trials_of([sample([3, 3, 0, 2], [2, 3, 0, 0])])
    # accepted, accepted, refused | three accepted, bonus | no draft | refused at once
    assert trials.outcome[0].tolist() == [1, 1, 0, 1, 1, 1, -1, 0, 0]
    assert trials.level[0][trials.outcome[0] >= 0].tolist() == [0, 1, 2, 0, 1, 2, 0, 0]
    tried, accepted = trials.counts
    assert tried.tolist() == [4, 2, 2]
    assert accepted.tolist() == [2, 2, 1]


def test_memoryless_fits_are_the_counts() -> None:
    trials = trials_of([sample([3, 3, 3, 3], [3, 1, 0, 2])])
    assert fit_geometric(trials).model == Geometric(6 / 9)
    assert fit_positional(trials).model == Positional((3 / 4, 2 / 3, 1 / 2))
    expected = sum(math.log(one) for one in (0.75, 0.75, 0.75, 0.25, 2 / 3, 2 / 3, 1 / 3, 0.5, 0.5))
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
    best = fit_all(synthetic_samples(model, SHORT, requests=60, tokens=64))[0]
    assert best.model.name == model.name
    requests, effects = 240, model.effects
    # Standard errors: of a mean over requests where they differ, of independent trials otherwise.
    error = math.hypot(effects.request_sd, effects.drift_sd) / math.sqrt(requests) + 0.02
    assert abs(best.model.alpha - model.alpha) < 3 * error / 4 + 0.01
    if effects.request_sd:
        assert isinstance(best.model, Hierarchical)
        assert best.model.request_sd == pytest.approx(effects.request_sd, abs=0.25)
        assert best.model.drift_sd == pytest.approx(effects.drift_sd, abs=0.4)


@pytest.mark.parametrize("delta", [-0.2, 0.0, 0.4])
def test_without_effects_the_hierarchical_likelihood_is_the_independent_one(delta: float) -> None:
    trials = trials_of(synthetic_samples(Decay.from_alpha(0.7, delta), SHORT, requests=8, tokens=40))
    fit = fit_decay(trials)
    assert isinstance(fit.model, Decay)
    same = Hierarchical(fit.model.mu, fit.model.delta)
    assert hierarchical_log_likelihood(same, trials) == pytest.approx(fit.log_likelihood, rel=1e-9)


def test_the_hierarchical_likelihood_is_the_integral_over_effects() -> None:
    model = Hierarchical(0.4, 0.2, 0.8, 0.6, 0.7)
    trials = Trials(
        np.array([[1, 0, -1, 1]], dtype=np.int8), np.array([[0, 1, 0, 0]], dtype=np.int8), np.zeros(1, int)
    )
    luck = np.random.default_rng(0)
    count = 400_000
    request = model.request_sd * luck.standard_normal(count)
    drift = luck.standard_normal(count)
    total = np.ones(count)
    for place, (outcome, level) in enumerate(zip([1, 0, -1, 1], [0, 1, 0, 0], strict=True)):
        if place:
            drift = 0.7 * drift + math.sqrt(1 - 0.49) * luck.standard_normal(count)
        chance = logistic(model.mu + request + model.drift_sd * drift - model.delta * level)
        total *= np.where(outcome == 1, chance, 1 - chance) if outcome >= 0 else 1.0
    error = float(total.std() / math.sqrt(count) / total.mean())
    assert hierarchical_log_likelihood(model, trials) == pytest.approx(
        math.log(total.mean()), abs=4 * error + 0.003
    )


def test_runs_of_one_prompt_share_its_effect() -> None:
    model = Hierarchical(0.5, 0.0, 1.5)
    one = trials_of([sample([4, 4], [4, 4], "a"), sample([4, 4], [0, 0], "a")])
    two = trials_of([sample([4, 4], [4, 4], "a"), sample([4, 4], [0, 0], "b")])
    assert hierarchical_log_likelihood(model, one) < hierarchical_log_likelihood(model, two) - 1


def test_gated_is_read_from_rounds_with_and_without_a_match() -> None:
    samples = [sample([4, 4, 0, 4, 0, 0, 4, 4], [4, 0, 0, 3, 0, 0, 0, 4])]
    fit = fit_gated(trials_of(samples), samples)
    entry = fit.entry
    assert entry["match"] == 5 / 8
    assert entry["first"] == 3 / 5
    assert entry["run"] == 8 / 9  # of 3 + 3 + 3 tries behind the first, one refused
    after_match = 2 / 4  # of four rounds behind one with a match
    assert entry["stickiness"] == pytest.approx(max((after_match - 5 / 8) / (3 / 8), 0.0))


def test_what_a_run_shows_is_the_mean_or_the_harmonic_mean_over_requests() -> None:
    assert shown_length(Geometric(0.7), 4, 64) == Geometric(0.7).mean_acceptance_length(4)
    model = Hierarchical(0.6, 0.0, 1.0)
    lengths, shares = model.mean_acceptance_lengths_by_request(3)
    assert shown_length(model, 3, 2000) == pytest.approx(harmonic_mean(lengths, shares), rel=0.03)
    assert shown_length(model, 3, 2000) < 0.95 * model.mean_acceptance_length(3)


def test_longer_drafts_follow_from_short_ones_where_the_model_holds() -> None:
    model = Hierarchical(0.8, 0.1, 0.8)
    fit = fit_hierarchical(trials_of(synthetic_samples(model, SHORT, requests=80, tokens=64)))
    for draft_length in (6, 8):
        truth = shown_length(model, draft_length, 64)
        assert shown_length(fit.model, draft_length, 64) == pytest.approx(truth, rel=0.06)
