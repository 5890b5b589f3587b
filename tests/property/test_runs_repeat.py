"""Same seed, same run, twice and in another process; and K = 0 is plain decoding."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

from tests.runs import (
    BUSY,
    differences,
    drafting_variant,
    fingerprint,
    plain_variant,
    run,
    small_scenario,
    watched,
)

MIXED: dict[str, Any] = {
    **BUSY,
    "workload.cancel_fraction": 0.1,
    "workload.sessions": {"turns": 2, "gap_s": 0.05, "shared_prefix_tokens": 64},
    "speculation.eagle3.acceptance": {
        "model": "hierarchical",
        "alpha": 0.7,
        "request_sd": 0.8,
        "drift_sd": 0.5,
        "drift_correlation": 0.9,
    },
}
GATED = {"model": "gated", "match": 0.5, "first": 0.5, "run": 0.9}
LOOKUP = {"name": "a", "method": "ngram", "acceptance": GATED}


def test_the_same_seed_gives_the_same_record_and_another_does_not() -> None:
    variant = drafting_variant(small_scenario(MIXED))
    first = run(variant, 5)
    assert differences(first, run(variant, 5)) == []
    assert differences(first, run(drafting_variant(small_scenario(MIXED)), 5)) == []
    assert "emitted_tokens" in differences(first, run(variant, 6))


def test_the_same_seed_gives_the_same_record_in_another_process() -> None:
    here = [fingerprint(MIXED, seed) for seed in (1, 2)]
    assert here[0] != here[1]
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        assert list(pool.map(fingerprint, [MIXED, MIXED], [1, 2])) == here


@pytest.mark.parametrize("preset", ["vllm-0.10", "vllm-0.33", "sglang-0.5", "trtllm-1"])
def test_no_drafts_and_no_drafter_is_plain_decoding_event_for_event(preset: str) -> None:
    changes = {**MIXED, "engine.preset": preset, "speculation": [{**LOOKUP, "draft_length": 0}]}
    del changes["speculation.eagle3.acceptance"]
    plain, plain_stages = watched(plain_variant(small_scenario(changes)), 4)
    record, stages = watched(drafting_variant(small_scenario(changes)), 4)
    assert stages == plain_stages
    assert len(stages) > 500
    assert differences(plain, record) == []
    # The same in the compiled loop, and with one draft it is another run.
    assert differences(run(plain_variant(small_scenario(changes)), 4), record) == []
    changes["speculation"] = [{**LOOKUP, "draft_length": 1}]
    assert "last_ns" in differences(plain, run(drafting_variant(small_scenario(changes)), 4))


def test_a_drafter_that_is_never_asked_still_reads_every_token() -> None:
    """K = 0 by schedule pays pass 1, which keeps the drafter's KV current."""
    changes = {**MIXED, "speculation.eagle3.draft_length": 0}
    record, plain = (
        run(drafting_variant(small_scenario(changes)), 4),
        run(plain_variant(small_scenario(changes)), 4),
    )
    assert record.drafted_tokens.sum() == 0
    assert record.totals["draft_ns"] > 0
    assert plain.totals["draft_ns"] == 0
    assert (record.emitted_tokens == plain.emitted_tokens).all()
    assert record.ended_ns.sum() > plain.ended_ns.sum()


@pytest.mark.parametrize("router", ["round-robin", "least-loaded", "session", "prefix"])
def test_one_replica_behind_a_router_is_no_router(router: str) -> None:
    alone = run(drafting_variant(small_scenario(MIXED)), 4)
    assert alone.driver == "fast_forward"
    routed = {**MIXED, "hardware.router": router, "run.backend": "pipeline"}
    record = run(drafting_variant(small_scenario(routed)), 4)
    assert record.driver == "pipeline"
    assert differences(alone, record) == []
