"""Trees of drafts: what nodes see, how trees grow, and that the best trees are the best of all trees."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.breakeven.theory import tokens_per_verify
from simulator.errors import InputError
from simulator.trees import (
    EAGLE1,
    DraftTree,
    Growth,
    GrowthRule,
    StaticGrowth,
    best_first_tree,
    growth_of,
    mean_acceptance_length,
    optimal_tree,
)
from tests.trees import longest_accepted_path

TREES = st.integers(1, 24).flatmap(
    lambda nodes: st.tuples(st.just(-1), *(st.integers(0, node - 1) for node in range(1, nodes)))
)


def ancestors(parents: tuple[int, ...], node: int) -> set[int]:
    """A node and all above it, by walking up."""
    return {node} | (ancestors(parents, parents[node]) if node else set())


@given(TREES)
def test_nodes_see_their_ancestors_and_stand_at_their_depth(parents: tuple[int, ...]) -> None:
    tree = DraftTree(parents)
    for node in range(tree.nodes):
        seen = ancestors(parents, node)
        assert set(np.flatnonzero(tree.mask[node])) == seen
        assert tree.position_ids(100)[node] == 100 + len(seen) - 1
        assert tree.path(node) == sorted(seen - {0})
        assert [tree.ranks[child] for child in tree.children(node)] == list(range(len(tree.children(node))))
    assert DraftTree((-1, *(tree.draft_parents + 1))) == tree


@pytest.mark.parametrize("parents", [(), (0,), (-1, 1), (-1, -1), (-1, 0, 3)])
def test_what_is_no_tree_is_refused(parents: tuple[int, ...]) -> None:
    with pytest.raises(InputError):
        DraftTree(parents)


@pytest.mark.parametrize("choices", [[(0, 0)], [(1,)], [(0,), (0, 1)]])
def test_choices_need_parents_and_elder_siblings(choices: list[tuple[int, ...]]) -> None:
    with pytest.raises(InputError, match="lacks"):
        DraftTree.from_choices(choices)


def test_the_static_tree_of_eagle_1() -> None:
    assert (EAGLE1.nodes, EAGLE1.depth) == (26, 5)
    assert np.bincount(EAGLE1.depths).tolist() == [1, 4, 8, 8, 3, 2]


def test_a_chain_is_a_tree_with_one_child_per_node() -> None:
    assert mean_acceptance_length(DraftTree.chain(5), [0.7]) == pytest.approx(tokens_per_verify(0.7, 5))


def test_expected_length_is_the_mean_over_accepted_paths() -> None:
    tree, chances = EAGLE1, np.array([[0.5, 0.2, 0.1, 0.05], [0.4, 0.2, 0.1, 0.1], [0.6, 0.1, 0.1, 0.0]])
    rng, rounds = np.random.default_rng(1), 20_000
    lengths = np.empty(rounds)
    for index in range(rounds):
        # The target's continuation is the child of a drawn rank, or none of them.
        ranks = [int(np.searchsorted(np.cumsum(row), rng.random(), side="right")) for row in chances]
        accepted = [
            depth <= len(ranks) and rank == ranks[depth - 1]
            for depth, rank in zip(tree.depths.tolist(), tree.ranks.tolist(), strict=True)
        ]
        lengths[index] = 1 + len(longest_accepted_path(tree, accepted))
    error = lengths.std() / np.sqrt(rounds)
    assert abs(lengths.mean() - mean_acceptance_length(tree, chances)) < 4 * error


def all_trees(nodes: int, depth: int) -> Iterator[DraftTree]:
    """Every tree with this many nodes and at most this many levels."""
    for parents in itertools.product(*(range(node) for node in range(1, nodes))):
        tree = DraftTree((-1, *parents))
        if tree.depth <= depth:
            yield tree


@pytest.mark.parametrize(("nodes", "depth"), [(2, 1), (5, 2), (7, 3), (7, 6)])
@pytest.mark.parametrize("falling", [True, False])
@pytest.mark.parametrize("by_depth", [True, False])
def test_optimal_trees_are_the_best_of_all(nodes: int, depth: int, falling: bool, by_depth: bool) -> None:
    rng = np.random.default_rng(nodes * 10 + depth)
    for _ in range(5):
        chances = rng.dirichlet(np.ones(4), size=depth if by_depth else None)[..., :3]
        chances = -np.sort(-chances) if falling else np.sort(chances)
        best = max(mean_acceptance_length(tree, chances) for tree in all_trees(nodes, depth))
        result = optimal_tree(chances, nodes, depth)
        assert result.nodes <= nodes
        assert result.depth <= depth
        assert mean_acceptance_length(result, chances) == pytest.approx(best, rel=1e-12)
        greedy = mean_acceptance_length(best_first_tree(chances, nodes, depth), chances)
        assert greedy == pytest.approx(best, rel=1e-12) if falling else greedy <= best + 1e-12


def test_taking_the_best_in_reach_misses_a_better_child_behind_a_worse_one() -> None:
    chances = [[0.3, 0.6], [0.4, 0.0]]
    assert mean_acceptance_length(best_first_tree(chances, 3, 2), chances) == pytest.approx(1.9)
    chances = [[0.3, 0.2], [0.1, 0.9]]
    greedy, best = best_first_tree(chances, 4, 2), optimal_tree(chances, 4, 2)
    assert mean_acceptance_length(greedy, chances) < mean_acceptance_length(best, chances)


@pytest.mark.parametrize(
    ("field", "rule"),
    [
        ("depth", lambda: GrowthRule.eagle2(depth=0)),
        ("children", lambda: GrowthRule.eagle2(top_k=0)),
        ("nodes", lambda: GrowthRule.nucleus(3, 0.5, 2, 0)),
        ("top_p", lambda: GrowthRule.nucleus(3, 0.0, 2, 9)),
        ("per_level", lambda: GrowthRule(3, 2, 9, per_level=0)),
        ("depth", lambda: best_first_tree([0.5], 4, 0)),
        ("nodes", lambda: optimal_tree([0.5], 0, 3)),
    ],
)
def test_rules_that_mean_nothing_are_refused(field: str, rule: Callable[[], object]) -> None:
    with pytest.raises(InputError, match=field):
        rule()


def test_chances_above_one_are_refused() -> None:
    with pytest.raises(InputError, match="probabilities"):
        optimal_tree([0.8, 0.7], 4, 2)


def drafter(path: tuple[int, ...], vocabulary: int = 6) -> np.ndarray:
    """A law for the token after a path of tokens, another after every path."""
    return np.random.default_rng((7, *path)).dirichlet(np.full(vocabulary, 0.5))


def path_of(growth: Growth | StaticGrowth, node: int) -> tuple[int, ...]:
    """Tokens from the root down to an added node."""
    return tuple(growth.tokens[index] for index in growth.path(node)[1:])


def grown(growth: Growth | StaticGrowth, width: int) -> tuple[DraftTree, list[tuple[int, ...]]]:
    """Grow a tree from `drafter`; also the token path of each node."""
    while len(growth.frontier):
        distributions = np.array([drafter(path_of(growth, node)) for node in growth.frontier.tolist()])
        tokens = np.argsort(-distributions, axis=1)[:, :width]
        growth.add(np.take_along_axis(distributions, tokens, 1), tokens)
    tree, nodes = growth.finish()
    return tree, [path_of(growth, node) for node in nodes.tolist()]


def product(path: tuple[int, ...]) -> float:
    """Probability that the drafter gives a path."""
    return float(np.prod([drafter(path[:at])[token] for at, token in enumerate(path)]))


def test_an_eagle_2_tree_holds_the_best_paths_among_those_seen() -> None:
    depth, top_k, nodes = 4, 3, 12
    tree, paths = grown(Growth(GrowthRule.eagle2(depth, top_k, nodes)), top_k)
    level: list[tuple[int, ...]] = [()]
    seen: list[tuple[int, ...]] = []
    for _ in range(depth):
        children = [(*path, int(token)) for path in level for token in np.argsort(-drafter(path))[:top_k]]
        seen += children
        level = sorted(children, key=product, reverse=True)[:top_k]
    assert set(paths[1:]) == set(sorted(seen, key=product, reverse=True)[: nodes - 1])
    assert tree.nodes == nodes
    assert [len(path) for path in paths] == tree.depths.tolist()
    assert all(paths[parent] == path[:-1] for parent, path in zip(tree.parents[1:], paths[1:], strict=True))


def test_nucleus_branching_is_wide_where_the_drafter_is_unsure() -> None:
    tree, paths = grown(Growth(GrowthRule.nucleus(3, 0.6, 6, 1000)), 6)
    for node, path in enumerate(paths):
        ordered = -np.sort(-drafter(path))
        needed = int(np.searchsorted(np.cumsum(ordered), 0.6) + 1)
        assert len(tree.children(node)) == (needed if len(path) < 3 else 0)


def test_a_beam_keeps_three_paths_of_each_depth() -> None:
    tree, paths = grown(Growth(GrowthRule.beam(4)), 3)
    assert np.bincount(tree.depths).tolist() == [1, 3, 3, 3, 3]
    level: list[tuple[int, ...]] = [()]
    for depth in range(1, 5):
        children = [(*path, token) for path in level for token in range(6)]
        level = sorted(children, key=product, reverse=True)[:3]
        assert set(level) == {path for path in paths if len(path) == depth}


def test_a_plan_is_cut_to_a_depth() -> None:
    assert EAGLE1.cut(2).parents == EAGLE1.parents[:13]
    assert EAGLE1.cut(9) == EAGLE1
    assert growth_of(EAGLE1, 0).finish()[0].nodes == 1
    assert growth_of(GrowthRule.beam(4), 0).finish()[0].nodes == 1


def test_a_static_tree_is_filled_by_rank() -> None:
    tree, paths = grown(StaticGrowth(EAGLE1), 4)
    assert tree == EAGLE1
    for node, parent in enumerate(tree.parents[1:], start=1):
        ordered = np.argsort(-drafter(paths[parent]))
        assert paths[node] == (*paths[parent], int(ordered[tree.ranks[node]]))


@settings(max_examples=40)
@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 40), st.floats(0.05, 1.0))
def test_a_grown_tree_hangs_together_within_its_limits(
    depth: int, width: int, nodes: int, top_p: float
) -> None:
    for rule in (GrowthRule.eagle2(9, width, nodes), GrowthRule.nucleus(9, top_p, width, nodes)):
        tree, paths = grown(growth_of(rule, depth), width)
        assert tree.nodes <= nodes
        assert tree.depth <= depth
        assert len(set(paths)) == tree.nodes
