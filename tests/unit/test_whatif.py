"""What-ifs: paired by replication, on the same luck; and what can be asked for."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from click.testing import CliRunner

from experiments.alternatives import Alternative, alternatives_of, scenario_with
from experiments.cli import decodesim
from experiments.whatif import FigureChange, VariantChange, WhatIf, what_if
from simulator.errors import InputError
from simulator.results.estimate import Estimate
from simulator.results.warm_up import Steadiness
from simulator.runs.variant import CompiledVariant
from simulator.scenario import Scenario
from simulator.simulation import simulate
from tests.runs import small_scenario

CLOSED = {
    "workload.requests": 160,
    "workload.prompt_tokens": {"kind": "lognormal", "median": 200, "p95": 900},
    "workload.output_tokens": {"kind": "lognormal", "median": 40, "p95": 120},
    "run.replications": 4,
}
THROUGHPUT = "throughput_tokens_per_s"


def asked(*settings: str, base: Scenario | None = None) -> WhatIf:
    return what_if(base or small_scenario(CLOSED), alternatives_of([[setting] for setting in settings]))


def variant_of(answer: WhatIf, name: str = "eagle3", index: int = 0) -> VariantChange:
    return answer.outcomes[index].variants[name]


def ratio(change: FigureChange | None) -> Estimate:
    assert change is not None
    assert change.ratio is not None
    return change.ratio


def test_nothing_changes_where_nothing_is_changed() -> None:
    answer = asked("hardware.gpu=h100-sxm")
    for variant in answer.outcomes[0].variants.values():
        for change in variant.figures.values():
            assert ratio(change).value == 1.0
            assert ratio(change).ci95 in ((1.0, 1.0), None)
    assert variant_of(answer).verdict == "undecided"


def test_both_sides_are_those_of_simulate_and_the_ratio_is_theirs() -> None:
    base = small_scenario(CLOSED)
    other = scenario_with(base, ["hardware.gpu=h200-sxm"])
    answer = asked("hardware.gpu=h200-sxm", base=base)
    change = variant_of(answer).figures[THROUGHPUT]
    before, after = (
        simulate(configuration).variants["eagle3"][THROUGHPUT] for configuration in (base, other)
    )
    assert (change.baseline, change.alternative) == (before, after)
    assert before is not None
    assert after is not None
    assert ratio(change).value == pytest.approx(after.value / before.value, rel=1e-3)
    assert variant_of(answer).verdict == "pays"


def test_pairs_are_known_better_than_runs_of_different_luck() -> None:
    """A longer host step leaves the luck of every request as it is."""
    change = variant_of(asked("engine.host.step_s=0.001")).figures[THROUGHPUT]
    assert change.baseline is not None
    assert change.alternative is not None
    apart = math.hypot(change.baseline.relative_half_width, change.alternative.relative_half_width)
    assert ratio(change).relative_half_width < 0.5 * apart


def test_the_gain_over_plain_decoding_is_compared_too() -> None:
    variant = variant_of(asked("speculation.eagle3.acceptance.alpha=0.4"))
    gain = variant.speedup
    assert gain is not None
    assert gain.baseline is not None
    assert gain.alternative is not None
    assert ratio(gain).value == pytest.approx(gain.alternative.value / gain.baseline.value)
    assert variant.verdict == "loses"
    assert asked("speculation.eagle3.acceptance.alpha=0.4").outcomes[0].variants["plain"].speedup is None


def test_variants_that_are_the_same_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[str] = []
    run = CompiledVariant.run

    def counted(self: CompiledVariant, *arguments: Any, **options: Any) -> Any:
        runs.append(self.name)
        return run(self, *arguments, **options)

    monkeypatch.setattr(CompiledVariant, "run", counted)
    better = asked("speculation.eagle3.acceptance.alpha=0.8", "speculation.eagle3.draft_length=5")
    assert runs.count("plain") == 4 + 2  # replications, and both ends of the band
    assert runs.count("eagle3") == 3 * (4 + 4)
    assert ratio(better.outcomes[0].variants["plain"].figures[THROUGHPUT]).band == (1.0, 1.0)


def test_all_sides_leave_out_the_same_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The warm-up of one alternative holds for all: a variant that it leaves as it is does not change."""
    asked_for = iter([0, 0, 0, 70])  # both variants of the baseline, then of the alternative
    monkeypatch.setattr(
        "simulator.runs.replications.steadiness", lambda stays, measured: Steadiness(next(asked_for), None)
    )
    answer = asked("speculation.eagle3.acceptance.alpha=0.9")
    assert {ratio(change).value for change in variant_of(answer, "plain").figures.values()} == {1.0}
    assert sum("the first 70 requests are warm-up" in note for note in answer.notes) == 2


def test_the_cost_model_errs_alike_where_the_kernels_are_the_same() -> None:
    answer = asked("speculation.eagle3.acceptance.alpha=0.75", "hardware.gpu=h200-sxm")
    same, other = (ratio(variant_of(answer, index=index).figures[THROUGHPUT]) for index in (0, 1))
    assert same.band is not None
    assert other.band is not None
    assert (same.band[1] - same.band[0]) / same.value < 0.05
    assert 0.14 < (other.band[1] - other.band[0]) / other.value < 0.25


def test_an_alternative_that_does_not_fit_is_an_answer() -> None:
    answer = asked("engine.gpu_memory_utilization=0.1", "hardware.gpu=h200-sxm")
    assert "leave nothing for KV" in (answer.outcomes[0].why_not or "")
    assert answer.outcomes[0].variants == {}
    assert answer.outcomes[1].variants
    assert answer.to_json()["alternatives"][0]["verdict"] == "does-not-fit"


def test_a_rate_that_one_side_cannot_serve_decides() -> None:
    rate = "workload.arrivals={kind: poisson, rate_per_s: %g}"
    base = small_scenario({**CLOSED, "workload.requests": 400, "engine.max_num_seqs": 4})
    slow = scenario_with(base, [rate % 2.0])
    answer = asked(rate % 60.0, base=slow)
    assert answer.metric == "tpot_s.mean"
    assert variant_of(answer, "plain").verdict == "loses"
    assert variant_of(answer, "plain").figures["tpot_s.mean"].ratio is None


def test_a_precision_is_asked_of_the_ratio() -> None:
    change = ["speculation.eagle3.acceptance.alpha=0.9"]
    loose = asked(*change)
    width = ratio(variant_of(loose).figures[THROUGHPUT]).relative_half_width
    tight = asked(*change, base=small_scenario({**CLOSED, "run.precision": width / 3}))
    assert tight.replications > loose.replications
    assert ratio(variant_of(tight).figures[THROUGHPUT]).relative_half_width <= width / 3


def test_a_drafter_follows_its_target_and_its_gpus() -> None:
    base = small_scenario({"speculation": [{"name": "e", "method": "eagle3"}], "hardware.tensor_parallel": 2})
    assert base.speculation[0].draft == "eagle3-llama-3.1-8b"
    changed = scenario_with(base, ["target.model=llama-3.3-70b-instruct", "hardware.tensor_parallel=4"])
    assert changed.speculation[0].draft == "eagle3-llama-3.3-70b"
    spread = scenario_with(base, ["speculation.e.draft_tensor_parallel=2"])
    assert spread.draft_tensor_parallel(spread.speculation[0]) == 2
    wider = scenario_with(spread, ["hardware.tensor_parallel=4"])
    assert wider.draft_tensor_parallel(wider.speculation[0]) == 4


def test_settings_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(InputError, match=r"--set hardware\.gpu: .*h100sxm"):
        asked("hardware.gpu=h100sxm")
    with pytest.raises(InputError, match="listed twice"):
        alternatives_of([["hardware.gpu=h200-sxm"], [" hardware.gpu=h200-sxm"]])
    with pytest.raises(InputError, match="sets nothing"):
        alternatives_of([[" "]])


def test_alternatives_are_named_by_what_they_set() -> None:
    (alternative,) = alternatives_of([["hardware.gpu=h200-sxm", "speculation.e.acceptance.alpha=0.8"]])
    assert alternative == Alternative("gpu=h200-sxm, e.acceptance.alpha=0.8", alternative.settings)
    assert not alternative.runs_the_same_kernels("e")


def test_the_same_kernels_are_those_of_a_variant() -> None:
    host, longer = alternatives_of([["engine.host.step_s=0.001"], ["speculation.e.draft_length=5"]])
    assert host.runs_the_same_kernels("plain")
    assert host.runs_the_same_kernels("e")
    assert longer.runs_the_same_kernels("plain")
    assert not longer.runs_the_same_kernels("e")


def run(*arguments: str) -> Any:
    flags = "--model llama-3.1-8b-instruct --method eagle3 --concurrency 4".split()
    return CliRunner().invoke(decodesim, ["whatif", *flags, *arguments], env={"COLUMNS": "140"})


def test_the_command_says_it_in_words_and_in_one_table() -> None:
    done = run(
        "--set", "hardware.gpu=h200-sxm", "--versus", "engine.host.step_s=0; engine.host.per_sequence_s=0"
    )
    assert done.exit_code == 0, done.output
    assert "→ gpu=h200-sxm: plain: better: throughput × 1." in done.stdout
    assert "→ step_s=0, per_sequence_s=0: eagle3-k3: better" in done.stdout
    assert "eagle3-k3: gain over plain" in done.stdout
    table = [line for line in done.stdout.splitlines() if line.strip().startswith("plain: throughput")]
    assert len(table) == 1


def test_json_is_one_document() -> None:
    done = run("--set", "hardware.gpu=h200-sxm", "--base", "workload.requests=150", "--json")
    document = json.loads(done.stdout)
    assert document["schema"] == "decodesim/whatif-1"
    (alternative,) = document["alternatives"]
    figure = alternative["arms"]["plain"]["figures"][THROUGHPUT]
    assert math.isclose(
        figure["ratio"]["value"], figure["alternative"]["value"] / figure["baseline"]["value"], rel_tol=1e-2
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--set: is missing, so there is no alternative"),
        (("--set", "hardware.gpus=2"), "hardware.gpus"),
        (("--set", "hardware.gpu=h200-sxm", "--precision", "lots"), "--precision: is not a precision"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[str, ...], message: str) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
