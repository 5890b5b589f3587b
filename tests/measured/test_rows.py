"""Rows by hand, intervals that cover, effects that are there found and others not."""

import math
import random
from typing import Any

import pytest

from calibration.acceptance.effects import effects_of
from calibration.acceptance.report import rows_json
from calibration.acceptance.rows import ratio, row_of
from calibration.acceptance.samples import DecodingSetting, Level, RequestSample, sample_from_json
from simulator.acceptance import Geometric, Hierarchical
from tests.measured.synthetic import synthetic_samples

SETTING = DecodingSetting(1.0, 3, "sampled")


def sample(
    drafted: tuple[int, ...], accepted: tuple[int, ...], levels: tuple[Level, ...], **named: Any
) -> RequestSample:
    fields = {"draft": "d", "domain": "code", "prompt": "p", "prompt_tokens": 48, "nodes": drafted} | named
    return RequestSample(
        setting=SETTING, max_tokens=64, drafted=drafted, accepted=accepted, levels=levels, **fields
    )


FIRST = sample(
    (3, 3, 0), (3, 1, 0), (Level(2, 2, 2, 1.5, 0.3), Level(2, 1, 1, 1.1, 0.4), Level(1, 1, 0, 0.2, 0.1))
)
SECOND = sample(
    (3, 3), (0, 2), (Level(2, 1, 1, 0.9, 0.4), Level(1, 1, 1, 0.6, 0.2), Level(1, 0, 0, 0.3, 0.2)), prompt="q"
)


def test_a_row_by_hand() -> None:
    row = row_of([FIRST, SECOND])
    assert (row.requests, row.rounds, row.drafted_levels, row.coverage) == (2, 5, 12, 4 / 5)
    assert row.tokens_per_round.value == (6 + 5) / 5
    assert row.mean_acceptance_length is not None
    assert row.mean_acceptance_length.value == 1 + 6 / 4  # of rounds with a draft, as engines count
    assert [estimate.value for estimate in row.acceptance_rate_at] == [3 / 4, 2 / 4, 1 / 4]
    assert [estimate and estimate.value for estimate in row.conditional] == [3 / 4, 2 / 3, 1 / 2]
    assert row.alpha_from_counts is not None
    assert row.alpha_from_counts.value == 5 / 9  # first candidates alone
    assert row.alpha_from_distributions is not None
    assert row.alpha_from_distributions.value == pytest.approx(4.6 / 9)
    assert row.agreement == pytest.approx((5 - 4.6) / math.sqrt(1.6))
    assert row.gate is not None
    assert (row.gate.match_probability, row.gate.first) == (4 / 5, 3 / 4)
    assert row_of([SECOND]).gate is None  # it drafted in every round


def test_nodes_of_trees_are_counted_beside_levels() -> None:
    row = row_of([sample(FIRST.drafted, FIRST.accepted, FIRST.levels, nodes=(7, 5, 0))])
    assert (row.drafted_levels, row.drafted_tokens) == (6, 12)


def test_a_row_of_rounds_without_drafts_has_no_acceptance() -> None:
    row = row_of([sample((0, 0), (0, 0), ())])
    assert row.tokens_per_round.value == 1.0
    assert (row.mean_acceptance_length, row.acceptance_rate_at, row.coverage) == (None, (), 0.0)
    assert row.alpha_from_counts is None
    document = row.to_json()
    assert document["mean_acceptance_length"] is None
    assert document["gated"] == {"match": 0.0, "stickiness": 0.0, "first": 0.0, "run": 0.0}


def test_rows_are_apart_by_drafter_domain_and_setting() -> None:
    others = [
        sample(FIRST.drafted, FIRST.accepted, FIRST.levels, domain="prose"),
        sample(FIRST.drafted, FIRST.accepted, FIRST.levels, draft="e"),
    ]
    rows = rows_json([FIRST, *others, SECOND])
    result = [(row["draft"], row["domain"], row["requests"]) for row in rows]
    assert result == [("d", "code", 2), ("d", "prose", 1), ("e", "code", 1)]
    assert rows[1]["mean_acceptance_length"]["ci95"] is None  # one request says nothing of others


def test_samples_survive_their_json() -> None:
    assert sample_from_json(FIRST.to_json()) == FIRST
    assert FIRST.positions == (1, 5, 7)


def test_the_interval_of_a_ratio_covers_as_often_as_it_says() -> None:
    """Requests differ, so that counting their rounds as independent would cover far less."""
    rng = random.Random(0)
    covered, runs = 0, 400
    for _ in range(runs):
        requests = []
        for _ in range(20):
            level, rounds = rng.choice([0.3, 0.9]), rng.randint(10, 30)
            requests.append((sum(rng.random() < level for _ in range(rounds)), rounds))
        result = ratio([pair[0] for pair in requests], [pair[1] for pair in requests])
        assert result is not None
        assert result.ci95 is not None
        covered += result.ci95[0] <= 0.6 <= result.ci95[1]
    assert abs(covered / runs - 0.95) < 4 * math.sqrt(0.95 * 0.05 / runs)


def test_no_effect_is_found_where_there_is_none() -> None:
    effects = effects_of(synthetic_samples(Geometric(0.7), (5,), requests=300, tokens=64))
    assert effects.between_requests_sd is not None
    assert effects.between_requests_sd < 0.2  # of a spread of 1.9 from round to round
    assert effects.late_minus_early is not None
    assert effects.late_minus_early.ci95 is not None
    assert effects.late_minus_early.ci95[0] < 0.0 < effects.late_minus_early.ci95[1]
    assert effects.neighbours is not None
    assert abs(effects.neighbours.value) < 0.06
    assert list(effects.by_prompt_tokens) == ["48", "96", "192"]


def test_effects_that_are_there_are_found() -> None:
    apart = effects_of(synthetic_samples(Hierarchical(0.8, 0.0, 1.0), (5,), requests=300, tokens=64))
    assert apart.between_requests_sd is not None
    assert apart.between_requests_sd > 0.7
    drifting = effects_of(
        synthetic_samples(Hierarchical(0.5, 0.0, 0.0, 1.5, 0.97), (4,), requests=300, tokens=200)
    )
    assert drifting.neighbours is not None
    assert drifting.neighbours.ci95 is not None
    assert drifting.neighbours.ci95[0] > 0.05


def test_requests_that_change_on_the_way_are_noticed() -> None:
    rising = [sample((3,) * 12, (0,) * 6 + (1, 2) * 3, (), prompt=str(n)) for n in range(30)]
    halves = [(sample.accepted, sample.positions) for sample in rising]
    early = [a for accepted, at in halves for a, place in zip(accepted, at, strict=True) if place < 32]
    assert len(early) == 30 * 12  # all start before the middle of 64 tokens: no late half
    assert effects_of(rising).late_minus_early is None
    longer = [sample((3,) * 30, (0,) * 25 + (3,) * 5 + (2, 3) * 2, (), prompt=str(n)) for n in range(30)]
    result = effects_of(
        [
            sample((3,) * 34, longer_sample.accepted, (), prompt=longer_sample.prompt)
            for longer_sample in longer
        ]
    ).late_minus_early
    assert result is not None
    assert result.value > 2.0


def test_prompts_of_any_length_are_grouped_in_quarters() -> None:
    samples = [sample((3,) * 5, (1,) * 5, (), prompt=str(n), prompt_tokens=10 + n) for n in range(40)]
    assert list(effects_of(samples).by_prompt_tokens) == ["10-19", "20-29", "30-39", "40-49"]
