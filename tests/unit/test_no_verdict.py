"""When there is no verdict, and what a verdict says that it rests on and trades away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simulator.errors import InputError
from simulator.results.comparison import Comparison, trade_of
from simulator.results.estimate import Estimate
from simulator.results.verdict import LOSES, NO_VERDICT, PAYS, UNDECIDED
from simulator.scenario import scenario_from_data
from simulator.simulation import simulate
from tests.runs import small_scenario

FEW = {"run.replications": 2, "workload.requests": 40}


def compared(changes: dict[str, Any]) -> tuple[Comparison, list[str]]:
    result = simulate(small_scenario({**FEW, **changes}), keep_requests=False)
    document = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert document["comparison"]["eagle3"]["verdict"] == result.comparison["eagle3"].verdict.outcome
    return result.comparison["eagle3"], list(document["notes"])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"workload.arrivals": {"kind": "closed", "concurrency": 64}, "workload.requests": 10},
            "10 requests never keep 64 clients busy at once",
        ),
        (
            {"workload.arrivals": {"kind": "closed", "concurrency": 38}},
            "requests end between warm-up and drain, and 30 are needed",
        ),
        ({"workload.timeout_s": 1e-9}, "only 0 requests end between warm-up and drain"),
        ({"speculation.0.draft_length": [[1, None, 0]]}, "no drafts were verified"),
    ],
)
def test_too_little_gets_no_verdict_and_its_reason_in_the_notes(changes: dict[str, Any], reason: str) -> None:
    comparison, notes = compared(changes)
    assert comparison.verdict.outcome is NO_VERDICT
    assert reason in comparison.verdict.sentence
    assert comparison.verdict.sentence in notes


def test_a_draft_length_of_0_is_called_plain_decoding() -> None:
    note = "eagle3: a draft length of 0 is plain decoding with the drafter in memory"
    assert note in compared({"speculation.0.draft_length": 0})[1]
    assert note not in compared({"speculation.0.draft_length": 1})[1]


def test_enough_gets_one() -> None:
    comparison, notes = compared({})
    assert comparison.verdict.outcome == PAYS
    assert comparison.acceptance_basis == "given"
    assert not any("no verdict" in note for note in notes)


def data_of(**acceptance: Any) -> dict[str, Any]:
    data = small_scenario(FEW).model_dump(mode="json")
    del data["speculation"][0]["acceptance"]
    data["speculation"][0] |= acceptance
    return data


def test_an_acceptance_that_is_assumed_gets_the_length_that_it_takes_in_place_of_a_verdict() -> None:
    comparison = simulate(scenario_from_data(data_of()), keep_requests=False).comparison["eagle3"]
    assert comparison.acceptance_basis == "assumed"
    assert comparison.verdict.outcome is NO_VERDICT
    assert "no acceptance was given: it takes about 1." in comparison.verdict.sentence


def test_an_acceptance_from_a_file_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "acceptance.json"
    file.write_text(json.dumps({"schema": "decodesim/accept-1", "rows": ROWS}))
    scenario = scenario_from_data(data_of(acceptance={"file": "acceptance.json"}), tmp_path)
    comparison = simulate(scenario, keep_requests=False).comparison["eagle3"]
    assert comparison.acceptance_basis == "measured"
    assert comparison.verdict.outcome in (PAYS, LOSES, UNDECIDED)


ROWS = [{"draft_length": 3, "conditional_acceptance": [0.8, 0.7, 0.6]}]


def test_traffic_of_which_no_request_fits_the_context_is_an_error() -> None:
    with pytest.raises(InputError, match=r"none of the requests: each is longer than the model's context"):
        simulate(small_scenario({**FEW, "workload.prompt_tokens.tokens": 200_000}))


def test_a_verdict_names_the_tail_latencies_that_change_against_it() -> None:
    def ratio(value: float) -> Estimate:
        return Estimate(value, (value * 0.99, value * 1.01), (value * 0.95, value * 1.05))

    ratios = {"throughput_speedup": ratio(1.2), "tpot_p99_speedup": ratio(0.5), "itl_p99_ratio": ratio(1.3)}
    assert trade_of(PAYS, ratios) == "but worse: TPOT P99 × 2.00, ITL P99 × 1.30"
    assert trade_of(LOSES, ratios) is None
    assert trade_of(LOSES, {"tpot_p99_speedup": ratio(1.25)}) == "but better: TPOT P99 × 0.80"
    assert trade_of(PAYS, {"itl_p99_ratio": ratio(1.03)}) is None
    assert trade_of(UNDECIDED, ratios) is None


def test_a_missed_limit_of_the_slo_is_noted_for_each_variant() -> None:
    _, notes = compared({"workload.requests": 1_500, "slo": {"ttft_p99_s": 1e-3, "tpot_p99_s": 10.0}})
    missed = [note for note in notes if "misses the SLO" in note]
    assert [note.partition(":")[0] for note in missed] == ["plain", "eagle3"]
    assert all("TTFT P99" in note and "limit 1.00 ms" in note and "TPOT" not in note for note in missed)
