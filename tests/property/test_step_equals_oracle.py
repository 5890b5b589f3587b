"""The step, in both modes, against the oracle that was written
without sight of it: equal, to the nanosecond.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests import step_harness as harness
from tests.balance import check_memory_is_given_back
from tests.oracle import run_oracle
from tests.scenarios import SEEDS, UNLIMITED, scenario

LEAST = 5
"""Each rare branch must occur at least so often over all scenarios, or equality says little about it."""
RARE = (
    "preemptions cut_drafts eager_steps trimmed_tokens ghost_rows mixed_steps full_steps piecewise_steps "
    "timed_out cancelled rejected asynchronous synchronous prefill_apart ragged reserving front_end "
    "own_draft_lengths prefix_hit_tokens named_blocks own_blocks lost_match padded every_length "
    "end_of_context"
).split()
GROUPS = 8


def expected(case: dict[str, Any]) -> dict[str, Any]:
    """What the oracle says, in the harness's terms."""
    oracle_record = run_oracle(
        case["engine"], case["prices"], case["requests"], case["acceptance"], harness.random_key(case["seed"])
    )
    names = (*harness.REQUEST_FIELDS, "status")
    return {
        "requests": [{name: request[name] for name in names} for request in oracle_record["requests"]],
        "counters": {name: int(oracle_record["counters"].get(name, 0)) for name in harness.COUNTERS},
    }


@pytest.mark.parametrize("group", range(GROUPS))
def test_both_modes_equal_the_oracle(group: int) -> None:
    seeds = [seed for seed in SEEDS if seed % GROUPS == group]
    assert len(seeds) * GROUPS >= 200
    for seed in seeds:
        case = scenario(seed)
        truth = expected(case)
        assert harness.outcome(harness.run_fast(case)) == truth, f"one leap, scenario {seed}"
        assert harness.outcome(harness.run_leaping(case)) == truth, f"many leaps, scenario {seed}"
        assert harness.outcome(harness.run_pipeline(case)) == truth, f"stage by stage, scenario {seed}"


def test_every_rare_branch_occurs() -> None:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        case = scenario(seed)
        state = harness.run_fast(case)
        outcome = harness.outcome(state)
        seen.update({name: 1 for name in harness.COUNTERS if outcome["counters"][name] > 0})
        seen.update({request["status"] for request in outcome["requests"]})
        engine = case["engine"]
        seen["asynchronous" if engine["asynchronous"] else "synchronous"] += 1
        seen["prefill_apart"] += not engine["mixes_prefill"]
        seen["ragged"] += engine["ragged"]
        longest = max(engine["draft_length_by_batch"])
        seen["own_draft_lengths"] += any(r.get("draft_length", longest) < longest for r in case["requests"])
        free = dict.fromkeys(("request_latency_ns", "request_ns", "prompt_token_ns"), 0)
        without: dict[str, dict[str, Any]] = {
            "reserving": {"reserved_output": 0.0},
            "front_end": {"host": {**engine["host"], **free}},
            "lost_match": {"loses_last_match": False},
            "padded": {"padded_drafts": 0},
            "every_length": {"graphs_of_every_length": False},
            "end_of_context": {"max_context_tokens": UNLIMITED},
        }
        if engine["prefix_block_tokens"]:
            without["named_blocks"] = {"prefix_caching": False}
        else:
            without["own_blocks"] = {"prefix_caching": False}
        for name, settings in without.items():
            other = harness.run_fast({**case, "engine": {**engine, **settings}})
            seen[name] += harness.outcome(other) != outcome
    assert {name: seen[name] for name in RARE if seen[name] < LEAST} == {}
    assert seen["unfinished"] == 0


def test_the_books_balance() -> None:
    """Identities of the metrics' definitions, and memory given back, over all scenarios."""
    for seed in SEEDS:
        case = scenario(seed)
        state = harness.run_fast(case)
        requests, totals, engine = state.requests, state.totals[0], state.engine[0]
        samples = (
            requests["decode_rounds"].sum() + (requests["preemptions"] + (requests["first_ns"] >= 0)).sum()
        )
        surplus = requests["emitted"].sum() - requests["accepted"].sum() + totals["trimmed_tokens"]
        assert surplus <= samples, "emitted = sampling request-steps + accepted − trimmed"
        assert surplus >= requests["decode_rounds"].sum()
        check_memory_is_given_back(state)
        assert engine["reserved_blocks"] == 0
        assert totals["peak_blocks"] <= case["engine"]["total_blocks"]
        done = requests["status"] == 2
        assert (requests["arrival_ns"][done] <= requests["admitted_ns"][done]).all()
        assert (requests["admitted_ns"][done] <= requests["first_ns"][done]).all()
        assert (requests["first_ns"][done] <= requests["last_ns"][done]).all()
        assert engine["in_system"] == 0
        assert engine["waiting_count"] == engine["running_count"] == 0


def test_rounds_and_gaps_are_those_of_measured_requests() -> None:
    """Rounds and tokens of a window are those of its requests, and two windows make up the whole run."""
    histograms = ("accepted_at", "drafted_at", "itl_histogram", "itl_token_histogram")
    for seed in SEEDS[::8]:
        case = scenario(seed)
        count = len(case["requests"])
        windows = [(0, count // 2), (count // 2, count)]
        first, second = (harness.run_fast(case, window) for window in windows)
        for state, window in zip((first, second), windows, strict=True):
            requests = state.requests[slice(*window)]
            assert state.accepted_at.sum() == state.drafted_at.sum() == requests["decode_rounds"].sum()
            assert (state.accepted_at @ np.arange(state.accepted_at.shape[1])).sum() == requests[
                "accepted"
            ].sum()
            assert (state.drafted_at @ np.arange(state.drafted_at.shape[1])).sum() == requests[
                "drafted"
            ].sum()
        both = harness.run_fast(case)
        for name in histograms:
            assert (getattr(first, name) + getattr(second, name) == getattr(both, name)).all(), (seed, name)
