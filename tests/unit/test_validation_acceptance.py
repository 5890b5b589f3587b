"""Where the acceptance and the lengths of a published point come from."""

from __future__ import annotations

import math

import numpy as np
import pytest

from calibration.validation.reconstruction.cases import committed_cases
from calibration.validation.reconstruction.entries import (
    MATCH_SD,
    REQUEST_SD,
    entry_of_length,
    entry_of_lookup,
)
from calibration.validation.reconstruction.evidence import AcceptanceEvidence
from calibration.validation.reconstruction.lengths import lengths_of
from calibration.validation.reconstruction.published_run import PublishedFigure, with_assumed_lengths
from calibration.validation.reconstruction.reconstruct import published_runs_of
from simulator.acceptance import acceptance_model
from simulator.breakeven.theory import harmonic_mean
from simulator.traffic.workload import generate
from tests.published_cases import PLAIN, SPEC, cases_of, changed, runs_in, the_run


def test_a_chain_may_be_stated_by_the_tokens_it_verifies(tmp_path):
    run = the_run(tmp_path, changed(SPEC, draft={"k": None, "num_draft_tokens": 5}))
    assert run.draft_length == 4


def test_an_oracle_accepts_everything(tmp_path):
    case = changed(
        SPEC, draft={"method": "oracle_replay", "k": 12}, points=[{"concurrency": 1, "speedup": 10}]
    )
    run = the_run(tmp_path, case)
    assert run.spec is not None
    (variant,) = run.spec.speculation
    assert acceptance_model(variant.acceptance, 12).mean_acceptance_length(12) == 13


def test_acceptance_is_joined_within_a_source_and_not_across(tmp_path):
    measured = {
        **SPEC,
        "case_id": "other",
        "kind": "acceptance",
        "points": [{"k": 5, "acceptance_length": 3.0}],
    }
    asking = {**SPEC, "points": [{"concurrency": 8, "speedup": 1.6}]}
    run = runs_in(tmp_path, asking, measured)[0]
    assert (run.acceptance_from, run.acceptance_note) == ("joined", "case other, K = 5")
    elsewhere = cases_of(tmp_path, changed(measured, draft={"model": "a", "k": 5}), source="elsewhere")
    (case,) = cases_of(tmp_path, asking)
    (run,) = published_runs_of(case, AcceptanceEvidence.of((case, *elsewhere)))
    assert run.acceptance_from == "prior"
    assert "1 other sources" in run.acceptance_note


def test_a_drafter_of_another_name_is_another_drafter(tmp_path):
    measured = {**SPEC, "case_id": "other", "kind": "acceptance", "points": [{"acceptance_length": 2.4}]}
    asking = changed(SPEC, draft={"model": "mine/head"}, points=[{"concurrency": 8, "speedup": 1.6}])
    run = runs_in(tmp_path, asking, changed(measured, draft={"model": "theirs/head-2"}))[0]
    assert run.skipped == {"spec": "no acceptance published for this method"}


def test_the_length_of_another_k_is_compared_where_it_is_predicted(tmp_path):
    points = [
        {"k": 1, "acceptance_length": 1.7, "survival_by_position": [0.7]},
        {"k": 3, "acceptance_length": 2.4, "survival_by_position": [0.68, 0.44, 0.28]},
    ]
    first, second = runs_in(tmp_path, {**SPEC, "kind": "acceptance", "points": points})
    assert first.published == (PublishedFigure("acceptance_length", "spec", 1.7),)
    assert first.spec is not None
    model = acceptance_model(first.spec.speculation[0].acceptance, 1)
    assert harmonic_mean(*model.mean_acceptance_lengths_by_request(1)) == pytest.approx(1.68)
    assert second.acceptance_from == "joined"


def test_requests_together_show_the_length_that_is_stated():
    for length, at, k in ((2.4, 3, 3), (1.05, 3, 5), (3.97, 3, 3), (1.7, 1, 1), (4.2, 7, 3)):
        model = acceptance_model(entry_of_length(length, at, k, ("sharegpt",)), k)
        assert harmonic_mean(*model.mean_acceptance_lengths_by_request(at)) == pytest.approx(length, rel=1e-9)
        assert model.effects.request_sd == REQUEST_SD["sharegpt"]
    assert acceptance_model(entry_of_length(4, 3, 3, ()), 3).mean_acceptance_length(3) == 4
    assert acceptance_model(entry_of_length(1, 3, 3, ()), 3).mean_acceptance_length(3) == 1


@pytest.mark.parametrize("dataset", ["gsm8k", "sharegpt"])
@pytest.mark.parametrize("drafter", ["eagle3", "ngram"])
def test_requests_differ_as_published_ones_do(drafter, dataset):
    """The tenth and ninetieth percentile of the requests' own lengths, luck of their rounds included."""
    (case,) = (
        candidate for candidate in committed_cases() if candidate.case_id == f"sdb_trace_{dataset}_{drafter}"
    )
    tokens = case.workload.output_len_tokens
    assert isinstance(tokens, dict)
    rng = np.random.default_rng(1)
    for point in case.points:
        k, length, survived = point["k"], point["mean_acceptance_length"], point["survival_by_position"]
        if drafter == "ngram":
            model = acceptance_model(entry_of_lookup(length, k, (dataset,), survived), k)
            effects = rng.normal(0, MATCH_SD[dataset], 20_000)
        else:
            model = acceptance_model(entry_of_length(length, k, k, (dataset,)), k)
            effects = rng.normal(0, REQUEST_SD[dataset], 20_000)
        match = model.match_at(effects).stationary[:, None]
        survival = match * np.cumprod(model.conditional_at(effects, k), axis=1)
        chances = -np.diff(np.column_stack([np.ones(20_000), survival, np.zeros(20_000)]), axis=1)
        rounds = np.rint(tokens["p50"] / (1 + survival.sum(axis=1))).astype(int)
        emitted = rng.multinomial(rounds, chances) @ np.arange(1, k + 2)
        low, high = np.quantile(emitted / rounds, (0.1, 0.9))
        published_low, _, published_high = point["per_request_al_p10_p50_p90"]
        # A tenth of a logit less or more, of a match a fifth, is outside at some K.
        assert math.log(high / low) == pytest.approx(math.log(published_high / published_low), rel=0.17)


def test_a_lookup_gets_the_length_that_is_stated(tmp_path):
    for k, length in ((3, 1.2), (5, 2.6), (3, 3.9), (1, 1.999), (1, 2.0), (7, 1.0)):
        point = {"concurrency": 8, "k": k, "speedup": 1.2, "acceptance_length": length}
        case = changed(
            SPEC, draft={"method": "ngram"}, confidence="derived_from_published_data", points=[point]
        )
        run = the_run(tmp_path, case)
        assert run.spec is not None
        model = acceptance_model(run.spec.speculation[0].acceptance, k)
        assert harmonic_mean(*model.mean_acceptance_lengths_by_request(k)) == pytest.approx(length, abs=0.01)


def test_lengths_have_the_mean_that_was_counted(tmp_path):
    variant = {
        "total_input_tokens": 44_000,
        "total_output_tokens": 30_000,
        "num_requests": 200,
        "output_tok_per_s": 1,
    }
    case = changed(
        PLAIN, workload={"dataset": "ShareGPT", "input_len_tokens": None, "output_len_tokens": None}
    )
    run = the_run(tmp_path, {**case, "points": [{"concurrency": 4, "baseline": variant}]})
    assert run.plain is not None
    assert run.sent == 200
    many = run.plain.workload.model_copy(update={"requests": 40_000})
    requests = generate(many, 0, tmp_path)
    assert requests.prompt_tokens.mean() == pytest.approx(220, rel=0.03)
    assert requests.output_tokens.mean() == pytest.approx(150, rel=0.03)


def test_assumed_lengths_can_be_stretched_and_stated_ones_cannot(tmp_path):
    workload = {"dataset": "gsm8k", "input_len_tokens": 100, "output_len_tokens": None}
    run = the_run(tmp_path, changed(SPEC, workload=workload))
    assert run.assumed_lengths == ("output_tokens",)
    longer = with_assumed_lengths(run, 2)
    assert longer.plain is longer.spec
    assert longer.plain is not None
    assert run.plain is not None
    assert longer.plain.workload.prompt_tokens == run.plain.workload.prompt_tokens
    before = generate(run.plain.workload, 0, tmp_path).output_tokens
    assert generate(longer.plain.workload, 0, tmp_path).output_tokens.mean() == pytest.approx(
        2 * before.mean(), rel=0.01
    )


def test_a_nominal_length_that_was_half_used_is_uniform(tmp_path):
    variant = {"total_input_tokens": 51_000, "num_requests": 100, "output_tok_per_s": 1}
    workload = {"input_len_tokens": {"nominal": 1024}, "output_len_tokens": {"nominal": 128}}
    case = changed(PLAIN, workload=workload, points=[{"concurrency": 4, "baseline": variant}])
    (read,) = cases_of(tmp_path, case)
    lengths = lengths_of(read, read.points[0], None)
    assert lengths.prompt == {"kind": "uniform", "low": 1, "high": 1024}
    assert lengths.output == {"kind": "fixed", "tokens": 128}
