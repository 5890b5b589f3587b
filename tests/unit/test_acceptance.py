"""Acceptance models: survival and means against published figures, closed forms and quadrature."""

from __future__ import annotations

import math
from statistics import NormalDist
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.acceptance import (
    Decay,
    Fixed,
    Gated,
    Geometric,
    Hierarchical,
    Positional,
    acceptance_model,
)
from simulator.acceptance.base import logistic, logit
from simulator.errors import InputError
from simulator.scenario.acceptance import AcceptanceGated, AcceptanceHierarchical, AcceptancePositional

# Values


def test_logit_and_logistic_at_their_ends() -> None:
    assert logistic(np.array([-math.inf, 0.0, math.inf])).tolist() == [0.0, 0.5, 1.0]
    assert (logit(0.0), logit(1.0)) == (-math.inf, math.inf)
    assert float(logistic(logit(1e-12))) == pytest.approx(1e-12, rel=1e-12)


def test_fixed_mixes_floor_and_ceil() -> None:
    assert Fixed(0.5, 5).conditional(5).tolist() == [1.0, 1.0, 0.5, 0.0, 0.0]
    assert Fixed(0.5, 5).mean_acceptance_length(5) == 3.5
    assert Fixed(0.5, 4).conditional(4).tolist() == [1.0, 1.0, 0.0, 0.0]
    assert Fixed(0.1, 5).conditional(2).tolist() == [0.5, 0.0]
    assert (Fixed(0.0, 3).mean_acceptance_length(3), Fixed(1.0, 3).mean_acceptance_length(3)) == (1.0, 4.0)


def test_fixed_holds_at_its_draft_length_only() -> None:
    with pytest.raises(InputError, match="more than the 3 drafts"):
        Fixed(0.5, 3).conditional(4)


def test_published_survival() -> None:
    """EAGLE-3 for Llama-3.1-8B as printed by vLLM (vllm-project/vllm#32030): mean acceptance length 1 +
    0.73 + 0.52 + 0.35.
    """
    model = acceptance_model({"model": "positional", "survival": [0.73, 0.52, 0.35]}, 3)
    assert model.mean_acceptance_length(3) == pytest.approx(2.60)
    assert model.alpha == 0.73
    assert model.conditional(5)[3:].tolist() == [0.35 / 0.52] * 2


def test_decay_steps_down_in_logits() -> None:
    model = Decay.from_alpha(0.8, 0.25)
    assert np.diff([logit(float(c)) for c in model.conditional(4)]) == pytest.approx([-0.25] * 3)
    assert Decay.from_alpha(0.8, 0.0).survival(4) == pytest.approx(Geometric(0.8).survival(4))


def test_decay_without_limit_at_certain_acceptance() -> None:
    assert Decay.from_alpha(1.0, 3.0).mean_acceptance_length(4) == 5.0
    assert Decay.from_alpha(0.0, -3.0).mean_acceptance_length(4) == 1.0


def _by_quadrature(model: Hierarchical, k: int) -> float:
    """E of the product of c_1..c_k without drift, by scipy's adaptive quadrature."""
    from scipy.integrate import quad

    def integrand(z: float) -> float:
        rates = [1 / (1 + math.exp(-(model.mu + model.request_sd * z - model.delta * j))) for j in range(k)]
        return math.prod(rates) * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)

    return float(quad(integrand, -12, 12, epsabs=1e-11, limit=400)[0])


@pytest.mark.parametrize("request_sd", [0.2, 1.0, 3.0, 10.0])
def test_population_between_requests_is_the_integral(request_sd: float) -> None:
    model = Hierarchical.from_alpha(0.7, 0.15, request_sd=request_sd)
    for k in (1, 4):
        assert model.survival(k)[-1] == pytest.approx(_by_quadrature(model, k), abs=1e-7)


@pytest.mark.parametrize(("drift_sd", "rho"), [(0.5, 0.9), (2.0, 0.5), (3.0, 0.97)])
def test_population_along_a_request_is_the_integral(drift_sd: float, rho: float) -> None:
    """S_2 and S_3 over the joint normal of v_1, v_2, v_3,
    by a plain sum over a fine grid of AR(1) transitions.
    """
    model = Hierarchical.from_alpha(0.7, 0.2, drift_sd=drift_sd, drift_correlation=rho)
    step = min(0.05, 0.25 * math.sqrt(1 - rho * rho))
    z = np.arange(-8.5, 8.5 + step / 2, step)
    weights = np.exp(-z * z / 2) * step / math.sqrt(2 * math.pi)
    moved = (z[None, :] - rho * z[:, None]) / math.sqrt(1 - rho * rho)
    transition = np.exp(-moved * moved / 2) * step / math.sqrt(2 * math.pi * (1 - rho * rho))
    carried, survival = weights, []
    for j in range(3):
        if j:
            carried = carried @ transition
        carried = carried / (1 + np.exp(-(model.mu + drift_sd * z - 0.2 * j)))
        survival.append(carried.sum())
    assert model.survival(3) == pytest.approx(survival, abs=1e-7)


def test_drift_without_end_is_a_difference_between_requests() -> None:
    lasting = Hierarchical.from_alpha(0.7, 0.1, request_sd=0.6, drift_sd=0.8, drift_correlation=1.0)
    assert lasting.survival(6) == pytest.approx(
        Hierarchical.from_alpha(0.7, 0.1, request_sd=1.0).survival(6), abs=1e-7
    )


def test_drift_without_memory_is_none_between_positions() -> None:
    fresh = Hierarchical.from_alpha(0.7, drift_sd=1.5, drift_correlation=0.0)
    single = Hierarchical.from_alpha(0.7, request_sd=1.5).survival(1)[0]
    assert fresh.survival(4) == pytest.approx([single**j for j in range(1, 5)], abs=1e-7)


def test_without_effects_it_is_decay() -> None:
    assert Hierarchical.from_alpha(0.7, 0.2).survival(5) == pytest.approx(
        Decay.from_alpha(0.7, 0.2).survival(5)
    )


def test_population_conditionals_rise_though_each_request_decays() -> None:
    model = Hierarchical.from_alpha(0.6, 0.1, request_sd=2.0)
    assert (np.diff(model.conditional(6)) > 0).all()
    assert (np.diff(model.conditional_at(np.zeros(1), 6)[0]) < 0).all()


@pytest.mark.parametrize("alpha", [1e-12, 1e-3, 1 - 1e-9])
def test_survival_never_rises_at_the_edges(alpha: float) -> None:
    model = Hierarchical.from_alpha(alpha, 0.3, request_sd=1.0, drift_sd=2.0, drift_correlation=0.9)
    survival = model.survival(16)
    assert (np.diff(survival) <= 0).all()
    assert ((survival >= 0) & (survival <= 1)).all()
    assert ((model.conditional(16) >= 0) & (model.conditional(16) <= 1)).all()


def test_means_by_request_average_to_the_population() -> None:
    model = Hierarchical.from_alpha(0.6, 0.1, request_sd=1.0, drift_sd=0.5, drift_correlation=0.9)
    lengths, shares = model.mean_acceptance_lengths_by_request(5)
    assert shares.sum() == pytest.approx(1.0)
    assert float(lengths @ shares) == pytest.approx(model.mean_acceptance_length(5), abs=1e-9)


def test_gated_counts_rounds_without_a_match() -> None:
    model = Gated(0.2, 0.5, 0.6, 0.9)
    assert model.survival(3) == pytest.approx([0.12, 0.108, 0.0972])
    assert np.concatenate(model.match_at(np.zeros(1))) == pytest.approx((0.2, 0.1, 0.6))
    assert model.mean_acceptance_length(3) == pytest.approx(1 + 0.2 * (0.6 + 0.54 + 0.486))


@pytest.mark.parametrize("sd", [1e-100, 0.5, 1.3, 5.0, 10.0])
@pytest.mark.parametrize("share", [0.001, 0.2, 0.9])
def test_the_match_is_the_mean_over_requests_that_differ(share: float, sd: float) -> None:
    model = Gated(share, 0.0, 0.6, 0.9, sd)
    normal = NormalDist()
    effects = sd * np.array([normal.inv_cdf((i + 0.5) / 20_000) for i in range(20_000)])
    assert model.match_at(effects).stationary.mean() == pytest.approx(share, abs=1e-4)
    lengths, weights = model.mean_acceptance_lengths_by_request(3)
    assert float(lengths @ weights) == pytest.approx(model.mean_acceptance_length(3), abs=1e-9)
    assert sd < 0.5 or lengths.max() - lengths.min() > 0.5 * model.survival(3)[0]


def test_who_never_or_always_matches_does_so_in_every_request() -> None:
    for share in (0.0, 1.0):
        assert set(Gated(share, 0.3, 0.6, 0.9, 2.0).match_at(np.array([-5.0, 5.0])).stationary) == {share}


# Inversion of a mean acceptance length


@settings(max_examples=40)
@given(
    st.floats(0.0, 1.0),
    st.integers(1, 12),
    st.sampled_from(
        [
            {"model": "geometric"},
            {"model": "decay", "delta": 0.4},
            {"model": "decay", "delta": -0.3},
            {"model": "hierarchical", "delta": 0.1, "request_sd": 1.0},
            {
                "model": "hierarchical",
                "delta": 0.0,
                "request_sd": 0.5,
                "drift_sd": 0.7,
                "drift_correlation": 0.9,
            },
        ]
    ),
)
def test_a_mean_acceptance_length_is_inverted_exactly(
    share: float, k: int, family: dict[str, object]
) -> None:
    length = 1.0 + k * share
    model = acceptance_model({**family, "mean_acceptance_length": length, "at_draft_length": k}, 3)
    assert model.mean_acceptance_length(k) == pytest.approx(length, abs=2e-12)


def test_published_mean_lengths_give_one_alpha_each() -> None:
    """EAGLE-3 for 8B, K = 2..7 (vllm-project/vllm#20780):
    geometric alphas are not the same, so the chain is no geometric one.
    """
    alphas = []
    for k, length in zip(range(2, 8), (2.36, 2.79, 3.08, 3.32, 3.46, 3.54), strict=True):
        model = acceptance_model(
            {"model": "geometric", "mean_acceptance_length": length, "at_draft_length": k}, 3
        )
        assert sum(model.alpha**j for j in range(k + 1)) == pytest.approx(length, abs=1e-12)
        alphas.append(model.alpha)
    assert max(alphas) - min(alphas) > 0.02


@pytest.mark.parametrize("model", ["geometric", "decay", "hierarchical"])
@pytest.mark.parametrize("length", [0.99, 4.01])
def test_an_unreachable_mean_length_is_refused(model: str, length: float) -> None:
    entry = {"model": model, "delta": 0.1, "mean_acceptance_length": length, "at_draft_length": 3}
    with pytest.raises(
        InputError, match=r"mean_acceptance_length: cannot be reached.*1 to 4 at draft length 3"
    ):
        acceptance_model(entry, 3)


def test_the_draft_length_of_a_mean_must_be_said() -> None:
    with pytest.raises(InputError, match="at_draft_length: is missing"):
        acceptance_model({"model": "geometric", "mean_acceptance_length": 2.0}, 3)


# Entries


def test_an_entry_may_be_a_mapping_a_scenario_section_or_a_model() -> None:
    expected = Hierarchical.from_alpha(0.6, 0.1, 0.5, 0.3, 0.9)
    fields = {"alpha": 0.6, "delta": 0.1, "request_sd": 0.5, "drift_sd": 0.3, "drift_correlation": 0.9}
    assert acceptance_model({"model": "hierarchical", **fields}, 3) == expected
    assert acceptance_model(AcceptanceHierarchical(**fields), 3) == expected
    assert acceptance_model(SimpleNamespace(model="hierarchical", **fields), 3) == expected
    assert acceptance_model(expected, 3) is expected
    assert acceptance_model(AcceptanceGated(match=0.2, first=0.5, run=0.9), 3) == Gated(0.2, 0.0, 0.5, 0.9)
    assert acceptance_model(AcceptancePositional(survival=(0.5, 0.25)), 3) == Positional((0.5, 0.5))


def test_an_unknown_model_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"did you mean 'geometric'.*decay, fixed, gated, geometric"):
        acceptance_model({"model": "geometrik", "alpha": 0.5}, 3)
    with pytest.raises(InputError, match="model: is missing"):
        acceptance_model({"alpha": 0.5}, 3)
