"""A static tree through the step: nodes, depth and passes are three numbers, and each one counts where it
should. Every figure is worked out on paper.

A target pass takes 1000 + 10 N ns (N rows), the accept stage 1 ns per logit row, a drafter pass 100 + rows
ns, and the host nothing (`tests/unit/test_oracle_by_hand.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from simulator.costs.prices import query_knots
from simulator.speculation.shape import Chain, DraftShape
from simulator.step.state import State
from tests import step_harness as harness
from tests.unit.test_oracle_by_hand import engine, prices, request

Record = dict[str, Any]
NODES, DEPTH = 6, 3


@dataclass(frozen=True)
class StaticTree(Chain):
    """Six nodes on levels of three, two and one; each pass extends all nodes of the level before."""

    levels: tuple[int, ...] = (3, 2, 1)

    def depth(self, nodes: int) -> int:
        """Levels that `nodes` nodes fill."""
        return int((np.cumsum(self.levels) <= nodes).sum())

    def pass_rows(self, nodes: int) -> tuple[int, ...]:
        """The step's own tokens, then every level that has children."""
        return (0, *self.levels[:-1])


def run(
    requests: list[Record],
    shape: DraftShape | None = None,
    nodes: int = NODES,
    accepts: float = 1.0,
    changed_prices: Record | None = None,
    **changes: Any,
) -> State:
    """A run on the engine of the hand-made timelines; every draft is accepted with probability `accepts`."""
    settings = engine(
        nodes,
        serial_passes="draft_length",
        drafter_has_kv=True,
        shape=shape or StaticTree(),
        lookahead_tokens=18,  # 2 · max(levels · widest, nodes + 1)
        **changes,
    )
    positions = [[accepts] * max(settings["shape"].depth(nodes), 1)]
    acceptance = {"kind": "table", "conditional": positions, "drafts": [True]}
    acceptance |= {"match_after_miss": [0.0], "match_after_match": [0.0]}
    tables = {"target_comm": [0.0] * 65, **prices(), **(changed_prices or {})}
    return harness.run_fast(
        {"engine": settings, "prices": tables, "requests": requests, "acceptance": acceptance, "seed": 1}
    )


def check(record: Any, **expected: int) -> None:
    assert {name: int(record[name]) for name in expected} == expected


def test_rows_follow_the_nodes_and_emissions_the_depth() -> None:
    state = run([request(prompt=5, output=9)])
    # Prompt: 1050 + 1 + passes of 5, 3 and 2 rows = 310. Then twice 1070 + 7 + passes of 7, 3 and 2 rows.
    first, second, third = 1361, 1361 + 1389, 1361 + 2 * 1389
    check(state.requests[0], first_ns=first, last_ns=third, max_itl_ns=second - first, emitted=9)
    check(state.requests[0], drafted=12, accepted=6, draft_rounds=2, decode_rounds=2)
    totals = state.totals[0]
    check(totals, verify_ns=1050 + 2 * 1070, accept_ns=1 + 2 * 7, draft_ns=310 + 2 * 312)
    check(totals, query_tokens=5 + 7 + 7, rejected_rows=2 * (NODES - DEPTH), full_steps=2)
    assert state.accepted_at.tolist() == [[0, 0, 0, 2]]  # one column for each depth
    assert state.drafted_at.tolist() == [[0, 0, 0, 0, 0, 0, 2]]  # one for each number of nodes


def test_kv_slots_follow_the_nodes() -> None:
    """The last step holds 5 + 5 − 1 computed tokens, 7 rows and 18 slots ahead: 34 tokens in blocks of 4."""
    state = run([request(prompt=5, output=9)])
    check(state.totals[0], peak_blocks=9)
    check(state.engine[0], free_blocks=100)


def test_each_pass_has_its_rows_of_every_request() -> None:
    state = run([request(prompt=5, output=5), request(prompt=3, output=5)])
    # Prompts: 1080 + 2 + passes of 8, 6 and 4 rows = 318. Then 1140 + 14 + passes of 14, 6 and 4 rows = 324
    for record in state.requests:
        check(record, first_ns=1400, last_ns=1400 + 1140 + 14 + 324, emitted=5)


def test_a_cut_takes_the_deepest_nodes_and_a_level_that_is_not_whole_does_not_count() -> None:
    """Four of six nodes fit into five tokens: three of level 1, one of level 2. So one draft is accepted."""
    state = run([request(prompt=5, output=3)], max_num_batched_tokens=5)
    check(state.requests[0], first_ns=1361, last_ns=1361 + 1050 + 5 + 310, emitted=3, drafted=4, accepted=1)
    check(state.totals[0], cut_drafts=2, rejected_rows=3, full_steps=0)


def test_a_tree_of_one_branch_is_a_chain() -> None:
    requests = [request(prompt=5, output=30), request(prompt=9, output=25, arrival=1500)]
    tree = harness.outcome(run(requests, StaticTree(levels=(1, 1, 1)), 3, accepts=0.6))
    assert tree == harness.outcome(run(requests, Chain(), 3, accepts=0.6))
    assert tree != harness.outcome(run(requests, StaticTree(levels=(2, 1)), 3, accepts=0.6))


def test_attention_is_linear_between_knots_of_query_tokens() -> None:
    """27 rows lie three eighths of the way from the plane of 24 to the plane of 32."""
    knots = query_knots(27).tolist()
    plane = {query: [[float(query)] * 2] * 2 for query in knots} | {24: [[2400.0] * 2] * 2}
    attention = {"query_knots": knots, "attention": [*({**plane, 32: [[4000.0] * 2] * 2}).values()]}
    attention["draft_attention"] = [[[0.0] * 2] * 2 for _ in knots]
    tree = StaticTree(levels=(20, 5, 1))
    state = run([request(prompt=5, output=2)], tree, nodes=26, changed_prices=attention)
    check(state.totals[0], verify_ns=1050 + 1000 + 270 + 3000)


@pytest.mark.parametrize(
    ("most", "expected"),
    [(1, [1]), (9, [*range(1, 10)]), (17, [*range(1, 18)]), (18, [*range(1, 18), 24])],
)
def test_every_length_of_a_chain_is_a_knot(most: int, expected: list[int]) -> None:
    assert query_knots(most).tolist() == expected


def test_a_tree_of_64_nodes_has_few_planes() -> None:
    assert query_knots(65).tolist() == [*range(1, 18), 24, 32, 48, 64, 96]
