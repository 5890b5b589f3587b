"""The stages of a run's steps, as the pipeline occupies them: in order, never two on one GPU at once, and
together exactly the books of the run.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest

from simulator.drivers.pipeline import TimelineStage
from simulator.results.record import RunRecord
from tests.runs import BUSY, drafting_variant, small_scenario, watched

PRESETS = ("vllm-0.10", "vllm-0.33", "sglang-0.5", "trtllm-1")


def busy(changes: dict[str, Any]) -> tuple[RunRecord, list[TimelineStage]]:
    return watched(drafting_variant(small_scenario({**BUSY, **changes})))


@pytest.mark.parametrize("preset", PRESETS)
def test_the_stages_are_the_books(preset: str) -> None:
    record, stages = busy({"engine.preset": preset})
    totals: dict[str, int] = defaultdict(int)
    for stage in stages:
        totals[stage.name] += stage.end_ns - stage.start_ns
    assert {name: totals[name] for name in ("verify", "accept", "draft")} == {
        name: record.totals[f"{name}_ns"] for name in ("verify", "accept", "draft")
    }
    assert totals["host"] == record.totals["host_ns"] + record.totals["hidden_ns"]
    assert record.driver_reason == "the stages of the steps are watched"
    assert set(totals) == {"host", "verify", "accept", "draft"}


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_gpu_does_one_stage_at_a_time_and_in_order(preset: str, replicas: int) -> None:
    _, stages = busy({"engine.preset": preset, "hardware.replicas": replicas})
    assert {stage.replica for stage in stages} == set(range(replicas))
    for replica in range(replicas):
        own = [stage for stage in stages if stage.replica == replica]
        on_gpu = sorted((s for s in own if s.name != "host"), key=lambda s: s.start_ns)
        assert all(before.end_ns <= after.start_ns for before, after in pairwise(on_gpu))
        assert [s.step for s in on_gpu] == sorted(s.step for s in on_gpu)
        by_step: dict[int, list[TimelineStage]] = defaultdict(list)
        for stage in on_gpu:
            by_step[stage.step].append(stage)
        for step in by_step.values():
            assert [s.name for s in step] in (["verify", "accept", "draft"], ["verify", "accept"])
            assert all(before.end_ns == after.start_ns for before, after in pairwise(step))
            assert len({(s.requests, s.tokens) for s in step}) == 1


def test_an_asynchronous_host_works_while_the_gpu_does_and_a_synchronous_one_does_not() -> None:
    def overlapping(preset: str) -> int:
        _, stages = busy({"engine.preset": preset})
        host = [s for s in stages if s.name == "host"]
        gpu = [s for s in stages if s.name != "host"]
        return sum(min(h.end_ns, g.end_ns) > max(h.start_ns, g.start_ns) for h in host for g in gpu)

    assert overlapping("vllm-0.10") == 0
    assert overlapping("vllm-0.33") > 100
