"""Writers print a run whose every count is known, and `read` finds it again: to the last digit where the
format prints counts, within its rounding where it does not.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from calibration.telemetry.answer import read
from tests.telemetry import other_files, vllm_files
from tests.telemetry.known_run import KnownRun, drawn, known_runs

any_run = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

Answered = dict[str, Any]


@pytest.fixture
def read_text(tmp_path: Path) -> Callable[..., Answered]:
    """Reads texts as files, in the order given, as the JSON of `read`."""

    def answer(*texts: str) -> Answered:
        names = []
        for number, text in enumerate(texts):
            path = tmp_path / f"file-{number}"
            path.write_text(text, encoding="utf-8")
            names.append(str(path))
        return json.loads(json.dumps(read(names).to_json(), allow_nan=False))  # type: ignore[no-any-return]

    return answer


def assert_counts(document: Answered, run: KnownRun) -> None:
    """Rounds, tokens and positions are those of the run, exactly."""
    assert (document["draft_rounds"], document["accepted_tokens"]) == (run.rounds, run.accepted_tokens)
    assert document["drafted_tokens"] == run.drafted_tokens
    assert document["acceptance_rate_at"] == pytest.approx(run.rates_at, abs=1e-12)
    assert_mean(document, run, 1e-12)


def assert_mean(document: Answered, run: KnownRun, tolerance: float) -> None:
    """The mean acceptance length and what follows from it."""
    assert document["draft_length"] == run.draft_length
    assert document["mean_acceptance_length"]["value"] == pytest.approx(run.mean_length, abs=tolerance)
    rate = run.accepted_tokens / run.drafted_tokens
    assert document["draft_acceptance_rate"] == pytest.approx(rate, abs=tolerance)
    alpha, longest = document["geometric_alpha"], run.draft_length
    assert sum(alpha**place for place in range(longest + 1)) == pytest.approx(
        run.mean_length, abs=tolerance + 1e-9
    )
    interval = document["mean_acceptance_length"]["ci95"]
    if interval is not None:
        assert interval[0] <= document["mean_acceptance_length"]["value"] <= interval[1]


def assert_latencies(
    document: Answered, run: KnownRun, tolerance_s: float = 1e-9, gap: str | None = "itl_s"
) -> None:
    """TTFT, TPOT and ITL are those of the run."""
    assert document["ttft_s"]["mean"] == pytest.approx(run.ttft_s, abs=tolerance_s)
    assert document["tpot_s"]["mean"] == pytest.approx(run.tpot_s, abs=tolerance_s)
    if gap is not None:
        value = run.tpot_s if gap == "itl_token_s" else run.step_s
        assert document[gap]["mean"] == pytest.approx(value, abs=tolerance_s)


@any_run
@given(run=known_runs(most_engines=3))
def test_one_scrape_of_vllm(read_text: Callable[..., Answered], run: KnownRun) -> None:
    document = read_text(vllm_files.metrics(run))
    assert_counts(document, run)
    assert (document["ttft_s"]["mean"], document["itl_s"]["mean"]) == pytest.approx((run.ttft_s, run.step_s))
    assert document["draft_coverage"] == pytest.approx(1.0)


@any_run
@given(run=known_runs())
def test_a_scrape_of_v0(read_text: Callable[..., Answered], run: KnownRun) -> None:
    document = read_text(vllm_files.metrics_v0(run))
    assert (document["draft_rounds"], document["drafted_tokens"]) == (run.rounds, run.drafted_tokens)
    assert_mean(document, run, 1e-12)
    assert document["itl_s"]["mean"] == pytest.approx(run.step_s)
    assert (document["load"]["kv_cache_usage"], document["skipped_lines"]) == (0.5, 0)


@any_run
@given(earlier=known_runs(most_engines=3), seed=known_runs())
def test_two_scrapes_are_subtracted(
    read_text: Callable[..., Answered], earlier: KnownRun, seed: KnownRun
) -> None:
    later = drawn(earlier.draft_length, 0.6, 1 + seed.rounds, len(earlier.accepted), step_s=seed.step_s)
    before, after = vllm_files.metrics(earlier), vllm_files.metrics(later, earlier=earlier)
    for order in ((before, after), (after, before)):  # the process is the same, so the order of files is not
        document = read_text(*order)
        assert_counts(document, later)
        assert document["itl_s"]["mean"] == pytest.approx(later.step_s)
        assert "counters-reset" not in {finding["code"] for finding in document["health"]}


@any_run
@given(earlier=known_runs(most_engines=2), seed=known_runs())
def test_a_restart_counts_from_zero(
    read_text: Callable[..., Answered], earlier: KnownRun, seed: KnownRun
) -> None:
    later = drawn(earlier.draft_length, 0.5, 1 + seed.rounds, len(earlier.accepted))
    document = read_text(vllm_files.metrics(earlier), vllm_files.metrics(later, started=1.8e9))
    assert_counts(document, later)
    assert "counters-reset" in {finding["code"] for finding in document["health"]}


def test_a_restart_shows_in_counters_without_a_start_time(read_text: Callable[..., Answered]) -> None:
    earlier, later = drawn(3, 0.6, 500), drawn(3, 0.6, 200, seed=1)
    document = read_text(vllm_files.metrics(earlier, started=None), vllm_files.metrics(later, started=None))
    assert_counts(document, later)
    assert "counters-reset" in {finding["code"] for finding in document["health"]}


def test_scrapes_of_one_file_are_a_series(read_text: Callable[..., Answered]) -> None:
    parts = [drawn(3, 0.6, 100, seed=seed) for seed in range(12)]
    text, so_far = vllm_files.metrics(parts[0]), parts[0]
    for part in parts[1:]:
        text += vllm_files.metrics(part, earlier=so_far)
        so_far = replace(
            so_far, accepted=(so_far.accepted[0] + part.accepted[0],), requests=so_far.requests + 40
        )
    document = read_text(text)
    assert document["draft_rounds"] == 1100
    assert document["interval_method"] == "block-bootstrap"


@any_run
@given(run=known_runs(most_engines=3))
@pytest.mark.parametrize("wording", ["now", "early"])
def test_logs_of_vllm(read_text: Callable[..., Answered], run: KnownRun, wording: str) -> None:
    """The rounds are not printed, and yet found again from figures of two and three decimals."""
    document = read_text(vllm_files.log(run, wording=wording))
    assert_counts(document, run)
    assert document["skipped_lines"] == 0
    assert document["load"]["running_requests"] == run.concurrency * len(run.accepted)


@any_run
@given(run=known_runs(least_rounds=120))
def test_logs_of_long_intervals_are_found_within_their_rounding(
    read_text: Callable[..., Answered], run: KnownRun
) -> None:
    longer = replace(run, accepted=(run.accepted[0] * 20,))
    document = read_text(vllm_files.log(longer, rounds_each=5000))
    assert document["draft_rounds"] == longer.rounds
    assert document["acceptance_rate_at"] == pytest.approx(
        longer.rates_at, abs=0.0011
    )  # each by half a digit, twice
    assert_mean(document, longer, 1e-9)


@any_run
@given(run=known_runs())
def test_logs_of_v0_hold_totals(read_text: Callable[..., Answered], run: KnownRun) -> None:
    document = read_text(vllm_files.log_v0(run))
    assert (document["draft_rounds"], document["accepted_tokens"]) == (run.rounds, run.accepted_tokens)
    assert_mean(document, run, 1e-12)


def test_totals_of_v0_may_begin_anew(read_text: Callable[..., Answered]) -> None:
    run = drawn(4, 0.7, 400)
    document = read_text(vllm_files.log_v0(run, restart_after=3))
    assert document["draft_rounds"] == run.rounds
    assert "counters-reset" in {finding["code"] for finding in document["health"]}


@any_run
@given(run=known_runs())
def test_benchmarks_of_vllm(read_text: Callable[..., Answered], run: KnownRun) -> None:
    document = read_text(vllm_files.bench_json(run))
    assert_counts(document, run)
    assert_latencies(document, run)
    assert document["throughput_tokens_per_s"] == pytest.approx(run.output_tokens / run.duration_s)
    assert document["load"]["concurrency"] == run.concurrency


@any_run
@given(run=known_runs())
def test_tables_of_vllm(read_text: Callable[..., Answered], run: KnownRun) -> None:
    document = read_text(vllm_files.bench_table(run))
    assert_counts(document, run)
    assert_latencies(document, run, 5.1e-6)


@any_run
@given(run=known_runs())
def test_responses_of_vllm(read_text: Callable[..., Answered], run: KnownRun) -> None:
    document = read_text(vllm_files.responses(run))
    assert_counts(document, run)
    assert document["ttft_s"]["mean"] == pytest.approx(run.ttft_s)
    assert document["draft_coverage"] == pytest.approx(1.0)


@any_run
@given(run=known_runs())
def test_responses_of_sglang(read_text: Callable[..., Answered], run: KnownRun) -> None:
    document = read_text(other_files.sglang_responses(run))
    assert (document["draft_rounds"], document["drafted_tokens"]) == (run.rounds, run.drafted_tokens)
    assert_mean(document, run, 1e-12)


@any_run
@given(run=known_runs(least_rounds=200))
@pytest.mark.parametrize("early", [False, True])
def test_logs_of_sglang(read_text: Callable[..., Answered], run: KnownRun, early: bool) -> None:
    """Mean and draft length, whatever accept rate means; where lines leave it open it is not guessed."""
    rounded_run = replace(run, accepted=(run.accepted[0][: len(run.accepted[0]) // 40 * 40],))
    document = read_text(other_files.sglang_log(rounded_run, early=early))
    assert document["mean_acceptance_length"]["value"] == pytest.approx(rounded_run.mean_length, abs=0.0051)
    assert document["draft_length"] in (rounded_run.draft_length, None)
    open_length = "draft-length-unknown" in {finding["code"] for finding in document["health"]}
    assert open_length is (document["draft_length"] is None)


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("draft_length", [1, 3, 7])
def test_lines_that_differ_tell_the_draft_length(
    read_text: Callable[..., Answered], draft_length: int, early: bool
) -> None:
    document = read_text(other_files.sglang_log(drawn(draft_length, 0.6, 2000), early=early))
    assert document["draft_length"] == draft_length
    assert document["sources"][0]["version"].startswith("up to" if early else "from")


@any_run
@given(run=known_runs())
def test_gauges_of_sglang(read_text: Callable[..., Answered], run: KnownRun) -> None:
    document = read_text(other_files.sglang_metrics(run))
    assert_mean(document, run, 1e-12)
    assert document["load"]["running_requests"] == run.concurrency
    assert document["draft_rounds"] is None


@any_run
@given(run=known_runs())
@pytest.mark.parametrize("write", [other_files.sglang_bench, other_files.sglang_table])
def test_benchmarks_of_sglang(
    read_text: Callable[..., Answered], run: KnownRun, write: Callable[[KnownRun], str]
) -> None:
    document = read_text(write(run))
    assert document["mean_acceptance_length"]["value"] == pytest.approx(run.mean_length, abs=0.0051)
    assert_latencies(document, run, 5.1e-6, "itl_token_s")


@any_run
@given(run=known_runs())
def test_reports_of_trtllm(read_text: Callable[..., Answered], run: KnownRun) -> None:
    for text in (
        other_files.trtllm_report(run),
        other_files.trtllm_report(run, old=True),
        other_files.trtllm_json(run),
    ):
        document = read_text(text)
        assert document["mean_acceptance_length"]["value"] == pytest.approx(run.mean_length, abs=0.0051)
        assert_latencies(document, run, 1e-6, None)


@any_run
@given(run=known_runs())
def test_guidellm_by_its_own_definitions(read_text: Callable[..., Answered], run: KnownRun) -> None:
    document = read_text(other_files.guidellm(run))
    assert_latencies(document, run, gap=None)
    expected = None if run.accepted_tokens == 0 else pytest.approx(run.mean_length)
    assert (document["mean_acceptance_length"] or {}).get("value") == expected
    table = read_text(other_files.guidellm_table(run))
    assert table["tpot_s"]["p50"] == pytest.approx(run.tpot_s, abs=5.1e-5)
    assert table["throughput_tokens_per_s"] == pytest.approx(run.output_tokens / run.duration_s, abs=0.051)


@any_run
@given(run=known_runs())
def test_aiperf(read_text: Callable[..., Answered], run: KnownRun) -> None:
    for text in (other_files.aiperf(run), other_files.aiperf_records(run)):
        document = read_text(text)
        assert_counts(document, run)
        assert document["itl_s"]["mean"] == pytest.approx(run.step_s)
    for text in (other_files.aiperf_table(run), other_files.aiperf_csv(run)):
        assert_latencies(read_text(text), run, 5.1e-6, None)


def test_all_formats_of_one_run_agree(read_text: Callable[..., Answered]) -> None:
    run = drawn(3, 0.7, 2000)
    texts = {
        "scrape": vllm_files.metrics(run),
        "log": vllm_files.log(run),
        "early log": vllm_files.log(run, wording="early"),
        "benchmark": vllm_files.bench_json(run),
        "table": vllm_files.bench_table(run),
        "responses": vllm_files.responses(run),
        "aiperf": other_files.aiperf(run),
        "records": other_files.aiperf_records(run),
    }
    document = {name: read_text(text) for name, text in texts.items()}
    for name, answer in document.items():
        assert answer["acceptance_rate_at"] == pytest.approx(run.rates_at), name
        assert answer["conditional_acceptance"] == pytest.approx(
            document["scrape"]["conditional_acceptance"]
        ), name
        assert answer["geometric_alpha"] == pytest.approx(document["scrape"]["geometric_alpha"]), name


@pytest.mark.parametrize(
    "write",
    [
        vllm_files.metrics,
        vllm_files.log,
        vllm_files.bench_json,
        other_files.aiperf_records,
        other_files.sglang_log,
    ],
)
def test_gzip_utf16_and_windows_line_ends_change_nothing(
    tmp_path: Path, write: Callable[[KnownRun], str]
) -> None:
    text = write(drawn(3, 0.7, 300))
    plain = tmp_path / "plain"
    plain.write_text(text, encoding="utf-8")
    expected = read([str(plain)]).to_json()
    variants = {
        "gzip": gzip.compress(text.encode()),
        "mark": b"\xef\xbb\xbf" + text.encode(),
        "utf-16": text.encode("utf-16"),
        "crlf": text.replace("\n", "\r\n").encode(),
        "colours": text.replace("INFO", "\x1b[32mINFO\x1b[0m").encode(),
    }
    for name, content in variants.items():
        path = tmp_path / name
        path.write_bytes(content)
        document = read([str(path)]).to_json()
        for key in ("mean_acceptance_length", "acceptance_rate_at", "ttft_s", "load", "skipped_lines"):
            assert document[key] == expected[key], (name, key)
