"""Which ranks are the continuation, and whether a tree that grows keeps more than a fixed one of its size."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from calibration.sampling.decode import Decoded, Round, speculative_decode
from calibration.sampling.tree_statistics import paired_difference, rank_chances
from simulator.trees import EAGLE1, DraftTree, GrowthRule, mean_acceptance_length, optimal_tree
from tests.token_tables import TableDrafter, TableTarget, random_table

TARGET = random_table(12, 1, 2.0)
DRAFT = TARGET + random_table(12, 2, 1.2)


def decoded(plan: DraftTree | GrowthRule, requests: int = 40) -> list[Decoded]:
    """Requests with greedy drafts at temperature 1."""
    return [
        speculative_decode(
            TableTarget(TARGET), TableDrafter(DRAFT, plan), torch.tensor([seed % 12, seed // 12]), 8, 1.0,
            draft_sampling="greedy", max_tokens=60, seed=seed,
        )
        for seed in range(requests)
    ]  # fmt: skip


def pooled(requests: list[Decoded]) -> float:
    """Tokens ÷ rounds of all requests."""
    rounds = [draft_round for request in requests for draft_round in request.rounds]
    return 1.0 + sum(draft_round.accepted for draft_round in rounds) / len(rounds)


def a_round(*ranks: int, path: tuple[int, ...]) -> Round:
    return Round(1, 2, 4, path, ranks, ())


def test_ranks_count_where_they_were_tried() -> None:
    tree = DraftTree((-1, 0, 0, 1, 1, 2))  # children of the root, two of the first, one of the second
    rounds = [
        a_round(0, 1, path=(0, 3)),
        a_round(0, 0, path=(0, 2)),
        a_round(0, path=(0,)),
        a_round(1, 0, path=(1, 4)),
        a_round(path=()),
    ]
    expected = [[3 / 5, 1 / 5], [2 / 4, 1 / 3]]
    assert rank_chances(tree, rounds) == pytest.approx(np.array(expected))
    assert rank_chances(tree, rounds[4:]).sum() == 0.0


def test_trees_chosen_by_what_was_measured_keep_more() -> None:
    fixed = decoded(EAGLE1)
    chances = rank_chances(EAGLE1, [draft_round for request in fixed for draft_round in request.rounds])
    lengths = [request.mean_acceptance_length for request in fixed]
    error = np.std(lengths) / np.sqrt(len(lengths))
    assert abs(mean_acceptance_length(EAGLE1, chances) - np.mean(lengths)) < 3 * error
    best = optimal_tree(chances, EAGLE1.nodes, 5)
    assert mean_acceptance_length(best, chances) > mean_acceptance_length(EAGLE1, chances)
    grown = decoded(GrowthRule.eagle2(8, 10, EAGLE1.nodes))
    gain = paired_difference(grown, fixed)
    assert gain is not None
    assert gain.ci95 is not None
    assert gain.ci95[0] > 0.0
    assert gain.value == pytest.approx(pooled(grown) - pooled(fixed))


def test_what_requests_have_in_common_cancels() -> None:
    """Two ways that differ by one token in every round of every request, however unlike the requests are."""
    rounds = [
        [Round(1, 4, 4, tuple(range(n)), (0,) * n, ()) for n in own] for own in ([0, 1], [3, 3], [2, 0])
    ]
    longer = [
        [Round(1, 4, 4, (*draft_round.path, 9), (*draft_round.ranks, 0), ()) for draft_round in own]
        for own in rounds
    ]
    ways = [[Decoded((1,), tuple(own), "length") for own in way] for way in (longer, rounds)]
    gain = paired_difference(*ways)
    assert gain is not None
    assert gain.value == pytest.approx(1.0)
    assert gain.half_width == pytest.approx(0.0, abs=1e-12)


def test_requests_without_drafts_have_no_difference() -> None:
    empty = Decoded((1,), (), "length")
    assert paired_difference([empty], [empty]) is None
