"""Parts of a trace: windows, length limits, the first so many, with links and prefixes that still hold."""

import json

import pytest

from simulator.errors import InputError
from simulator.traces import read_trace, select


@pytest.fixture
def trace(tmp_path):
    """Five requests at 0, 1 and 3 s; two later turns follow the second one."""
    rows = [
        {"timestamp": 0, "input_length": 600, "output_length": 9, "hash_ids": [3, 4]},
        {"timestamp": 1000, "input_length": 700, "output_length": 5, "hash_ids": [1, 2], "session_id": "a"},
        {"delay": 50, "input_length": 300, "output_length": 5, "session_id": "a"},
        {"delay": 70, "input_length": 900, "output_length": 5, "session_id": "a"},
        {"timestamp": 3000, "input_length": 800, "output_length": 200, "hash_ids": [1, 9]},
    ]
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return read_trace(path)


def test_nothing_asked_is_the_trace_itself(trace):
    assert select(trace) is trace


def test_a_window_starts_its_own_clock(trace):
    part = select(trace, start_s=0.5)
    assert part.arrival_ns.tolist() == [0, -1, -1, 2_000_000_000]
    assert part.successor.tolist() == [1, 2, -1, -1]
    assert part.successor_delay_ns.tolist() == [50_000_000, 70_000_000, 0, 0]
    assert part.session.tolist() == [0, 0, 0, -1]
    assert part.prefix_ids[part.prefix_start[:-1]].tolist() == [0, 0, 0, 0]
    assert part.prefix_ids.max() + 1 == len(set(part.prefix_ids.tolist()))
    assert part.notes[-1] == "trace.jsonl: 4 of 5 requests selected"


def test_a_window_ends_before_its_end(trace):
    assert select(trace, end_s=1.0).prompt_tokens.tolist() == [600]
    assert select(trace, end_s=1.001).requests == 4


def test_a_turn_goes_out_with_the_one_before(trace):
    part = select(trace, max_prompt_tokens=1000)
    assert part.prompt_tokens.tolist() == [600, 700, 800]
    assert part.successor.tolist() == [-1, -1, -1]
    assert part.successor_delay_ns.tolist() == [0, 0, 0]
    assert select(trace, max_prompt_tokens=650).prompt_tokens.tolist() == [600]


def test_outputs_and_counts_can_be_limited(trace):
    assert select(trace, max_output_tokens=9).requests == 4
    assert select(trace, limit=2).prompt_tokens.tolist() == [600, 700]


def test_an_empty_part_is_refused(trace):
    with pytest.raises(InputError, match="none of its 5 requests is selected"):
        select(trace, start_s=100)
