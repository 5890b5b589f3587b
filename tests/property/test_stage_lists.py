"""Other lists of stages than today's engines have: a drafter on its own GPU, and any list at random.

Nothing of the drivers knows a list. Both modes must agree on all of them, and with times worked out by hand.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from simulator.acceptance import Geometric
from simulator.drivers.pipeline import TimelineStage
from simulator.step.stages import Stage
from simulator.step.state import DRAFTER_GPU, GPU, HOST, KV_LINK
from tests import step_harness as harness
from tests.runs import constant_steps, differences, drafting_variant, run, small_scenario
from tests.scenarios import scenario

VERIFY_NS = 1_000_000
OWN_GPU: dict[str, Any] = {
    "stages": (
        Stage("host", HOST),
        Stage("verify", GPU, after="host"),
        Stage("accept", GPU, after="verify"),
        # The drafts of the step before are there: they queued for the drafter's GPU earlier.
        Stage("drafts are there", DRAFTER_GPU, after="accept"),
        Stage("draft", DRAFTER_GPU, after="accept"),
    ),
    "next_step_after": "drafts are there",
    "emits_before_drafting": True,
}


def one_request(draft_ns: int, **settings: Any) -> tuple[np.ndarray[Any, Any], list[TimelineStage]]:
    """Times of the first and the last token of a request alone on an engine, in both modes."""
    changes = {
        "workload.requests": 1,
        "workload.arrivals": {"kind": "burst"},
        "workload.output_tokens.tokens": 41,
        "speculation.0.draft_length": 1,
    }
    variant = constant_steps(drafting_variant(small_scenario(changes)), VERIFY_NS, draft_ns, **settings)
    stages: list[TimelineStage] = []
    leapt = run(variant, acceptance=[Geometric(1.0)])
    watched = run(variant, acceptance=[Geometric(1.0)], timeline=stages)
    assert (leapt.driver, watched.driver) == ("fast_forward", "pipeline")
    assert differences(leapt, watched) == []
    return np.array([leapt.first_ns[0], leapt.last_ns[0]]), stages


@pytest.mark.parametrize("draft_ns", [400_000, 1_000_000, 1_700_000])
def test_a_drafter_on_its_own_gpu_works_while_the_target_verifies(draft_ns: int) -> None:
    """Serial: 20 rounds of verifying and drafting follow the first token. On its own GPU, drafting what comes
    next overlaps verifying, so that a round takes as long as the longer of the two. The first round still
    waits for no drafts but those of the prompt's step."""
    serial, _ = one_request(draft_ns, emits_before_drafting=True)
    assert serial.tolist() == [VERIFY_NS, VERIFY_NS + 20 * (VERIFY_NS + draft_ns)]
    overlapped, stages = one_request(draft_ns, **OWN_GPU)
    assert overlapped.tolist() == [VERIFY_NS, VERIFY_NS + 20 * VERIFY_NS + 19 * max(0, draft_ns - VERIFY_NS)]
    starts = {name: {s.step: s.start_ns for s in stages if s.name == name} for name in ("verify", "draft")}
    assert all(starts["draft"][step - 1] == starts["verify"][step] for step in starts["verify"] if step > 0)


def random_list(rng: random.Random) -> dict[str, Any]:
    """A list of four to seven stages on any resources, each after any earlier one or none."""
    names = ["host", "verify", "accept", "draft", *(f"wait {n}" for n in range(rng.randrange(4)))]
    rng.shuffle(names)
    resources = (HOST, GPU, DRAFTER_GPU, KV_LINK)[: rng.randint(1, 4)]
    stages = tuple(
        Stage(name, rng.choice(resources), rng.choice([None, *names[:index]]))
        for index, name in enumerate(names)
    )
    return {"stages": stages, "next_step_after": rng.choice(names)}


@pytest.mark.parametrize("group", range(4))
def test_both_modes_agree_on_any_list(group: int) -> None:
    for seed in range(group, 60, 4):
        rng = random.Random(seed)
        case, settings = scenario(seed), random_list(rng)
        leapt = harness.outcome(harness.run_fast(case, **settings))
        assert harness.outcome(harness.run_leaping(case, **settings)) == leapt, f"{seed}: {settings}"
        assert harness.outcome(harness.run_pipeline(case, **settings)) == leapt, f"{seed}: {settings}"


def test_a_random_list_changes_what_happens() -> None:
    """Otherwise agreement on lists would say nothing."""
    changed = [
        harness.outcome(harness.run_fast(scenario(seed), **random_list(random.Random(seed))))
        != harness.outcome(harness.run_fast(scenario(seed)))
        for seed in range(20)
    ]
    assert sum(changed) >= 10
