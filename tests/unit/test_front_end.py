"""The front end: an event loop that takes turns, then a tokenizer; when requests join the engine's queue."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests import step_harness as harness
from tests.scenarios import scenario

Ints = NDArray[np.int64]
MICROSECOND_NS = 1_000


def joined_ns(host: dict[str, Any], arrivals_ns: Ints, prompts: list[int] | None = None) -> Ints:
    """When the tokenizer is done with each request, on an engine that decodes plainly."""
    case = next(
        candidate
        for candidate in map(scenario, range(100))
        if max(candidate["engine"]["draft_length_by_batch"]) == 0
    )
    prompts = prompts or [8] * len(arrivals_ns)
    like = {"output_tokens": 1, "cancel_after_tokens": 0, "traffic_class": 0, "prefix_ids": []}
    requests = [
        {**like, "arrival_ns": int(at), "prompt_tokens": prompt}
        for at, prompt in zip(arrivals_ns, prompts, strict=True)
    ]
    free = {"request_latency_ns": 0, "request_ns": 0, "prompt_token_ns": 0.0}
    roomy = {"total_blocks": 10**6, "chunked_prefill": True, "timeout_ns": None}
    engine = {**case["engine"], **roomy, "host": {**case["engine"]["host"], **free, **host}}
    state = harness.run_fast({**case, "engine": engine, "requests": requests})
    joined: Ints = state.requests["front_end_ns"].copy()
    assert (state.requests["admitted_ns"] >= joined).all()
    return joined


def test_those_sent_at_once_join_when_all_are_parsed() -> None:
    """A thousand requests wait a thousand times the work of one: nobody is served in the meantime."""
    host = {"request_latency_ns": 700, "request_ns": 2_000_000}
    assert set(joined_ns(host, np.zeros(1000, np.int64))) == {700 + 2_000_000_000}


def test_prompts_are_tokenized_one_after_another() -> None:
    host = {"request_latency_ns": 50, "request_ns": 100, "prompt_token_ns": 2.5}
    result = joined_ns(host, np.zeros(3, np.int64), [10, 21, 4])
    assert result.tolist() == [350 + 25, 350 + 25 + 53, 350 + 25 + 53 + 10]


def test_whoever_comes_later_takes_a_share() -> None:
    """Alone from 0 to 60; then both, until the first has had its 100 at 140; the second alone until 200."""
    assert joined_ns({"request_ns": 100}, np.array([0, 60])).tolist() == [140, 200]


def test_nothing_of_the_time_is_lost_in_shares() -> None:
    """While the loop is never empty, the last request leaves when all work is done, to the nanosecond."""
    rng = np.random.default_rng(5)
    arrivals = np.sort(rng.integers(0, 500_000, 777))
    arrivals[0] = 0
    result = joined_ns({"request_ns": 1009}, arrivals)
    assert result.max() == 777 * 1009
    assert (np.diff(result) >= 0).all()


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_the_mean_stay_is_that_of_processor_sharing(load: float) -> None:
    """M/D/1 with processor sharing: work ÷ (1 − load); one after another would be a good deal shorter."""
    n, work_ns = 20_000, 100 * MICROSECOND_NS
    gaps = np.random.default_rng(11).exponential(work_ns / load, n)
    arrivals = np.cumsum(gaps).astype(np.int64)
    stays = joined_ns({"request_ns": work_ns}, arrivals) - arrivals
    assert stays.min() >= work_ns
    assert stays.mean() == pytest.approx(work_ns / (1 - load), rel=0.08)


def test_without_costs_a_request_joins_as_it_arrives() -> None:
    arrivals = np.array([0, 0, 17, 400])
    assert joined_ns({}, arrivals).tolist() == arrivals.tolist()
