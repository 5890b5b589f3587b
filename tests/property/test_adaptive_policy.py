"""SGLang's adaptive draft length: its rule on sequences worked out by hand, and where runs settle under it.

The rule is that of SGLang 0.5.23 `srt/speculative/adaptive_spec_params.py`: an average m with weight 0.2 for
the newest batch, a decision after 15, 20, 25 … batches, down while m <= shorter - 0.5 + hysteresis, otherwise
up while m > longer - 0.5.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from calibration.launch.registry import artefacts
from simulator.errors import InputError
from simulator.policies.adaptive import CANDIDATES, Adaptive, CandidateRow
from simulator.results.record import RunRecord
from simulator.runs.variant import CompiledVariant
from simulator.scenario import load_scenario, scenario_yaml
from simulator.step.state import DONE
from tests.runs import BUSY, constant_steps, differences, drafting_variant, run, small_scenario

POLICY = "speculation.eagle3.policy"
LENGTH = "speculation.eagle3.draft_length"
LONG: dict[str, Any] = {
    "engine.preset": "sglang-0.5",
    "workload.arrivals": {"kind": "closed", "concurrency": 4},
    "workload.requests": 8,
    "workload.output_tokens": {"kind": "fixed", "tokens": 600},
}


def adaptive(tmp_path: Path, accepted: int, first: int = 3, **changes: Any) -> CompiledVariant:
    """A variant of which every round accepts `accepted` drafts, if it has so many."""
    path = tmp_path / f"accepted-{accepted}.json"
    path.write_text(json.dumps([[accepted + 1] * 7]), encoding="utf-8")
    trace = {"speculation.eagle3.acceptance": {"model": "trace", "file": str(path)}}
    length = {LENGTH: first, POLICY: {"kind": "adaptive"}}
    return drafting_variant(small_scenario({**LONG, **length, **trace, **changes}))


def rounds_at(record: RunRecord) -> list[int]:
    """Rounds by their drafts."""
    return [int(count) for count in record.drafted_at.sum(axis=0)]


def settled(accepted: int, candidates: tuple[int, ...], first: int, down_hysteresis: float) -> int:
    """K after many batches in which every round accepts `accepted` drafts, or all that it has."""
    row = CandidateRow(candidates, first, down_hysteresis)
    for _ in range(200):
        row.observe(min(accepted, row.draft_length))
    return row.draft_length


def test_the_first_decision_comes_after_15_batches_and_then_every_five() -> None:
    row = CandidateRow((1, 3, 5, 7), 3, -0.25)
    lengths = []
    for _ in range(21):
        row.observe(0.0)
        lengths.append(row.draft_length)
    # m = 2 · 0.8^15 = 0.07 <= 1 - 0.5 - 0.25
    assert lengths == [3] * 14 + [1] * 7


def test_the_average_weighs_the_newest_batch_with_a_fifth() -> None:
    row = CandidateRow((1, 3, 5, 7), 5, -0.25)
    row.observe(5.0)
    assert row.mean_accepted == pytest.approx(0.8 * 4 + 0.2 * 5)
    row.observe(None)  # no round had drafts
    assert row.mean_accepted == pytest.approx(4.2)


@pytest.mark.parametrize("first", [1, 3, 5, 7])
@pytest.mark.parametrize(
    ("accepted", "expected"),
    [
        (0, (1, 1, 1, 1)),
        # m -> 1: not above 2.5, and not at or below 0.25. A long draft falls to 3, a single one is accepted
        # whole (1 > 0.5) and rises to 3.
        (1, (3, 3, 3, 3)),
        (2, (3, 3, 3, 3)),
        (3, (5, 5, 5, 5)),  # 3 > 2.5 rises to 5; 3 <= 4.25 falls from 7 to 5
        (5, (7, 7, 7, 7)),
        (7, (7, 7, 7, 7)),
    ],
)
def test_it_settles_where_its_thresholds_say(accepted: int, expected: tuple[int, ...], first: int) -> None:
    candidates = CANDIDATES[1]
    assert settled(accepted, candidates, first, -0.25) == expected[candidates.index(first)]


def test_without_drafts_it_tries_the_shortest_draft_every_five_batches() -> None:
    row = CandidateRow((0, 1, 3), 1, 0.0)
    lengths = []
    for _ in range(40):
        row.observe(0.0 if row.draft_length else None)
        lengths.append(row.draft_length)
    assert lengths == [1] * 14 + [0] * 5 + [1] * 5 + [0] * 5 + [1] * 5 + [0] * 5 + [1]


@pytest.mark.parametrize(("accepted", "expected"), [(0, 1), (2, 3), (3, 5), (6, 7)])
def test_a_run_settles_where_the_rule_does(tmp_path: Path, accepted: int, expected: int) -> None:
    record = run(adaptive(tmp_path, accepted))
    assert (record.status == DONE).all()
    assert record.driver == "pipeline"
    assert "adaptive" in (record.driver_reason or "")
    counts = rounds_at(record)
    assert max(range(len(counts)), key=counts.__getitem__) == expected
    if expected == 3:  # the one at which it began
        assert sum(counts) == counts[3]


def test_it_ignores_what_drafts_cost(tmp_path: Path) -> None:
    """A drafter whose pass lasts as long as ten of the target's leads to the same K as one that is free."""
    variant = adaptive(tmp_path, 5)
    free = run(constant_steps(variant, 1_000_000))
    dear = run(constant_steps(variant, 1_000_000, 10_000_000))
    assert rounds_at(free) == rounds_at(dear)
    assert dear.ended_ns.max() > 10 * free.ended_ns.max()


@pytest.mark.parametrize("preset", ["vllm-0.33", "sglang-0.5", "trtllm-1"])
def test_a_single_candidate_is_a_fixed_length(preset: str) -> None:
    """Where the engine pads no first decode, the policy with one candidate is the table with one row."""
    changes = {**LONG, "engine.preset": preset, "workload.ends": "eos"}
    by_table = run(drafting_variant(small_scenario({**changes, LENGTH: [[1, None, 3]]})))
    single = {"kind": "adaptive", "candidates": [[1, [3]]]}
    by_policy = run(drafting_variant(small_scenario({**changes, LENGTH: 3, POLICY: single})))
    assert differences(by_table, by_policy) == []


def test_rows_of_single_candidates_are_a_table_by_batch() -> None:
    """Requests come and go, so that steps of all rows occur. This engine has graphs of every K of a
    table, too."""
    table = [[1, 4, 3], [5, 8, 0], [9, None, 1]]
    rows = {"kind": "adaptive", "candidates": [[1, [3]], [5, [0]], [9, [1]]]}
    busy = {**BUSY, "engine.preset": "vllm-0.33"}
    by_table = run(drafting_variant(small_scenario({**busy, LENGTH: table})))
    by_policy = run(drafting_variant(small_scenario({**busy, LENGTH: 3, POLICY: rows})))
    assert differences(by_table, by_policy) == []
    assert min(rounds_at(by_table)[drafts] for drafts in (1, 3)) > 100


def test_replicas_decide_apart(tmp_path: Path) -> None:
    """Each of two replicas with half of the clients drafts what one replica with these clients drafts."""
    changes = {
        "hardware.replicas": 2,
        "hardware.router": "round-robin",
        "workload.arrivals": {"kind": "closed", "concurrency": 8},
        "workload.requests": 16,
    }
    two = run(adaptive(tmp_path, 7, **changes))
    alone = run(adaptive(tmp_path, 7))
    assert (two.status == DONE).all()
    assert sorted(two.drafted_tokens) == sorted([*alone.drafted_tokens, *alone.drafted_tokens])


def test_a_scenario_with_a_policy_is_written_and_read_back(tmp_path: Path) -> None:
    scenario = small_scenario({POLICY: {"kind": "adaptive", "candidates": [[1, [1, 2]], [9, [0, 1]]]}})
    path = tmp_path / "scenario.yaml"
    path.write_text(scenario_yaml(scenario), encoding="utf-8")
    read = load_scenario(path)
    assert read.speculation[0].policy == scenario.speculation[0].policy
    assert read.speculation[0].max_draft_length == 2


def test_launch_lines_have_the_policy_where_the_engine_has_one() -> None:
    scenario = small_scenario({POLICY: {"kind": "adaptive"}})
    launches = artefacts(scenario, scenario.speculation[0])
    assert "--speculative-adaptive-config" in launches["sglang"].text
    assert "--speculative-num-steps 3" in launches["sglang"].text
    (configuration,) = launches["sglang"].files.values()
    rows = Adaptive(tuple(CANDIDATES.items()), 3).to_sglang()
    assert json.loads(configuration) == rows
    for engine in ("vllm", "trtllm"):
        assert any("7 is written" in str(setting) for setting in launches[engine].unstated)
    assert list(rows) == ["1", "8", "32", "64"]
    assert [row["down_hysteresis"] for row in rows.values()] == [-0.25, 0.0, 0.0, 0.0]
    assert rows["8"]["candidate_steps"] == [0, 1, 3]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({POLICY: {"kind": "best"}}, "must be 'adaptive'"),
        ({POLICY: {"kind": "adaptive", "candidates": []}}, "is empty"),
        ({POLICY: {"kind": "adaptive", "candidates": [[8, [1]], [8, [3]]]}}, "not above the row before"),
        ({POLICY: {"kind": "adaptive", "candidates": [[1, [3, 1]]]}}, "not ascending"),
        ({POLICY: {"kind": "adaptive", "candidates": [[1, [0]]]}}, "drafts nothing"),
        ({POLICY: {"kind": "adaptive"}, LENGTH: [[1, None, 3]]}, "together with a policy"),
        ({POLICY: {"kind": "adaptive"}, "speculation.eagle3.method": "mtp"}, "does not go with mtp"),
        (
            {POLICY: {"kind": "adaptive"}, "speculation.eagle3.tree": {"parents": [-1, 0]}},
            "drafts a tree",
        ),
    ],
)
def test_what_a_policy_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        small_scenario(changes)
