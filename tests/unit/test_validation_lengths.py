"""Lengths of a run have the mean that was published; a lookup drafts in the rounds that find something."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibration.validation.predict import Question, predict, with_means
from calibration.validation.row import question_of
from calibration.validation.shape import CurvePoint
from calibration.validation.trials.cases import Traffic
from calibration.validation.trials.trials import trials_of_cases
from simulator.acceptance import Gated
from simulator.replications import make_traffic
from tests.validation_trials import case, scenario, trial

CHAT = {"kind": "lognormal", "median": 150.0, "p95": 700.0, "max": 2000}


def test_drawn_lengths_are_stretched_to_the_mean_and_stay_in_their_range() -> None:
    chat = scenario(8, workload={**scenario(8).workload.model_dump(), "output_tokens": CHAT})
    drawn = make_traffic(chat, 0)
    found = with_means(drawn, {"output_tokens": 240.0})
    assert float(found.output_tokens.mean()) == pytest.approx(240, rel=0.01)
    assert 1 <= found.output_tokens.min() <= found.output_tokens.max() <= drawn.output_tokens.max()
    assert (np.argsort(found.output_tokens, kind="stable")[-1]) == np.argmax(drawn.output_tokens)
    assert found.prompt_tokens is drawn.prompt_tokens
    means = {"output_tokens": 240.0}
    tokens = [predict(Question(chat, None, sent=60, mean_tokens=one)).figures["plain"] for one in (means, {})]
    assert tokens[0] != tokens[1]


def test_only_published_means_are_held() -> None:
    said = Traffic(dataset="sharegpt", input_len_tokens={"mean": 342.0})
    about = case([{"concurrency": 4, "baseline": {"output_tok_per_s": 100.0}}], workload=said)
    [found] = trials_of_cases([about])
    assert found.mean_tokens == {"prompt_tokens": pytest.approx(342.0)}
    assert question_of(found).mean_tokens == found.mean_tokens
    assert question_of(replace(found, published=())).mean_tokens == found.mean_tokens


def test_a_lookup_drafts_only_where_it_finds_something() -> None:
    entry = {"model": "gated", "match": 0.3, "first": 0.5, "run": 0.7}
    arm = {"name": "spec", "method": "ngram", "draft_length": 3, "acceptance": entry}
    looked_up = scenario(8, speculation=[arm])
    point = CurvePoint(question_of(trial([], looked_up)), None)
    for alpha, match in ((0.1, 0.3), (0.3, 0.3), (0.6, 0.6), (1.0, 1.0)):
        model = point.with_alpha(alpha)
        assert isinstance(model, Gated)
        assert model.match_probability == pytest.approx(match)
        assert model.match_probability * model.first == pytest.approx(alpha)
