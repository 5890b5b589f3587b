"""Damaged, cut, mixed and hostile files, over every reader: a clear line or a warning, never a traceback,
never a number that cannot be.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calibration.telemetry.answer import read
from calibration.telemetry.registry import titles
from simulator.errors import InputError, Problem
from tests.telemetry import other_files, vllm_files
from tests.telemetry.known_run import KnownRun, drawn

RUN = drawn(3, 0.7, 240, engines=2, seed=5)

WRITERS: Mapping[str, Callable[[KnownRun], str]] = {
    "vllm-metrics": vllm_files.metrics,
    "vllm-metrics-api": other_files.prometheus_api,
    "vllm-log": vllm_files.log,
    "vllm-log-early": lambda run: vllm_files.log(run, wording="early"),
    "vllm-log-v0": vllm_files.log_v0,
    "vllm-bench": vllm_files.bench_json,
    "vllm-bench-table": vllm_files.bench_table,
    "vllm-response": vllm_files.responses,
    "sglang-log": other_files.sglang_log,
    "sglang-metrics": other_files.sglang_metrics,
    "sglang-response": other_files.sglang_responses,
    "sglang-bench": other_files.sglang_bench,
    "sglang-bench-table": other_files.sglang_table,
    "trtllm-report": other_files.trtllm_report,
    "trtllm-json": other_files.trtllm_json,
    "guidellm": other_files.guidellm,
    "guidellm-table": other_files.guidellm_table,
    "aiperf": other_files.aiperf,
    "aiperf-records": other_files.aiperf_records,
    "aiperf-table": other_files.aiperf_table,
    "aiperf-csv": other_files.aiperf_csv,
}
TEXTS = {name: write(RUN) for name, write in WRITERS.items()}
WHOLE_RUN = ("vllm-metrics", "vllm-metrics-api", "vllm-bench", "vllm-bench-table", "aiperf")
"""Formats whose counts are those of the whole run: a part of the file must not give other ones."""

PIECES = st.one_of(
    st.text(max_size=6),
    st.sampled_from(
        ["-1", "NaN", "Infinity", "-Infinity", "1e999", "null", '""', "{}", "[", "}", "\x1b[31m", "\r", "\t"]
    ),
    st.sampled_from(
        ["0", "9" * 400, "0.5", "\n", "\n\n", "\x00", "\ufeff", "[[" * 50, "\\u0000", "…", ",", ":"]
    ),
)
fuzz = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=sorted(TEXTS))
def name(request: pytest.FixtureRequest) -> str:
    """Each format in turn."""
    return str(request.param)


def answer(path: Path, content: str | bytes) -> dict[str, Any] | None:
    """The JSON of `read`, None where the file is refused with a clear line."""
    path.write_bytes(content.encode("utf-8", errors="replace") if isinstance(content, str) else content)
    problems: tuple[Problem, ...] = ()
    document = None
    try:
        document = read([str(path)]).to_json()
    except InputError as error:
        problems = error.problems
    assert all(problem.file == str(path) and problem.message for problem in problems)
    if document is not None:
        assert_possible(document)
    return document


def assert_possible(document: Mapping[str, Any]) -> None:
    """Every number can be true: finite, within its range, in order; JSON without NaN. What contradicts itself
    has a finding that says so.
    """
    json.dumps(document, allow_nan=False)
    contradicts = "contradiction" in {finding["code"] for finding in document["health"]}
    for part in (document, *document["readings"]):
        for rate in (*part["acceptance_rate_at"], *filter(None, part["conditional_acceptance"])):
            assert 0.0 <= rate <= 1.0 + 1e-9 or contradicts
        length = part["mean_acceptance_length"]
        if length is not None:
            assert length["value"] >= 1.0
            assert (
                part["draft_length"] is None
                or length["value"] <= part["draft_length"] + 1 + 1e-9
                or contradicts
            )
        for latency in ("ttft_s", "tpot_s", "itl_s", "itl_token_s", "e2e_s"):
            for statistic, value in part[latency].items():
                assert statistic == "within" or (math.isfinite(value) and value >= 0.0)
        assert all(math.isfinite(value) and value >= 0.0 for value in part["load"].values())


def warned(document: Mapping[str, Any]) -> bool:
    """Whether anything tells that the file is not whole."""
    severe = any(finding["severity"] in ("warning", "error") for finding in document["health"])
    return severe or document["skipped_lines"] > 0


def test_every_reader_is_tried() -> None:
    assert {text.partition("-")[0] for text in TEXTS} == {"vllm", "sglang", "trtllm", "guidellm", "aiperf"}
    assert len(titles()) <= len(TEXTS)


@fuzz
@given(data=st.data())
def test_a_piece_replaced_by_anything(tmp_path: Path, name: str, data: st.DataObject) -> None:
    text = TEXTS[name]
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(start + 40, len(text))))
    answer(tmp_path / "damaged", text[:start] + data.draw(PIECES) + text[end:])


@fuzz
@given(data=st.data())
def test_a_file_cut_anywhere(tmp_path: Path, name: str, data: st.DataObject) -> None:
    text = TEXTS[name]
    document = answer(tmp_path / "cut", text[: data.draw(st.integers(0, len(text) - 1))])
    if document is None or name not in WHOLE_RUN or document["mean_acceptance_length"] is None:
        return
    length = document["mean_acceptance_length"]["value"]
    assert length == pytest.approx(RUN.mean_length, abs=0.0051) or warned(document)
    if document["acceptance_rate_at"] and not warned(document):
        assert document["acceptance_rate_at"] == pytest.approx(RUN.rates_at, abs=1e-3)


@fuzz
@given(data=st.data())
def test_lines_in_another_order_twice_or_missing(tmp_path: Path, name: str, data: st.DataObject) -> None:
    lines = TEXTS[name].splitlines(keepends=True)
    places = data.draw(st.lists(st.integers(0, len(lines) - 1), max_size=60))
    answer(tmp_path / "shuffled", "".join(lines[place] for place in places))


@fuzz
@given(content=st.binary(max_size=400))
def test_any_bytes(tmp_path: Path, content: bytes) -> None:
    answer(tmp_path / "bytes", content)


@fuzz
@given(data=st.data())
def test_any_values_in_the_right_places(tmp_path: Path, name: str, data: st.DataObject) -> None:
    """JSON of the right keys with wrong values."""
    text = TEXTS[name]
    if text[0] not in "{[" or name == "sglang-log":
        return
    document = json.loads(text.splitlines()[0] if name in ("vllm-response", "aiperf-records") else text)
    places = list(_places(document))
    for _ in range(data.draw(st.integers(1, 4))):
        holder, key = data.draw(st.sampled_from(places))
        value = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4))
        holder[key] = data.draw(
            st.one_of(value, st.lists(value, max_size=3), st.dictionaries(st.text(max_size=3), value))
        )
        places = list(_places(document))
    answer(tmp_path / "values.json", json.dumps(document))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield value, key
        yield from _places(inner)


@pytest.mark.parametrize(
    "line",
    [
        'vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} -5.0',
        'vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} NaN',
        'vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} +Inf',
        'vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 1e400',
        'vllm:spec_decode_num_drafts_total{engine="0",model_name="m" 5',
        'vllm:spec_decode_num_drafts_total{engine="0",engine="1"} 5',
        "vllm:spec_decode_num_drafts_total",
    ],
)
def test_impossible_samples_are_left_out_and_counted(tmp_path: Path, line: str) -> None:
    document = answer(tmp_path / "metrics", f"{vllm_files.metrics(RUN)}{line}\n")
    assert document is not None
    assert document["skipped_lines"] == 1
    assert document["draft_rounds"] == RUN.rounds


def test_a_counter_that_stands_twice_with_two_values_is_told(tmp_path: Path) -> None:
    text = vllm_files.metrics(RUN)
    row = next(
        line for line in text.splitlines() if line.startswith("vllm:spec_decode_num_accepted_tokens_total")
    )
    document = answer(tmp_path / "metrics", f"{text}{row.rpartition(' ')[0]} 7.0\n")
    assert document is not None
    assert document["accepted_tokens"] == RUN.accepted_tokens
    assert document["skipped_lines"] == 1


def test_an_engine_without_all_of_its_counters_is_left_out(tmp_path: Path) -> None:
    lines = vllm_files.metrics(RUN).splitlines()
    remaining = [
        line for line in lines if not ("num_accepted_tokens_total{" in line and 'engine="1"' in line)
    ]
    document = answer(tmp_path / "metrics", "\n".join(remaining) + "\n")
    assert document is not None
    assert document["draft_rounds"] == RUN.with_engine(0).rounds
    assert "incomplete-counters" in {finding["code"] for finding in document["health"]}


def test_a_number_at_the_end_of_a_cut_file_is_not_taken(tmp_path: Path) -> None:
    text = vllm_files.bench_table(RUN)
    cut = text[: text.index("Accepted tokens:") + len("Accepted tokens:") + 28]
    assert cut[-1].isdigit()
    document = answer(tmp_path / "table", cut)
    assert document is not None
    assert document["skipped_lines"] == 1


def test_lines_of_a_log_that_contradict_themselves_are_left_out(tmp_path: Path) -> None:
    text = vllm_files.log(RUN)
    altered = text.replace("Mean acceptance length: ", "Mean acceptance length: 1", 1)
    document = answer(tmp_path / "log", altered)
    assert document is not None
    assert document["skipped_lines"] == 1
    assert document["draft_rounds"] == RUN.rounds - 50


def test_keys_that_stand_twice_are_told(tmp_path: Path) -> None:
    text = vllm_files.bench_json(RUN).replace('"completed"', '"mean_ttft_ms": 1.0, "completed"')
    document = answer(tmp_path / "bench.json", text)
    assert document is not None
    assert "duplicate-keys" in {finding["code"] for finding in document["health"]}


def test_values_that_cannot_be_are_left_out_with_their_name(tmp_path: Path) -> None:
    document = vllm_files.bench(RUN) | {"mean_ttft_ms": -3.0, "p99_itl_ms": float("nan")}
    result = answer(tmp_path / "bench.json", json.dumps(document))
    assert result is not None
    (finding,) = [entry for entry in result["health"] if entry["code"] == "bad-value"]
    assert "mean_ttft_ms" in finding["text"]
    assert "p99_itl_ms" in finding["text"]
    assert result["ttft_s"] == {}


@pytest.mark.parametrize("first", ["vllm-log", "vllm-metrics", "sglang-log", "vllm-bench-table"])
@pytest.mark.parametrize("second", ["vllm-bench-table", "aiperf-records", "trtllm-report", "vllm-bench"])
def test_formats_in_one_file_are_told_apart(tmp_path: Path, first: str, second: str) -> None:
    if first == second:
        return
    text = f"$ cat one\n{TEXTS[first]}\n$ cat two\n{TEXTS[second]}\n$ \n"
    document = answer(tmp_path / "paste", text)
    assert document is not None
    assert {reading["sources"][0]["format"] for reading in document["readings"]} == {first, second}
    assert document["skipped_lines"] == 0
