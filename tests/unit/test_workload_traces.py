"""Recorded traffic as requests: scaled in rate, cut, with classes; and the published traces whole."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from simulator.errors import InputError
from simulator.scenario.workload import Workload
from simulator.traffic.workload import generate, workload_notes
from tests.shared_data import SHARED, needs_shared
from tests.traffic_figures import describe, ideal_hit_rate

TRACES = SHARED / "data" / "traces"
MOONCAKE = "mooncake_conversation.jsonl"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


def replay(file, *, requests=4000, classes=(), sessions=None, cancel_fraction=0.0, **arrivals):
    """A workload that replays a trace."""
    fields = {"arrivals": {"kind": "trace", "file": str(file), **arrivals}, "requests": requests}
    more = {"classes": list(classes), "sessions": sessions, "cancel_fraction": cancel_fraction}
    return Workload.model_validate_json(json.dumps({**fields, **more}))


@pytest.fixture
def burst(tmp_path):
    """A folder with a trace of four requests, one failed."""
    rows = ["5,m,10,1,11,x", "6,m,20,2,22,x", "7,m,20,0,20,x", "9,m,30,3,33,x"]
    (tmp_path / "t.csv").write_text(BURST + "\n".join(rows))
    return tmp_path


def test_times_and_lengths_come_from_the_trace(burst):
    requests = generate(replay("t.csv", requests=1), 0, burst)
    assert requests.arrival_ns.tolist() == [0, 10**9, 4 * 10**9]
    assert requests.prompt_tokens.tolist() == [10, 20, 30]
    assert requests.output_tokens.tolist() == [1, 2, 3]


def test_the_rate_is_scaled_and_the_count_cut(burst):
    requests = generate(replay("t.csv", rate_scale=4.0, max_requests=2), 0, burst)
    assert requests.arrival_ns.tolist() == [0, 250_000_000]


def test_a_window_and_requests_that_are_not_too_long_are_chosen(burst):
    later = generate(replay("t.csv", start_s=0.5, rate_scale=2.0), 0, burst)
    assert later.arrival_ns.tolist() == [0, 1_500_000_000]
    assert later.prompt_tokens.tolist() == [20, 30]
    assert generate(replay("t.csv", end_s=4.0), 0, burst).prompt_tokens.tolist() == [10, 20]
    assert generate(replay("t.csv", max_prompt_tokens=20), 0, burst).prompt_tokens.tolist() == [10, 20]
    assert generate(replay("t.csv", max_output_tokens=1), 0, burst).prompt_tokens.tolist() == [10]
    # The count is taken after the choice, not before.
    assert generate(replay("t.csv", start_s=0.5, max_requests=1), 0, burst).prompt_tokens.tolist() == [20]
    assert workload_notes(replay("t.csv", start_s=0.5), burst)[-1] == "t.csv: 2 of 3 requests selected"
    with pytest.raises(InputError, match=r"workload\.arrivals\.file: none of its 3 requests is selected"):
        generate(replay("t.csv", start_s=90.0), 0, burst)


def test_pauses_within_sessions_are_scaled_too(tmp_path):
    rows = [
        {"timestamp": 0, "session_id": 1, "input_length": 9, "output_length": 2},
        {"delay": 500, "session_id": 1, "input_length": 9, "output_length": 2},
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    requests = generate(replay("t.jsonl", rate_scale=2), 0, tmp_path)
    assert requests.arrival_ns.tolist() == [0, -1]
    assert requests.successor_delay_ns.tolist() == [250_000_000, 0]


def test_outputs_that_the_file_leaves_open_are_drawn(tmp_path):
    (tmp_path / "p.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b", "output_tokens": 77}\n')
    requests = generate(replay("p.jsonl"), 0, tmp_path)
    assert requests.output_tokens[0] >= 1
    assert requests.output_tokens[1] == 77


def test_settings_without_effect_are_said(burst):
    lengths = {"name": "code", "share": 0.5, "prompt_tokens": {"kind": "fixed", "tokens": 3}}
    notes = workload_notes(replay("t.csv", classes=[lengths], sessions={"turns": 2}), burst)
    assert notes == (
        "t.csv: 3 requests, 1 row with zero output tokens dropped",
        "the lengths of workload.classes have no effect: lengths come from the trace",
        "workload.sessions has no effect: sessions come from the trace",
    )


def test_the_field_is_named_when_the_trace_is_missing(burst):
    with pytest.raises(InputError, match=r"workload\.arrivals\.file: no such file"):
        generate(replay("none.csv"), 0, burst)
    with pytest.raises(InputError, match=r"workload\.arrivals\.format: unknown trace format"):
        generate(replay("t.csv", format="burst"), 0, burst)


def test_a_changed_file_is_read_again_and_callers_own_their_arrays(burst):
    first = generate(replay("t.csv"), 0, burst)
    for values in first:
        if isinstance(values, np.ndarray):
            values[...] = 0
    assert generate(replay("t.csv"), 0, burst).prompt_tokens.tolist() == [10, 20, 30]
    (burst / "t.csv").write_text(BURST + "1,m,4,4,8,x\n")
    assert generate(replay("t.csv"), 0, burst).prompt_tokens.tolist() == [4]


def test_a_recorded_session_has_one_class(tmp_path):
    rows = [
        {"timestamp": at, "session_id": at % 40, "input_length": 9, "output_length": 2} for at in range(400)
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    requests = generate(replay("t.jsonl", classes=[{"name": "a", "share": 0.5}]), 0, tmp_path)
    by_session = [set(requests.traffic_class[requests.session == name].tolist()) for name in range(40)]
    assert all(len(classes) == 1 for classes in by_session)
    assert set.union(*by_session) == {0, 1}


@needs_shared
@pytest.mark.parametrize(
    ("file", "rows", "span_s"),
    [
        ("AzureLLMInferenceTrace_code.csv", 8819, 3435.948056),
        ("AzureLLMInferenceTrace_conv.csv", 19366, 3501.721937),
        (MOONCAKE, 12031, 3536.999),
    ],
)
def test_published_traces_read_whole(file, rows, span_s):
    summary = describe(generate(replay(file), 0, TRACES))
    assert summary["requests"] == summary["arrivals"]["known"] == rows
    assert summary["arrivals"]["span_s"] == pytest.approx(span_s, abs=1e-9)
    assert workload_notes(replay(file), TRACES) == ()


@needs_shared
@pytest.mark.parametrize("file", ["AzureLLMInferenceTrace_code.csv", "AzureLLMInferenceTrace_conv.csv"])
def test_azure_lengths_are_those_of_the_file(file):
    with (TRACES / file).open(newline="") as source:
        rows = list(csv.DictReader(source))
    requests = generate(replay(file), 0, TRACES)
    assert requests.prompt_tokens.tolist() == [int(row["ContextTokens"]) for row in rows]
    assert requests.output_tokens.tolist() == [int(row["GeneratedTokens"]) for row in rows]
    first, last = (np.datetime64(rows[at]["TIMESTAMP"].replace(" ", "T"), "ns") for at in (0, -1))
    assert requests.arrival_ns[-1] == int(last - first)


@needs_shared
def test_mooncake_ideal_hit_rate_is_that_of_the_rows():
    """Share of input tokens in full blocks that stood, after the same blocks, in an earlier row."""
    seen, hits, total = set(), 0, 0
    for line in (TRACES / MOONCAKE).read_text().splitlines():
        row = json.loads(line)
        blocks = [tuple(row["hash_ids"][: end + 1]) for end in range(row["input_length"] // 512)]
        hits += 512 * sum(block in seen for block in blocks)
        total += row["input_length"]
        seen.update(blocks)
    rate = ideal_hit_rate(generate(replay(MOONCAKE), 0, TRACES))
    assert rate == hits / total


@needs_shared
def test_mooncake_is_like_its_paper():
    """Qin et al., FAST 2025: 12,031 conversation requests of 12,035 input and 343 output tokens (means)."""
    summary = describe(generate(replay(MOONCAKE), 0, TRACES))
    assert summary["requests"] == 12_031
    assert round(summary["prompt_tokens"]["mean"]) == 12_035
    assert round(summary["output_tokens"]["mean"]) == 343


@needs_shared
@pytest.mark.parametrize(
    ("file", "format", "requests"),
    [
        ("trace_azure.csv", "azure", 3),
        ("trace_burstgpt.csv", "burstgpt", 2),
        ("trace_burstgpt_sessions.csv", "burstgpt", 2),
        ("trace_mooncake.jsonl", "mooncake", 3),
        ("dataset_sharegpt.json", "sharegpt", 1),
        ("dataset_custom.jsonl", "prompts", 2),
    ],
)
def test_example_files_of_the_formats_read(file, format, requests):
    folder: Path = SHARED / "formats" / "examples"
    workload = replay(file)
    assert len(generate(workload, 0, folder).prompt_tokens) == requests
    assert (
        generate(workload, 0, folder).prompt_tokens
        == generate(replay(file, format=format), 0, folder).prompt_tokens
    ).all()
