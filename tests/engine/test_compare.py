"""The comparison with a serving engine's own scheduler: what it reports, and which families agree."""

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.engine.compare import differences, main, read_traces
from tests.engine.step_trace import draft_lengths, trace_of
from tests.shared_data import SHARED

TRACES = SHARED / "prototypes" / "vllm_scheduler" / "example_traces.jsonl.gz"


def request(prompt: int, output: int, arrival: int = 0) -> dict[str, Any]:
    """A request of which every draft is rejected."""
    script = [0] * (output + 1)
    return {"arrival": arrival, "prompt": prompt, "output": output, "prefix": [], "accept": script}


def scenario(**engine: Any) -> dict[str, Any]:
    """Two requests that decode together, on an engine that can be changed."""
    settings = {
        "max_num_seqs": 4,
        "max_num_batched_tokens": 64,
        "block_size": 4,
        "num_blocks": 64,
        "chunked_prefill": True,
        "prefix_caching": False,
        "asynchronous": False,
        "method": "none",
        "K": 0,
        "max_model_len": 256,
        "foreseen": True,
        "ragged": False,
    }
    requests = [request(6, 3), request(9, 2)]
    return {
        "id": "by-hand/0",
        "seed": 1,
        "match_probability": 1.0,
        "engine": settings | engine,
        "requests": requests,
    }


def test_steps_and_emissions_of_two_requests_are_those_worked_out_by_hand() -> None:
    trace = trace_of(scenario())
    assert trace.steps == [
        [0, [[0, 6, 0], [1, 9, 0]], [], 64 - 2 - 3],
        [1000, [[0, 1, 0], [1, 1, 0]], [], 64 - 2 - 3],
        [2000, [[0, 1, 0]], [], 64 - 2],
    ]
    assert trace.emissions == [[[1000, 1], [2000, 1], [3000, 1]], [[1000, 1], [2000, 1]]]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (3, (3,)),
        ([[1, 2, 4], [3, 4, 1]], (4, 4, 4, 1, 1)),
        ([[1, 1, 5]], (5, 5, 5, 5, 5)),
        ([[1, 1, 2], [4, 4, 0]], (2, 2, 2, 2, 0)),
    ],
)
def test_a_schedule_carries_its_last_draft_length_on(schedule: Any, expected: tuple[int, ...]) -> None:
    assert draft_lengths({"method": "eagle", "K": schedule, "max_num_seqs": 4}) == expected


def test_the_report_counts_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One scenario that agrees, one with another emission, one with other free blocks."""
    run = scenario()
    trace = trace_of(run)
    recorded = {"how": "done", "steps": trace.steps, "emissions": trace.emissions}
    later, fewer = copy.deepcopy(recorded), copy.deepcopy(recorded)
    later["emissions"][0][0][0] += 1000
    fewer["steps"][1][3] -= 1
    file = tmp_path / "traces.jsonl.gz"
    with gzip.open(file, "wt", encoding="utf-8") as lines:
        for engine in (recorded, later, fewer):
            lines.write(json.dumps({"family": "by-hand", "scenario": run, "vllm": engine}) + "\n")
    assert main([str(file), "--json"]) == 0
    counts = {"n": 3, "equal": 2, "equal_with_blocks": 1}
    assert json.loads(capsys.readouterr().out) == {"families": {"by-hand": counts}, "n": 3, "equal": 2}
    assert main([str(file), "--first", "2"]) == 0
    printed = capsys.readouterr()
    assert "2 of 3 scenarios are equal" in printed.out
    assert "emissions differ" in printed.err
    assert "step 1" in printed.err


@pytest.mark.skipif(not TRACES.is_file(), reason=f"no traces of vLLM's scheduler: {TRACES}")
def test_every_step_is_that_of_vllms_own_scheduler() -> None:
    unequal = [d.first for d in differences(read_traces(TRACES)) if not d.equal_with_blocks]
    assert not unequal, "\n".join(unequal)
