"""End-to-end serving runs that lie beside the repository, as a file of cases that nobody has seen.

1,285 rows of NVIDIA's and InferenceX's sweeps (`data/silicon/e2e_serving.csv`): mean TTFT and TPOT of plain
serving by model, engine, parallelism, lengths and clients. Rows that repeat a value count once. Left out:
attention that is data-parallel, which is not simulated.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from typing import Any

import pytest

from calibration.validation.errors import ErrorSummary, errors_of
from calibration.validation.groups import grouped
from calibration.validation.reconstruction.cases import read_cases
from calibration.validation.validate import Validation, validate
from tests.shared_data import SHARED, needs_shared

pytestmark = [needs_shared, pytest.mark.timeout(600)]

_POINT = ("isl", "osl", "batch_size", "silicon_tpot_ms", "silicon_ttft_ms")
_SOURCE = ("backend", "model_path", "system", "precision", "origin")
_ENGINES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}


def runs() -> list[dict[str, str]]:
    """The rows whose attention is tensor-parallel, each value once, in order."""
    seen: dict[tuple[str, ...], dict[str, str]] = {}
    with (SHARED / "data" / "silicon" / "e2e_serving.csv").open(encoding="utf-8") as handle:
        for row in csv.DictReader(handle):
            if row["attention_dp_size"] in ("", "1"):
                key = tuple(row[name] for name in (*_SOURCE, "tp_size", *_POINT))
                seen.setdefault(key, row)
    return list(seen.values())


def as_cases(rows: list[dict[str, str]]) -> dict[str, Any]:
    """The rows in the schema of published cases: a case per configuration, a point per load."""
    cases: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in rows:
        key = tuple(row[name] for name in (*_SOURCE, "tp_size", "moe_ep_size"))
        case = cases.setdefault(key, _case(row, " ".join(key)))
        case["points"].append(
            {
                "concurrency": int(row["batch_size"]),
                "isl": int(row["isl"]),
                "osl": int(row["osl"]),
                "baseline": {
                    "tpot_mean_ms": float(row["silicon_tpot_ms"]),
                    "ttft_mean_ms": float(row["silicon_ttft_ms"]),
                },
            }
        )
    return {"schema_version": 1, "source": {"id": "e2e_serving"}, "cases": list(cases.values())}


def _case(row: Mapping[str, str], name: str) -> dict[str, Any]:
    ranks = int(row["tp_size"])
    return {
        "case_id": name,
        "source_id": " ".join(row[part] for part in ("backend", "model_path", "origin")),
        "kind": "plain_baseline",
        "confidence": "verbatim",
        "hardware": {
            "gpu": row["system"].replace("_", " ").upper(),
            "count": ranks,
            "tp": ranks,
            "ep": int(row["moe_ep_size"] or 1),
        },
        "target": {"model": row["model_path"], "weight_precision": row["precision"] or None},
        "framework": {"name": _ENGINES[row["backend"]], "version": row["backend_version"] or None},
        "workload": {},
        "load_axis": "concurrency",
        "points": [],
        "usable_as_gate": True,
    }


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Validation:
    """All runs, simulated."""
    path = tmp_path_factory.mktemp("e2e") / "e2e_serving.json"
    path.write_text(json.dumps(as_cases(runs())), encoding="utf-8")
    return validate(read_cases([path]), workers=1)


def by_model(validation: Validation, quantity: str) -> dict[str, ErrorSummary]:
    """Errors by engine, model and origin."""
    rows = [row for row in validation.rows if row.quantity == quantity and row.skipped is None]
    return {name: errors_of(of_group) for name, of_group in grouped(rows, lambda row: row.source).items()}


def test_unseen_runs_are_read_and_nearly_all_simulated(compared: Validation) -> None:
    rows = compared.rows
    assert len(rows) > 1500
    assert sum(row.skipped is None for row in rows) > 0.8 * len(rows)
    assert not [reason for reason in compared.coverage.reasons if reason.startswith("failed")]


def test_tpot_of_unseen_runs(compared: Validation) -> None:
    """Every second of the large sets, and all rows together, are within 10 %, without bias."""
    result = by_model(compared, "tpot_mean")
    show(result)
    large = {name: errors.median_abs_log_error or 1.0 for name, errors in result.items() if errors.n >= 30}
    assert len(large) >= 12
    assert sum(error <= 0.10 for error in large.values()) >= len(large) / 2
    pooled = errors_of(row for row in compared.rows if row.quantity == "tpot_mean")
    assert (pooled.median_abs_log_error or 1.0) <= 0.10
    assert abs(pooled.bias or 1.0) <= 0.05


def test_first_tokens_where_it_is_known_how_many_requests_were_sent(compared: Validation) -> None:
    """InferenceX sends ten prompts per client, the first of all clients at once: most of the mean TTFT."""
    result = by_model(compared, "ttft_mean")
    show(result)
    for name in (
        "vllm meta-llama/Llama-3.1-70B inferencex-dump",
        "vllm moonshotai/Kimi-K2.5 inferencex-dump",
    ):
        assert (result[name].median_abs_log_error or 9.0) <= math.log(1.3), name


def show(result: Mapping[str, ErrorSummary]) -> None:
    """The errors of every set, for a person."""
    for name, errors in result.items():
        bias, size = errors.bias or 0.0, errors.median_abs_log_error or 0.0
        print(f"{name}: n {errors.n}, bias {bias:+.1%}, median {size:.1%}")
