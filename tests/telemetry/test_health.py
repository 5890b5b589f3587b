"""Every finding has a run that raises it, and the run without its cause that does not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration.telemetry.answer import read
from tests.shared_data import ROOT
from tests.telemetry import other_files, vllm_files
from tests.telemetry.known_run import KnownRun, drawn

FINE = drawn(3, 0.7, 4000, requests=200)


@pytest.fixture
def codes(tmp_path: Path) -> Callable[..., set[str]]:
    """The codes of the findings on texts, read as files in this order."""

    def finding_codes(*texts: str) -> set[str]:
        names = []
        for number, text in enumerate(texts):
            path = tmp_path / f"file-{number}"
            path.write_text(text, encoding="utf-8")
            names.append(str(path))
        return {finding.code for finding in read(names).findings}

    return finding_codes


def bench(run: KnownRun = FINE, **changes: Any) -> str:
    """A benchmark result of vLLM with some fields changed."""
    return json.dumps(vllm_files.bench(run) | changes)


def detailed(run: KnownRun, chunks: int, **changes: Any) -> str:
    """A result with details: all requests alike, with so many chunks after the first."""
    tokens = run.output_tokens // run.requests
    details = {
        "input_lens": [100 + place for place in range(run.requests)],
        "output_lens": [tokens] * run.requests,
        "ttfts": [run.ttft_s] * run.requests,
        "itls": [[run.tpot_s * (tokens - 1) / chunks] * chunks] * run.requests,
    }
    return bench(run, **details | changes)


def test_a_run_that_is_fine_stays_silent(codes: Callable[..., set[str]]) -> None:
    assert codes(bench()) == set()
    assert codes(vllm_files.log(FINE)) == set()
    assert codes(detailed(FINE, 20)) == set()
    assert codes(other_files.aiperf(FINE)) == set()


@pytest.mark.parametrize(("alpha", "raised"), [(0.0, True), (0.01, True), (0.3, False), (0.7, False)])
def test_a_drafter_that_does_not_work(codes: Callable[..., set[str]], alpha: float, raised: bool) -> None:
    for text in (bench(drawn(3, alpha, 4000, requests=200)), vllm_files.log(drawn(3, alpha, 4000))):
        assert ("acceptance-none" in codes(text)) is raised


def test_exactly_one_token_per_round_in_a_gauge(codes: Callable[..., set[str]]) -> None:
    assert "acceptance-none" in codes(other_files.sglang_metrics(drawn(3, 0.0, 100)))
    assert "acceptance-none" not in codes(other_files.sglang_metrics(FINE))


def test_every_draft_accepted(codes: Callable[..., set[str]]) -> None:
    assert "acceptance-perfect" in codes(bench(drawn(3, 1.0, 4000, requests=200)))
    assert "acceptance-perfect" not in codes(bench(drawn(3, 0.99, 4000, requests=200)))


def test_few_rounds(codes: Callable[..., set[str]]) -> None:
    assert "few-rounds" in codes(bench(drawn(3, 0.7, 20, requests=200)))
    assert "few-rounds" not in codes(bench())


def log_of_two_loads(small: float, large: float) -> str:
    """A log at 4 and then 32 running requests, with α `small` and `large`."""
    return "".join(
        vllm_files.log(drawn(3, alpha, 1000, concurrency=clients, seed=clients))
        for alpha, clients in ((small, 4), (large, 32))
    )


def test_acceptance_that_varies_with_the_batch_of_a_log(codes: Callable[..., set[str]]) -> None:
    assert "acceptance-varies-with-batch" in codes(log_of_two_loads(0.7, 0.5))
    assert "acceptance-varies-with-batch" not in codes(log_of_two_loads(0.7, 0.7))


def test_acceptance_that_varies_between_runs(codes: Callable[..., set[str]]) -> None:
    runs = {alpha: drawn(3, alpha, 4000, requests=200, concurrency=64, seed=2) for alpha in (0.5, 0.7)}
    assert "acceptance-varies-with-batch" in codes(bench(), bench(runs[0.5]))
    assert "acceptance-varies-with-batch" not in codes(bench(), bench(runs[0.7]))


def test_draft_coverage_with_details_and_by_estimate(codes: Callable[..., set[str]]) -> None:
    rounds = FINE.rounds // FINE.requests
    assert "draft-coverage" in codes(detailed(FINE, rounds * 2))
    assert "draft-coverage" not in codes(detailed(FINE, rounds))
    assert "draft-coverage" in codes(bench(mean_itl_ms=FINE.tpot_s * 1e3 * 1.2))
    assert "draft-coverage" not in codes(bench())


def test_rounds_of_different_length(codes: Callable[..., set[str]]) -> None:
    assert "short-drafts" in codes(bench(spec_decode_draft_tokens=FINE.drafted_tokens - 500))
    assert "short-drafts" not in codes(bench())


def test_counts_that_contradict_one_another(codes: Callable[..., set[str]]) -> None:
    rates = FINE.rates_at
    assert "contradiction" in codes(bench(spec_decode_per_position_acceptance_rates=rates[::-1]))
    assert "contradiction" in codes(bench(spec_decode_accepted_tokens=FINE.drafted_tokens + 1))
    assert "contradiction" in codes(bench(spec_decode_per_position_acceptance_rates=rates[:-1]))
    assert "contradiction" not in codes(bench())


def test_quantiles_below_the_first_bucket(codes: Callable[..., set[str]]) -> None:
    fast, slow = replace(FINE, ttft_s=0.0005), replace(FINE, ttft_s=0.03)
    assert "below-first-bucket" in codes(vllm_files.metrics(fast))
    assert "below-first-bucket" not in codes(vllm_files.metrics(replace(slow, step_s=0.03)))
    assert "above-last-bucket" in codes(vllm_files.metrics(replace(slow, ttft_s=9.0)))


def test_random_prompts(codes: Callable[..., set[str]]) -> None:
    line = "Namespace(dataset_name='{}', ignore_eos={})\n"
    table = vllm_files.bench_table(FINE)
    assert {"random-prompts", "ignore-eos"} <= codes(line.format("random", True) + table)
    assert not {"random-prompts", "ignore-eos"} & codes(line.format("sharegpt", False) + table)
    sglang = json.loads(other_files.sglang_bench(FINE))
    assert "random-prompts" in codes(json.dumps(sglang | {"dataset_name": "random"}))
    assert "prompts-alike" in codes(detailed(FINE, 20, input_lens=[512] * FINE.requests))


def test_all_requests_at_once_without_a_limit(codes: Callable[..., set[str]]) -> None:
    assert "saturation-test" in codes(bench(max_concurrency=None))
    assert "saturation-test" not in codes(bench(max_concurrency=None, request_rate=4.0))
    assert "saturation-test" not in codes(bench())


def test_load_that_disturbs(codes: Callable[..., set[str]]) -> None:
    assert "failed-requests" in codes(bench(failed=3))
    log = vllm_files.log(FINE)
    assert "kv-full" in codes(log.replace("usage: 25.0%", "usage: 99.0%"))
    assert "queue" in codes(log.replace("Waiting: 0", "Waiting: 7"))
    preempted = vllm_files.metrics(FINE) + 'vllm:num_preemptions_total{engine="0",model_name="m"} 4.0\n'
    assert "preemptions" in codes(preempted)


def test_graphs_that_are_lost(codes: Callable[..., set[str]]) -> None:
    log = vllm_files.log(FINE)
    assert "piecewise-graphs" in codes(f"Overriding cudagraph_mode from FULL to PIECEWISE\n{log}")
    assert "piecewise-graphs" not in codes(log)
    sglang = other_files.sglang_log(FINE)
    assert "eager-steps" in codes(sglang.replace("cuda graph: True", "cuda graph: False", 5))
    assert "eager-steps" not in codes(sglang)


def test_figures_that_differ_from_their_own_counts(codes: Callable[..., set[str]]) -> None:
    assert "stated-differs" in codes(bench(spec_decode_acceptance_length=2.0))
    assert "stated-differs" in codes(detailed(FINE, 20, mean_ttft_ms=99.0))
    assert "stated-differs" not in codes(detailed(FINE, 20))


def test_chunks_of_several_tokens_without_counters(codes: Callable[..., set[str]]) -> None:
    plain = {key: value for key, value in json.loads(detailed(FINE, 20)).items() if "spec_" not in key}
    assert "unseen-speculation" in codes(json.dumps(plain))
    chunks = FINE.output_tokens // FINE.requests - 1
    slow = {key: value for key, value in json.loads(detailed(FINE, chunks)).items() if "spec_" not in key}
    assert "unseen-speculation" not in codes(json.dumps(slow))


def test_sources_of_other_traffic(codes: Callable[..., set[str]]) -> None:
    other = drawn(3, 0.4, 4000, requests=200)
    assert "sources-differ" in codes(bench(), vllm_files.log(other))
    assert "sources-differ" not in codes(bench(), vllm_files.log(FINE))


def test_a_few_counted_requests_give_way_to_the_mean_of_a_run(tmp_path: Path) -> None:
    few, run = tmp_path / "few", tmp_path / "run"
    few.write_text(other_files.sglang_responses(drawn(3, 0.2, 20)))
    run.write_text(other_files.sglang_bench(FINE))
    document = read([str(few), str(run)]).to_json()
    assert document["mean_acceptance_length"]["value"] == pytest.approx(FINE.mean_length)
    assert [Path(source["file"]).name for source in document["sources"]] == ["few", "run"]


def test_a_file_given_twice_counts_once(codes: Callable[..., set[str]], tmp_path: Path) -> None:
    assert "repeated-run" in codes(bench(), bench())
    document = read([str(tmp_path / "file-0"), str(tmp_path / "file-1")]).to_json()
    assert document["draft_rounds"] == FINE.rounds


def test_several_models_in_one_scrape(codes: Callable[..., set[str]]) -> None:
    both = (
        vllm_files.metrics(FINE)
        + vllm_files.metrics(replace(FINE, model="other")).partition("\n")[2].partition("\n")[2]
    )
    assert "several-models" in codes(both)
    assert "several-models" not in codes(vllm_files.metrics(FINE))


def test_lines_that_are_left_out_are_told_with_the_first_reason(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(
        vllm_files.log(FINE) + "SpecDecoding metrics: Mean acceptance\nSpecDecoding metrics: Mean\n"
    )
    (finding,) = read([str(path)]).findings
    assert (finding.code, finding.severity) == ("skipped-lines", "warning")
    assert "2 lines" in finding.text
    assert "line 163" in finding.text


def test_the_severest_finding_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_text(bench(drawn(3, 0.0, 4000, requests=50), failed=2))
    severities = [finding.severity for finding in read([str(path)]).findings]
    assert severities == sorted(severities, key=["error", "warning", "info"].index)
    assert severities[0] == "error"
    assert np.unique(severities).size == 3


def test_every_finding_is_explained_on_the_page() -> None:
    page = (ROOT / "docs" / "read.md").read_text(encoding="utf-8")
    sources = (ROOT / "calibration" / "telemetry").rglob("*.py")
    document = {
        code
        for path in sources
        for code in re.findall(r'(?:Finding|_beyond)\(\s*"([a-z-]+)"', path.read_text())
    }
    assert len(document) > 30
    assert [code for code in sorted(document) if f"`{code}`" not in page] == []
