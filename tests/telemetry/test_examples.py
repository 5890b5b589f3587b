"""Files as tools write them: small committed ones, the reference of formats, and those of a real server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from calibration.telemetry.answer import read
from simulator.errors import InputError
from tests.shared_data import SHARED, needs_shared

FILES = Path(__file__).parent / "files"
EXAMPLES, REAL = SHARED / "formats" / "examples", SHARED / "formats" / "real-vllm-0.32"

COUNTED = (
    "vllm_metrics.prom",
    "vllm_bench_serve.json",
    "vllm_server.log",
    "vllm_server_v1_early.log",
    "aiperf_profile_export_aiperf.json",
)
WITHOUT_POSITIONS = (
    "vllm_server_v0.log",
    "sglang_server.log",
    "sglang_metrics.prom",
    "guidellm_benchmarks.json",
)
MEAN_ONLY = ("sglang_bench_serving.jsonl", "trtllm_bench_report.txt", "trtllm_bench_report_old.txt")


def answer(*paths: Path) -> dict[str, Any]:
    """The JSON of `read`."""
    document: dict[str, Any] = json.loads(
        json.dumps(read([str(path) for path in paths]).to_json(), allow_nan=False)
    )
    return document


def codes(document: dict[str, Any]) -> set[str]:
    """The codes of all findings."""
    return {finding["code"] for finding in document["health"]}


# Committed files


def test_pasted_scrapes_of_two_engines() -> None:
    """Two scrapes, with prompts, comments and another exporter's metrics around them."""
    document = answer(FILES / "two-engines.before.prom", FILES / "two-engines.after.prom")
    assert (document["draft_rounds"], document["accepted_tokens"], document["drafted_tokens"]) == (
        700,
        630,
        1400,
    )
    assert document["acceptance_rate_at"] == pytest.approx([420 / 700, 210 / 700])
    assert document["conditional_acceptance"] == pytest.approx([0.6, 0.5])
    assert document["mean_acceptance_length"]["value"] == pytest.approx(1.9)
    assert document["ttft_s"]["mean"] == pytest.approx(0.1)
    assert document["skipped_lines"] == 0


def test_a_pasted_table_with_quote_marks_and_a_prompt() -> None:
    document = answer(FILES / "quoted-table.txt")
    assert document["sources"][0]["format"] == "vllm-bench-table"
    assert document["mean_acceptance_length"]["value"] == pytest.approx(1 + 1373 / 858)
    assert document["ttft_s"] == pytest.approx({"mean": 0.27049, "p50": 0.1598, "p99": 0.68292, "count": 64})
    assert document["load"]["concurrency"] == 16


def test_a_log_that_docker_wrapped_in_json() -> None:
    document = answer(FILES / "docker.log")
    assert document["draft_rounds"] == 200
    assert document["load"]["running_requests"] == 3


def test_a_terminal_table_of_aiperf() -> None:
    document = answer(FILES / "aiperf.txt")
    expected = {
        "mean": 19.99,
        "min": 12.53,
        "max": 49.62,
        "p99": 48.89,
        "p90": 42.24,
        "p50": 13.93,
        "std": 12.92,
    }
    assert document["ttft_s"] == pytest.approx({name: value * 1e-3 for name, value in expected.items()})
    assert document["tpot_s"]["mean"] == pytest.approx(3.71e-3)
    assert document["e2e_s"]["max"] == pytest.approx(7.31935)
    assert document["throughput_tokens_per_s"] == pytest.approx(1234.56)


def test_older_tables_of_guidellm() -> None:
    document = answer(FILES / "guidellm-old.txt")
    assert len(document["readings"]) == 2
    first, second = document["readings"]
    assert first["ttft_s"] == pytest.approx({"mean": 0.0523, "p50": 0.0519, "p99": 0.0605})
    assert first["tpot_s"]["mean"] == pytest.approx(9.2e-3)
    assert (first["throughput_tokens_per_s"], second["throughput_tokens_per_s"]) == (108.5, 910.2)


# The reference of formats: all of these files tell one run


@needs_shared
@pytest.mark.parametrize("name", [*COUNTED, *WITHOUT_POSITIONS, *MEAN_ONLY])
def test_examples_of_one_run_give_the_same_numbers(name: str) -> None:
    document = answer(EXAMPLES / name)
    assert document["mean_acceptance_length"]["value"] == pytest.approx(2.57, abs=1e-9)
    if name in MEAN_ONLY:
        return
    assert document["draft_length"] == 3
    assert document["geometric_alpha"] == pytest.approx(0.7095, abs=5e-5)
    assert document["draft_acceptance_rate"] == pytest.approx(0.52333, abs=5e-6)
    if name in COUNTED:
        assert document["draft_rounds"] == 10_000
        assert document["acceptance_rate_at"] == pytest.approx([0.72, 0.51, 0.34])
        assert document["conditional_acceptance"] == pytest.approx([0.72, 0.7083, 0.6667], abs=5e-5)


@needs_shared
@pytest.mark.parametrize(
    "name",
    [
        "vllm_metrics.prom",
        "vllm_bench_serve.json",
        "aiperf_profile_export_aiperf.json",
        "sglang_bench_serving.jsonl",
        "guidellm_benchmarks.json",
    ],
)
def test_latencies_of_one_run_are_in_one_definition(name: str) -> None:
    document = answer(EXAMPLES / name)
    assert document["ttft_s"]["mean"] == pytest.approx(0.030)
    assert document["tpot_s"]["mean"] == pytest.approx(0.004)
    if document["itl_s"]:
        assert document["itl_s"]["mean"] == pytest.approx(0.01028)
    if document["throughput_tokens_per_s"] is not None:
        assert document["throughput_tokens_per_s"] == pytest.approx(1904.41, abs=0.01)


@needs_shared
def test_single_requests_of_the_reference() -> None:
    for name in ("vllm_response_metrics.json", "sglang_meta_info.json", "aiperf_profile_export.jsonl"):
        document = answer(EXAMPLES / name)
        assert document["mean_acceptance_length"]["value"] == pytest.approx(2.8)
        assert (document["draft_rounds"], document["draft_length"]) == (5, 3)
        assert "few-rounds" in codes(document)
    stated = answer(EXAMPLES / "sglang_meta_info.json")["stated"]
    assert stated[0]["value"] == 3.0  # completion tokens ÷ verify steps, which is not ours


@needs_shared
def test_the_baseline_has_no_acceptance() -> None:
    document = answer(EXAMPLES / "vllm_bench_serve_baseline.json")
    assert document["mean_acceptance_length"] is None
    assert document["tpot_s"]["mean"] == pytest.approx(0.0072)
    assert "speculation" in " ".join(document["notes"])


@needs_shared
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("dataset_sharegpt.json", "a prompt set"),
        ("dataset_custom.jsonl", "a prompt set"),
        ("hf_config.moe_gqa.json", "the config.json of a model"),
        ("hf_config.eagle3_draft.json", "the config.json of a model"),
        ("hf_config.speculators_eagle3.json", "the config.json of a drafter"),
        ("sglang_adaptive_config.json", "an adaptive configuration of SGLang"),
        ("sglang_launch_args.txt", "a launch line"),
        ("trace_azure.csv", "a request trace"),
        ("trace_burstgpt_sessions.csv", "a request trace"),
        ("trace_mooncake.jsonl", "a request trace"),
        ("trtllm_config.eagle3.yaml", "a configuration of TensorRT-LLM"),
        ("vllm_speculative_config.eagle3.json", "a speculative_config of vLLM"),
    ],
)
def test_examples_that_are_no_telemetry_are_refused_by_name(name: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        answer(EXAMPLES / name)


# A real vLLM 0.32 server


@needs_shared
@pytest.mark.parametrize("name", ["draft-24-c1", "draft-24-c16", "ngram-c1", "ngram-c16"])
def test_views_of_one_real_run_agree(name: str) -> None:
    """Scrapes before and after, the client's JSON and its printed table: the same counts, in any order."""
    scrapes = answer(REAL / f"{name}.after.metrics.txt", REAL / f"{name}.before.metrics.txt")
    client, table = answer(REAL / f"{name}.bench.json"), answer(REAL / f"{name}.bench.txt")
    stated = json.loads((REAL / f"{name}.bench.json").read_text())
    for document in (scrapes, client, table):
        assert document["draft_rounds"] == stated["spec_decode_num_drafts"]
        assert document["accepted_tokens"] == stated["spec_decode_accepted_tokens"]
        expected = stated["spec_decode_per_position_acceptance_rates"]
        assert document["acceptance_rate_at"] == pytest.approx(expected, abs=1e-12)
        assert document["skipped_lines"] == 0
    assert scrapes["draft_coverage"] == pytest.approx(client["draft_coverage"])
    assert scrapes["itl_s"]["mean"] == pytest.approx(client["itl_s"]["mean"], rel=0.01)
    assert scrapes["tpot_s"]["mean"] == pytest.approx(client["tpot_s"]["mean"], rel=0.01)
    together = answer(
        *(
            REAL / f"{name}.{end}"
            for end in ("before.metrics.txt", "after.metrics.txt", "bench.json", "bench.txt")
        )
    )
    assert together["draft_rounds"] == stated["spec_decode_num_drafts"]  # views of one run are not added up
    assert "sources-differ" not in codes(together)


@needs_shared
def test_real_n_grams_draft_in_a_third_of_the_steps() -> None:
    document = answer(REAL / "ngram-c16.bench.json")
    assert document["draft_coverage"] == pytest.approx(858 / 2716)
    assert document["tokens_per_step"] == pytest.approx(4032 / 2716)
    assert "draft-coverage" in codes(document)
    assert document["gated"]["match"] == pytest.approx(858 / 2716)
    assert "draft-coverage" not in codes(answer(REAL / "draft-24-c16.bench.json"))


@needs_shared
@pytest.mark.parametrize(("name", "lines"), [("draft-24", 11), ("ngram", 4), ("plain", 0)])
def test_logs_of_the_real_server(name: str, lines: int) -> None:
    document = answer(REAL / f"{name}.server.log")
    assert document["sources"][0]["version"] == "0.32.0"
    assert document["skipped_lines"] == 0
    text = (REAL / f"{name}.server.log").read_text()
    accepted = sum(int(part.split(" tokens")[0]) for part in text.split("Accepted: ")[1:])
    drafted = sum(int(part.split(" tokens")[0]) for part in text.split("Drafted: ")[1:])
    assert (document["accepted_tokens"] or 0, document["drafted_tokens"] or 0) == (accepted, drafted)
    assert text.count("SpecDecoding metrics") == lines
    assert document["load"]["running_requests_max"] >= 14


@needs_shared
def test_runs_of_one_drafter_add_up_and_those_of_two_do_not() -> None:
    single = answer(REAL / "draft-24-c1.bench.json", REAL / "draft-24-c16.bench.json")
    assert single["draft_rounds"] == 542 + 2796
    assert "acceptance-varies-with-batch" not in codes(single)
    two = answer(REAL / "ngram-c16.bench.json", REAL / "draft-24-c16.bench.json")
    assert two["mean_acceptance_length"] is None
    assert [reading["draft_rounds"] for reading in two["readings"]] == [858, 2796]
