"""Published cases for tests: all committed ones, and small ones by their differences from a plain case."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from calibration.validation.reconstruction.cases import PublishedCase, committed_cases, read_cases
from calibration.validation.reconstruction.evidence import AcceptanceEvidence
from calibration.validation.reconstruction.published_run import PublishedRun
from calibration.validation.reconstruction.reconstruct import published_runs_of, published_runs_of_cases

PLAIN: dict[str, Any] = {
    "case_id": "c",
    "kind": "plain_baseline",
    "hardware": {"gpu": "H100 SXM 80GB", "count": 1, "tp": 1},
    "target": {
        "model": "Llama-3.1-8B-Instruct",
        "params_b": 8.0,
        "arch": "dense",
        "weight_precision": "bf16",
    },
    "framework": {"name": "vLLM", "version": "0.10.1"},
    "workload": {"dataset": "random", "input_len_tokens": 512, "output_len_tokens": 128},
    "load_axis": "concurrency",
    "points": [{"concurrency": 8, "baseline": {"output_tok_per_s": 900.0}}],
    "usable_as_gate": True,
}
SPEC: dict[str, Any] = {
    **PLAIN,
    "kind": "spec_vs_plain",
    "draft": {"method": "eagle3", "k": 3, "topk": 1},
    "points": [{"concurrency": 8, "speedup": 1.6, "acceptance_length": 2.6}],
}


def write_cases(folder: Path, *cases: dict[str, Any], source: str = "here") -> Path:
    """A file of these cases."""
    path = folder / f"{source}.json"
    path.write_text(json.dumps({"schema_version": 1, "source": {"id": source}, "cases": cases}), "utf-8")
    return path


def cases_of(folder: Path, *cases: dict[str, Any], source: str = "here") -> tuple[PublishedCase, ...]:
    """These cases as they are read from a file."""
    return read_cases([write_cases(folder, *cases, source=source)])


def runs_in(folder: Path, *cases: dict[str, Any]) -> list[PublishedRun]:
    """The runs of these cases, with no evidence but their own."""
    read = cases_of(folder, *cases)
    evidence = AcceptanceEvidence.of(read)
    return [run for case in read for run in published_runs_of(case, evidence)]


def changed(base: dict[str, Any], **sections: Any) -> dict[str, Any]:
    """A case with some fields of its sections replaced."""
    merged = {
        name: {**base.get(name, {}), **value} if isinstance(value, dict) else value
        for name, value in sections.items()
    }
    return {**base, **merged}


def the_run(folder: Path, *cases: dict[str, Any]) -> PublishedRun:
    """The one run of these cases."""
    (run,) = runs_in(folder, *cases)
    return run


@cache
def committed_runs() -> tuple[PublishedRun, ...]:
    """All runs of the committed cases, reconstructed once in each process."""
    return published_runs_of_cases(committed_cases())
