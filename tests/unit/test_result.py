"""Arms as estimates, comparisons, and result files."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulator.errors import InputError
from simulator.results.comparison import compare
from simulator.results.record import RunRecord
from simulator.results.result import Provenance, Result, dump_json, read_results
from simulator.results.summary import MeasuredRun, MeasurementScope, VariantMeasurement
from simulator.results.variant_summary import summary_from_json
from tests.records import closed_loop_record

CLOSED = MeasurementScope(open_loop=False)
DRAWS = ([3, 1, 2, 4], [2, 3, 1, 3], [4, 2, 2, 3])


def runs(step_ms: float, draft: bool, scale: float = 1.0, requests_each: int = 20) -> tuple[RunRecord, ...]:
    """Three replications of 4 clients; a plain step emits one token."""
    records = [
        closed_loop_record(4, requests_each, 50, step_ms * scale, draws=draws if draft else [1])
        for draws in DRAWS
    ]
    none = np.zeros((1, 4), np.int64)
    return tuple(
        records if draft else [replace(record, accepted_at=none, drafted_at=none) for record in records]
    )


def measured(records: Iterable[RunRecord], scope: MeasurementScope = CLOSED) -> tuple[MeasuredRun, ...]:
    return tuple(MeasuredRun.of(record, scope) for record in records)


def variant(step_ms: float, draft: bool, scope: MeasurementScope = CLOSED) -> VariantMeasurement:
    faster, slower = runs(step_ms, draft, 0.9)[:1], runs(step_ms, draft, 1.1)[:1]
    parts = [measured(records, scope) for records in (runs(step_ms, draft), faster, slower)]
    return VariantMeasurement(scope, *parts, *parts[1:])


def result() -> Result:
    plain, fast = variant(10, False), variant(12, True)
    comparison = {"eagle3-k3": compare("eagle3-k3", plain, fast)}
    provenance = Provenance(
        "0.1.0", 0, "ab" * 32, "h100-sxm", "cd" * 32, "vllm-0.33", "fast_forward", None, {"run.seed": 0}, 3
    )
    return Result(
        {"name": "by hand"},
        provenance,
        {"plain": plain.summary(), "eagle3-k3": fast.summary()},
        comparison,
        records={"plain": runs(10, False), "eagle3-k3": runs(12, True)},
    )


def value(document: Any, *path: str) -> float:
    for name in path:
        document = document[name]
    return float(document["value"])


def test_metrics_have_all_keys_of_the_contract() -> None:
    metrics = result().to_json()["arms"]["eagle3-k3"]
    assert set(metrics) >= {
        "throughput_tokens_per_s",
        "request_rate_per_s",
        "ttft_s",
        "tpot_s",
        "itl_s",
        "itl_token_s",
        "worst_gap_s",
        "e2e_s",
        "mean_acceptance_length",
        "draft_acceptance_rate",
        "acceptance_rate_at",
        "draft_coverage",
        "mean_batch",
        "preemptions",
        "kv_peak_fraction",
        "steps",
        "saturated",
        "step_s",
        "classes",
        "slo_attainment",
        "goodput_requests_per_s",
    }
    assert set(metrics["step_s"]) == {
        "mean",
        "draft",
        "verify",
        "attention",
        "communication",
        "sampling",
        "host",
    }
    for name in ("ttft_s", "tpot_s", "itl_s", "itl_token_s", "worst_gap_s", "e2e_s"):
        assert set(metrics[name]) == {"mean", "p50", "p90", "p95", "p99", "p999"}
    assert set(metrics["tpot_s"]["mean"]) == {"value", "ci95", "band"}
    assert len(metrics["acceptance_rate_at"]) == 3
    assert metrics["saturated"] is False
    assert metrics["classes"] == {}


def test_band_of_a_figure_covers_ten_percent_of_the_step_time() -> None:
    """Equal replications leave no sampling error, so the band is the model's alone."""
    plain = variant(10, False).summary()
    tpot, throughput = plain["tpot_s.mean"], plain["throughput_tokens_per_s"]
    assert tpot is not None
    assert (tpot.value, tpot.half_width) == pytest.approx((0.010, 0))
    assert tpot.band == pytest.approx((0.009, 0.011))
    assert throughput is not None
    assert throughput.band == pytest.approx((throughput.value / 1.1, throughput.value / 0.9))


def test_speedup_is_paired_and_judged() -> None:
    comparison = compare("eagle3-k3", variant(10, False), variant(12, True))
    throughput, tpot = comparison.ratios["throughput_speedup"], comparison.ratios["tpot_mean_speedup"]
    itl = comparison.ratios["itl_mean_ratio"]
    assert throughput is not None
    assert tpot is not None
    assert itl is not None
    assert throughput.value == pytest.approx(2.5 / 1.2, rel=0.05)
    assert throughput.ci95 is not None
    assert throughput.band is not None
    assert throughput.band[0] < throughput.value / 1.1 < throughput.value / 0.9 < throughput.band[1]
    assert tpot.value > 1.5
    assert itl.value == pytest.approx(1.2), "the gap that a reader feels gets longer all the same"
    assert comparison.verdict.outcome == "pays"
    assert compare("slow", variant(10, False), variant(40, True)).verdict.outcome == "loses"
    assert compare("even", variant(10, False), variant(24, True)).verdict.outcome == "undecided"


def test_percentile_of_too_few_samples_is_null_with_a_note() -> None:
    document = result().to_json()
    metrics = document["arms"]["plain"]
    assert metrics["tpot_s"]["p50"] is not None
    assert metrics["tpot_s"]["p99"] is None
    assert metrics["itl_s"]["p99"] is not None, "76 requests of 50 gaps"
    assert (
        "plain: too few samples for p99 (1,000 in each replication): ttft_s, tpot_s, worst_gap_s, "
        "e2e_s, queue_s"
    ) in document["notes"]


def test_every_null_has_a_reason() -> None:
    notes = " ".join(result().to_json()["notes"])
    assert "plain: no drafts, so no acceptance: mean_acceptance_length" in notes
    assert "the scenario sets no SLO: slo_attainment" in notes


def test_saturated_variant_reports_the_rate_served_and_no_latency() -> None:
    """Arrivals at twice the rate that one server of 100 ms serves."""
    records = []
    for draws in DRAWS:
        served = closed_loop_record(1, 400, 9, 10, draws=draws)
        records.append(
            replace(
                served,
                arrival_ns=served.arrival_ns // 2,
                first_measured=100,
                emitted_before_arrival=served.emitted_before_arrival // 2,
            )
        )
    scope = MeasurementScope(open_loop=True, limits={"tpot_p99_s": 1.0})
    saturated = VariantMeasurement(scope, measured(records, scope))
    metrics = saturated.summary().to_json()
    assert metrics["saturated"] is True
    assert value(metrics, "request_rate_per_s") == pytest.approx(10, rel=0.02)
    assert all(
        entry is None for name in ("ttft_s", "tpot_s", "itl_s", "e2e_s") for entry in metrics[name].values()
    )
    assert metrics["slo_attainment"] is None
    assert metrics["mean_acceptance_length"] is not None
    assert "50% of the rate is served" in saturated.summary().notes[0]
    steady = VariantMeasurement(
        scope,
        measured((closed_loop_record(1, 400, 9, 10, draws=lengths_drawn) for lengths_drawn in DRAWS), scope),
    )
    comparison = compare("spec", saturated, steady)
    assert comparison.verdict.outcome == "pays"
    assert "serves the rate" in comparison.verdict.sentence
    assert comparison.ratios["tpot_mean_speedup"] is None
    assert compare("spec", steady, saturated).verdict.outcome == "loses"
    assert compare("spec", steady, steady).verdict.outcome == "undecided"


def test_an_offered_rate_is_judged_by_tpot() -> None:
    open_loop = MeasurementScope(open_loop=True)
    verdict = compare("spec", variant(10, False, open_loop), variant(12, True, open_loop)).verdict
    assert verdict.outcome == "pays"
    assert "TPOT" in verdict.sentence


def test_one_replication_has_values_without_intervals_and_no_verdict() -> None:
    measurement = VariantMeasurement(CLOSED, measured(runs(10, False)[:1]))
    other = VariantMeasurement(CLOSED, measured(runs(12, True)[:1]))
    tpot = measurement.summary()["tpot_s.mean"]
    assert tpot is not None
    assert tpot.value == pytest.approx(0.010)
    assert tpot.ci95 is None
    assert tpot.band is None
    assert "one replication: no intervals" in measurement.summary().notes
    assert compare("spec", measurement, other).verdict.outcome == "undecided"


def test_written_result_reads_back_and_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = result().write(tmp_path / "a"), result().write(tmp_path / "b")
    for name in ("result.json", "requests-plain.npz", "requests-eagle3-k3.npz"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert first.read_text() == dump_json(result().to_json())
    (read,) = read_results(first.parent)
    assert dump_json(read.to_json()) == second.read_text(), (
        "read and written again, nothing is lost or doubled"
    )
    (record, *_), (before, *_) = read.records["eagle3-k3"], result().records["eagle3-k3"]
    assert record.totals == before.totals
    assert np.array_equal(record.last_ns, before.last_ns)
    assert summary_from_json(read.to_json()["arms"]["plain"]).values() == result().variants["plain"].values()
    assert [result.provenance.seed for result in read_results(tmp_path)] == [0, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "not a result"),
        ('{"schema": "decodesim/simulate-9"}', "not a result of this version"),
        ('{"schema": "decodesim/simulate-1", "arms": {}}', "is damaged"),
        ('{"schema": "decodesim/simulate-1", "arms": {"plain": 3}}', "is damaged"),
        ('{"schema": "decodesim/simulate-1", "arms": [], "comparison": {}}', "is damaged"),
    ],
)
def test_damaged_results_are_refused_by_name(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    file.write_text(text)
    with pytest.raises(InputError, match=message) as error:
        read_results(file)
    assert str(file) in str(error.value)


def test_missing_results_and_damaged_arrays_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no result"):
        read_results(tmp_path)
    with pytest.raises(InputError, match="cannot be read"):
        read_results(tmp_path / "nowhere.json")
    result().write(tmp_path / "a")
    (tmp_path / "a" / "requests-plain.npz").write_bytes(b"PK nothing")
    with pytest.raises(InputError, match="is damaged"):
        read_results(tmp_path / "a")


def test_no_nan_can_be_written() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        dump_json({"value": float("nan")})
    assert json.loads(dump_json({"α": 1})) == {"α": 1}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("arms", "plain"), None, "the variant plain is missing"),
        (("arms",), None, "'arms' is missing"),
        (("arms", "plain"), 5, "no attribute"),
        (("arms", "plain", "throughput_tokens_per_s"), "x", "throughput_tokens_per_s is text"),
        (("arms", "plain", "throughput_tokens_per_s", "value"), float("nan"), "not an estimate"),
        (("arms", "eagle3-k3"), None, "eagle3-k3 is compared, but is no variant"),
        (("comparison", "eagle3-k3", "verdict"), "banana", "unknown verdict 'banana'"),
        (("comparison", "eagle3-k3", "reason"), 5, "no text"),
        (("provenance", "defaults_used"), 5, "no mapping"),
        (("scenario",), 5, "no mapping"),
        (("notes",), [5], "no text"),
    ],
)
def test_what_a_result_cannot_be_without(
    path: tuple[str, ...], value: Any, message: str, tmp_path: Path
) -> None:
    """`None` takes the key away."""
    document = result().to_json()
    holder: Any = document
    for key in path[:-1]:
        holder = holder[key]
    if value is None:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    (tmp_path / "result.json").write_text(json.dumps(document), "utf-8")
    with pytest.raises(InputError, match=message) as error:
        read_results(tmp_path)
    assert str(error.value).startswith(f"{tmp_path}/result.json: ")


def test_an_empty_file_of_requests_is_damaged(tmp_path: Path) -> None:
    result().write(tmp_path)
    (tmp_path / "requests-plain.npz").write_bytes(b"")
    with pytest.raises(InputError, match=r"requests-plain\.npz: is damaged"):
        read_results(tmp_path)


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result().write(tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    def broken(stream: Any, **_: Any) -> None:
        stream.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez_compressed", broken)
    with pytest.raises(KeyboardInterrupt):
        result().write(tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
