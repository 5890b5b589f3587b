"""The tuning guide follows acceptance and load, and its tables the simulation."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from click.testing import CliRunner

from experiments.capacity.decision import DO_NOT, ENABLE, MEASURE_FIRST
from experiments.cli import decodesim
from experiments.tuning.guide import TuningGuide, tune
from experiments.tuning.temperature import BEST, DRAWN, hottest, temperature_rows
from simulator.breakeven.breakeven import breakeven
from simulator.errors import InputError
from simulator.scenario import Scenario, scenario_yaml
from tests.plans import tiny

LOADS = (1, 8)


def scenario(alpha: float | None, method: str = "draft_model", clients: int = 8) -> Scenario:
    """The tiny deployment in a closed loop."""
    changes: dict[str, Any] = {
        "workload.arrivals": {"kind": "closed", "concurrency": clients},
        "speculation.0.method": method,
    }
    if method == "draft_model":
        changes["speculation.0.draft"] = "smollm2-135m-instruct"
    if alpha is not None:
        changes["speculation.0.acceptance.alpha"] = alpha
    return tiny(changes)


@cache
def guide(alpha: float, method: str = "draft_model") -> TuningGuide:
    return tune(scenario(alpha, method), LOADS)


def test_a_poor_drafter_is_left_off_and_a_good_one_taken() -> None:
    poor, good = guide(0.3), guide(0.6, "ngram")
    assert (poor.verdict, good.verdict) == (DO_NOT, ENABLE)
    assert poor.best.pays_up_to is None
    assert good.best.pays_up_to == 8
    assert "decode plainly" in poor.to_json()["markdown"]
    assert "speculative" not in (poor.to_json()["engine"]["vllm"] or "")
    assert "--speculative-config" in good.to_json()["engine"]["vllm"]


def test_the_best_length_grows_with_the_acceptance() -> None:
    lengths = [guide(alpha, "ngram").best.at(8).best_length for alpha in (0.3, 0.6, 0.9)]
    assert all(length is not None for length in lengths)
    assert lengths == sorted(lengths)
    assert lengths[0] != lengths[-1]


def test_break_evens_are_those_of_the_command() -> None:
    row = guide(0.6, "ngram").best.at(8).row
    reference = breakeven(scenario(0.6, "ngram")).rows[0]
    assert row.simulated_alpha is not None
    assert reference.simulated_alpha is not None
    assert row.simulated_alpha.value == pytest.approx(reference.simulated_alpha.value, abs=0.02)


def test_a_schedule_covers_all_batches_once() -> None:
    rows = guide(0.6, "ngram").best.schedule()
    assert rows is not None
    assert rows[0][0] == 1
    assert rows[-1][1] is None
    for (_, last, _), (first, _, _) in pairwise(rows):
        assert last is not None
        assert first == last + 1


def test_an_assumed_acceptance_is_measured_first() -> None:
    data = scenario(0.5).model_dump(mode="json")
    data["speculation"][0].pop("acceptance")
    from simulator.scenario import scenario_from_data

    answer = tune(scenario_from_data(data), LOADS)
    assert answer.verdict == MEASURE_FIRST
    assert answer.best.basis == "assumed"


def test_best_tokens_lose_acceptance_with_the_temperature_and_drawn_ones_do_not() -> None:
    rows = temperature_rows()
    assert [row.temperature for row in rows] == sorted(row.temperature for row in rows)
    assert (rows[0].best_tokens, rows[0].drawn) == (1.0, 1.0)
    assert rows[-1].best_tokens < 0.1 < rows[-1].drawn
    limit, drawn = hottest(0.7, 0.5, BEST), hottest(0.7, 0.5, DRAWN)
    assert limit is not None
    assert drawn is not None
    assert limit < drawn
    assert hottest(0.4, 0.5, BEST) is None


def test_nothing_to_tune_is_told() -> None:
    with pytest.raises(InputError, match="nothing to tune"):
        tune(tiny({"speculation": []}))


def test_the_command_prints_markdown_or_json(tmp_path: Any) -> None:
    file, output = tmp_path / "tiny.yaml", tmp_path / "guide.md"
    file.write_text(scenario_yaml(scenario(0.6, "ngram")), encoding="utf-8")
    done = CliRunner().invoke(decodesim, ["tune", str(file), "--loads", "1,8", "-o", str(output), "--json"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["markdown"] == output.read_text("utf-8")
    assert {"verdict", "stages", "engine", "schedule", "temperature"} <= document.keys()
    wrong = CliRunner().invoke(decodesim, ["tune", str(file), "--loads", "1,x"])
    assert wrong.exit_code == 2
