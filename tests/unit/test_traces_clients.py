"""Traces from what benchmark clients and gateways write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulator.errors import InputError
from simulator.traces import Trace, read_trace
from tests.shared_data import SHARED, needs_shared

BENCH: dict[str, Any] = {
    "backend": "vllm",
    "input_lens": [512, 300, 90],
    "output_lens": [15, 40, 0],
    "start_times": [100.0, 100.25, 100.5],
    "errors": ["", "", "timeout"],
}


def trace_of(tmp_path: Path, text: str, name: str = "trace", format: str = "auto") -> Trace:
    """The trace of a text."""
    path = tmp_path / name
    path.write_text(text, encoding="utf-8", newline="")
    return read_trace(path, format)


@pytest.mark.parametrize("indent", [None, 2])
def test_requests_of_a_benchmark(tmp_path: Path, indent: int | None) -> None:
    """Printed over many lines or on one; the failed request has no output and is dropped."""
    trace = trace_of(tmp_path, json.dumps(BENCH, indent=indent))
    assert trace.format == "bench"
    assert trace.arrival_ns.tolist() == [0, 250_000_000]
    assert trace.prompt_tokens.tolist() == [512, 300]
    assert trace.output_tokens.tolist() == [15, 40]
    assert trace.dropped == (("zero output tokens", 1),)


def test_a_benchmark_without_times_arrives_at_once(tmp_path: Path) -> None:
    sglang = {"backend": "sglang", "input_lens": [5, 6], "output_lens": [7, 8], "ttfts": [0.1, 0.1]}
    trace = trace_of(tmp_path, json.dumps(sglang) + "\n")
    assert not trace.timed
    assert "no times" in trace.notes[-1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input_lens": None}, "input_lens: missing, write the result with --save-detailed"),
        ({"output_lens": [1]}, "not as many as input_lens"),
        ({"start_times": [1.0]}, "not as many as input_lens"),
        ({"output_lens": 3}, "not a list"),
        ({"input_lens": [1, -4, 2]}, r"input_lens\[1\]: not a number of tokens"),
        ({"start_times": [0.0, None, 1.0]}, r"start_times\[1\]: missing"),
    ],
)
def test_damaged_details_name_the_field(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        trace_of(tmp_path, json.dumps(BENCH | change), format="bench")


def test_two_runs_in_a_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a second run"):
        trace_of(tmp_path, f"{json.dumps(BENCH)}\n{json.dumps(BENCH)}\n")


def record(start_ns: int, prompt: int, output: int, **more: Any) -> str:
    """A line of AIPerf's records."""
    metadata = {"request_start_ns": start_ns, "conversation_id": "c0", "benchmark_phase": "profiling"}
    lengths = {"input_sequence_length": {"value": prompt}, "output_sequence_length": {"value": output}}
    return json.dumps(
        {"metadata": metadata | more.pop("metadata", {}), "metrics": lengths, "error": None} | more
    )


def test_records_of_aiperf(tmp_path: Path) -> None:
    begun = 1_759_813_207_532_900_363
    lines = [
        record(begun, 512, 15),
        record(begun - 10**9, 100, 20, metadata={"benchmark_phase": "warmup"}),
        record(begun + 2 * 10**9, 600, 30),
        record(begun + 3 * 10**9, 700, 40, error={"message": "timeout"}),
    ]
    trace = trace_of(tmp_path, "\n".join(lines))
    assert trace.format == "aiperf-records"
    assert trace.arrival_ns.tolist() == [0, 2 * 10**9]
    assert trace.session.tolist() == [0, 0]
    assert dict(trace.dropped) == {"the warm-up phase": 1, "an error": 1}


@pytest.mark.parametrize(
    ("times", "unit"),
    [
        (("2026-05-04T10:15:00Z", "2026-05-04T10:15:01.5Z"), None),
        (("2026-05-04 10:15:00.0", "2026-05-04 10:15:01.5"), None),
        (("1777889700", "1777889701.5"), None),
        (("1777889700000", "1777889701500"), None),
        (("1777889700000000", "1777889701500000"), None),
        (("1777889700000000000", "1777889701500000000"), None),
        (("0", "1500"), "_ms"),
        (("0", "1500000"), "_us"),
    ],
)
def test_times_of_gateways_in_any_unit(tmp_path: Path, times: tuple[str, str], unit: str | None) -> None:
    header = f"timestamp{unit or ''},Prompt_Tokens,completion_tokens"
    trace = trace_of(tmp_path, "\n".join([header, f"{times[0]},812,44", f"{times[1]},96,310"]))
    assert trace.format == "gateway"
    assert trace.arrival_ns.tolist() == [0, 1_500_000_000]
    assert trace.notes == ()


@pytest.mark.parametrize(
    "text",
    [
        "timestamp,isl,osl\n0,812,44\n2.5,96,310\n",
        '{"timestamp": 0, "isl": 812, "osl": 44}\n{"timestamp": 2.5, "isl": 96, "osl": 310}\n',
    ],
)
def test_plain_numbers_are_seconds_and_a_note_says_so(tmp_path: Path, text: str) -> None:
    trace = trace_of(tmp_path, text)
    assert trace.arrival_ns.tolist() == [0, 2_500_000_000]
    assert trace.prompt_tokens.tolist() == [812, 96]
    assert "read as seconds" in trace.notes[0]


def test_failed_requests_of_a_gateway_are_dropped(tmp_path: Path) -> None:
    rows = ["ts,input_tokens,output_tokens,status", "0,10,5,200", "1,10,5,503", "2,10,0,200", "3,10,5,error"]
    trace = trace_of(tmp_path, "\n".join(rows))
    assert trace.requests == 1
    assert dict(trace.dropped) == {"an error status": 2, "zero output tokens": 1}


def test_a_gateway_without_output_tokens_is_told_what_they_may_be_called(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="osl: missing, one of osl, completion_tokens"):
        trace_of(tmp_path, "timestamp,isl\n0,5\n", format="gateway")


@needs_shared
@pytest.mark.parametrize(
    ("name", "requests", "span_s"),
    [
        ("examples/vllm_bench_serve_detailed.json", 4, 0.2),
        ("examples/aiperf_profile_export.jsonl", 1, 0.0),
        ("real-vllm-0.32/ngram-c16.bench.json", 64, None),
        ("real-vllm-0.32/plain-c1.bench.json", 12, None),
    ],
)
def test_files_of_real_clients_become_traces(name: str, requests: int, span_s: float | None) -> None:
    trace = read_trace(SHARED / "formats" / name)
    assert trace.requests == requests
    assert (np.diff(trace.arrival_ns) >= 0).all()
    if span_s is not None:
        assert trace.arrival_ns[-1] == pytest.approx(span_s * 1e9, abs=1e3)
