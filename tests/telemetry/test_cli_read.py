"""`decodesim read`: its JSON, what people see, its file in a scenario, bad input in one line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from experiments.cli import decodesim
from simulator.acceptance import Gated, Positional, acceptance_model
from simulator.scenario import load_scenario
from tests.shared_data import ROOT, SHARED, needs_shared
from tests.telemetry import other_files, vllm_files
from tests.telemetry.known_run import drawn

RUN = drawn(3, 0.7, 2000, requests=200)
KEYS = {
    "sources",
    "draft_length",
    "mean_acceptance_length",
    "draft_acceptance_rate",
    "acceptance_rate_at",
    "conditional_acceptance",
    "geometric_alpha",
    "tpot_s",
    "itl_s",
    "ttft_s",
    "throughput_tokens_per_s",
    "load",
    "health",
    "skipped_lines",
}
"""The keys of the contract."""


def read(*arguments: object, stdin: bytes | None = None) -> Result:
    """The command in this process."""
    return CliRunner().invoke(decodesim, ["read", *map(str, arguments)], input=stdin, env={"COLUMNS": "100"})


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    """A benchmark result."""
    path = tmp_path / "bench.json"
    path.write_text(vllm_files.bench_json(RUN), encoding="utf-8")
    return path


def test_one_json_document_with_the_keys_of_the_contract(bench: Path) -> None:
    result = read(bench, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    document: dict[str, Any] = json.loads(result.stdout)
    assert document.keys() >= KEYS
    assert document["sources"] == [
        {"file": str(bench), "format": "vllm-bench", "engine": "vllm", "version": None}
    ]
    assert document["mean_acceptance_length"].keys() == {"value", "ci95"}
    assert document["health"] == []


def test_people_see_the_answer_first(bench: Path) -> None:
    lines = read(bench).stdout.splitlines()
    assert lines[0] == "vLLM benchmark bench.json, example-org/Example-8B"
    assert lines[1].startswith(f"→ mean acceptance length {RUN.mean_length:.2f} (95 %: ")
    assert "Health: nothing unusual" in lines
    assert max(map(len, lines)) <= 100


def test_several_sources_are_columns(bench: Path, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(vllm_files.log(RUN), encoding="utf-8")
    text = read(bench, log).stdout
    assert "1  vLLM benchmark bench.json" in text
    assert "2  vLLM log server.log, version 0.32.0" in text
    row = next(line for line in text.splitlines() if line.strip().startswith("draft rounds"))
    assert row.split()[2:] == ["2,000", "2,000"]


def test_findings_show_their_severity_and_code(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(vllm_files.bench(RUN) | {"failed": 3}), encoding="utf-8")
    text = read(path).stdout
    assert "warning  3 requests failed" in text
    assert "failed-requests" in text


@pytest.mark.parametrize("name", ["-", None])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_standard_input(name: str | None, pack: Any) -> None:
    result = read(*([name] if name else []), "--json", stdin=pack(vllm_files.metrics(RUN).encode()))
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["sources"][0]["file"] == "<stdin>"
    assert document["draft_rounds"] == RUN.rounds


def test_the_file_is_an_acceptance_of_scenarios(bench: Path, tmp_path: Path) -> None:
    output = tmp_path / "acceptance.json"
    result = read(bench, "-o", output)
    assert result.exit_code == 0, result.output
    assert "acceptance: {file: acceptance.json}" in result.stderr
    model = acceptance_model({"file": "acceptance.json"}, 3, tmp_path)
    assert isinstance(model, Positional)
    assert model.mean_acceptance_length(3) == pytest.approx(RUN.mean_length)
    text = (ROOT / "examples" / "llama-3.3-70b-eagle3-h100.yaml").read_text(encoding="utf-8")
    path = tmp_path / "scenario.yaml"
    path.write_text(text, encoding="utf-8")
    scenario = load_scenario(path, [f"speculation.eagle3-k3.acceptance={{file: {output}}}"])
    assert scenario.speculation[0].name == "eagle3-k3"


@pytest.mark.parametrize(
    ("text", "length"),
    [
        (other_files.sglang_log(RUN), 3),
        (other_files.sglang_metrics(RUN), 3),
        (other_files.sglang_bench(RUN), 3),
        (vllm_files.log_v0(RUN), 3),
        (other_files.aiperf(RUN), 3),
    ],
)
def test_means_without_positions_become_a_model_too(tmp_path: Path, text: str, length: int) -> None:
    (tmp_path / "source").write_text(text, encoding="utf-8")
    assert read(tmp_path / "source", "-o", tmp_path / "acceptance.json").exit_code == 0
    model = acceptance_model({"file": "acceptance.json"}, length, tmp_path)
    assert model.mean_acceptance_length(length) == pytest.approx(RUN.mean_length, abs=0.006)


@needs_shared
def test_drafters_that_find_no_draft_in_most_steps_become_gated(tmp_path: Path) -> None:
    real = SHARED / "formats" / "real-vllm-0.32" / "ngram-c16.bench.json"
    assert read(real, "-o", tmp_path / "acceptance.json").exit_code == 0
    model = acceptance_model({"file": "acceptance.json"}, 3, tmp_path)
    assert isinstance(model, Gated)
    assert model.mean_acceptance_length(3) == pytest.approx(1 + 1373 / 2716, abs=0.02)  # tokens per step


def test_a_file_is_replaced_with_force_only(bench: Path, tmp_path: Path) -> None:
    output = tmp_path / "acceptance.json"
    output.write_text("mine", encoding="utf-8")
    refused = read(bench, "-o", output)
    assert refused.exit_code == 2
    assert "--force replaces it" in refused.stderr
    assert output.read_text(encoding="utf-8") == "mine"
    assert read(bench, "-o", output, "--force").exit_code == 0
    assert json.loads(output.read_text(encoding="utf-8"))["schema"] == "decodesim/read-1"


def test_without_acceptance_no_file_is_written(tmp_path: Path) -> None:
    plain = {key: value for key, value in vllm_files.bench(RUN).items() if not key.startswith("spec_")}
    (tmp_path / "bench.json").write_text(json.dumps(plain), encoding="utf-8")
    result = read(tmp_path / "bench.json", "-o", tmp_path / "acceptance.json")
    assert result.exit_code == 2
    assert "no acceptance" in result.stderr
    assert not (tmp_path / "acceptance.json").exists()
    assert read(tmp_path / "bench.json").exit_code == 0


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\n\n \n", "is empty"),
        (b"hello world\n", "has no telemetry that can be read, one of: result of `vllm bench serve`"),
        (b"\x7fELF" + bytes(100), "is a program"),
        (b"PK\x03\x04 and so on", "is a zip archive: unpack it first"),
        (b"SQLite format 3\x00" + bytes(50), "is a SQLite database"),
        (bytes(range(256)) * 8, "is a binary file"),
        (b"\x1f\x8b\x08\x00cut", "the gzip data is cut or damaged"),
        (b'{"completed": 3,\n "x": [1, 2', "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"llama_perf_context_print: eval time = 1 ms\n", "is a log of llama.cpp"),
        (b'tgi_request_count{method="generate"} 4\n', "is output of Text Generation Inference"),
        (b'DCGM_FI_DEV_GPU_UTIL{gpu="0"} 3\n', "is metrics of NVIDIA's DCGM exporter"),
        (b'{"traceEvents": []}', "is a trace of a profiler"),
        (
            b'{"status": "success", "data": {"resultType": "vector"}}',
            "is an answer of Prometheus's query API",
        ),
        (b'{"choices": [], "usage": {"completion_tokens": 4}}', "--per-request-spec-decode-metrics"),
        (b'{"schema": "decodesim/simulate-1", "arms": {}}', "is a document of decodesim itself"),
    ],
)
def test_other_files_are_refused_by_name(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    result = read(path)
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith(str(path))
    assert words in line


def test_every_file_that_cannot_be_read_is_named(bench: Path, tmp_path: Path) -> None:
    result = read(bench, tmp_path / "missing", tmp_path)
    assert result.exit_code == 2
    assert [line.rpartition(": ")[2] for line in result.stderr.splitlines()] == [
        "no such file or directory",
        "is a directory",
    ]


def test_nothing_to_read_is_a_matter_of_usage() -> None:
    result = read(stdin=b"")
    assert result.exit_code == 2
    assert "is empty" in result.stderr
