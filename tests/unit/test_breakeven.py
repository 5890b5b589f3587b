"""Break-even rows on a evaluator whose throughput is a formula, so that every answer is known."""

import json
import math
from collections.abc import Mapping

import pytest

from simulator.breakeven.answer import BreakEvenRow
from simulator.breakeven.breakeven import break_even_of, breakeven
from simulator.breakeven.evaluator import DoesNotFitError
from simulator.breakeven.theory import required_acceptance_linear, required_alpha_geometric, tokens_per_verify
from simulator.errors import InputError
from tests.runs import small_scenario


class FormulaEvaluator:
    """D requests: plain D / T tokens per second, speculative D · E / (T · (1 + c · K)); c rises with D."""

    def __init__(
        self,
        concurrency: int,
        alpha: float | None = 0.7,
        saturated: bool = False,
        fits: bool = True,
        rate: float | None = None,
    ) -> None:
        self.load: Mapping[str, float] = (
            {"concurrency": concurrency} if rate is None else {"rate_per_s": rate}
        )
        self.scenario_alpha = alpha
        self.concurrency, self.saturated, self.fits = concurrency, saturated, fits
        self.open_loop = rate is not None
        self.draft_length_varies = False
        self.runs = 0

    def step_s(self, draft_length: int, batch: float) -> float:
        return 0.01 * (1 + 0.1 * (1 + batch / 64) * draft_length)

    def _figures(self, tokens: float, step_s: float) -> dict[str, float]:
        self.runs += 1
        return {
            "throughput_tokens_per_s": self.concurrency * tokens / step_s,
            "tpot_s.mean": step_s / tokens,
            "itl_s.p99": step_s,
            "goodput_requests_per_s": math.nan,
            "mean_batch": float(self.concurrency),
            "mean_acceptance_length": tokens,
        }

    def plain(self, replication: int) -> Mapping[str, float]:
        return self._figures(1.0, self.step_s(0, self.concurrency))

    def plain_is_saturated(self, replications: int) -> bool:
        return self.saturated

    def speculative(
        self, draft_length: int, alpha: float, replication: int, step_scale: float
    ) -> Mapping[str, float]:
        if not self.fits:
            raise DoesNotFitError("the drafter leaves no room: 0 of 1 requests")
        step_s = self.step_s(draft_length, self.concurrency) * step_scale
        return self._figures(tokens_per_verify(alpha, draft_length), step_s)


def row_of(
    evaluator: FormulaEvaluator, draft_length: int = 3, target: float = 1.0, metric: str = "throughput"
) -> BreakEvenRow:
    return break_even_of([evaluator], [draft_length], [target], [metric], replications=3, band=0.1).rows[0]


@pytest.mark.parametrize(
    ("concurrency", "draft_length", "target"), [(1, 1, 1.0), (64, 3, 1.0), (64, 5, 1.5), (192, 5, 1.9)]
)
@pytest.mark.parametrize("metric", ["throughput", "tpot_mean"])
def test_simulated_break_even_meets_the_closed_form_where_nothing_else_happens(
    concurrency: int, draft_length: int, target: float, metric: str
) -> None:
    row = row_of(FormulaEvaluator(concurrency), draft_length, target, metric)
    overhead = 0.1 * (1 + concurrency / 64) * draft_length
    assert row.overhead == pytest.approx(overhead)
    assert row.linear_acceptance_rate == required_acceptance_linear(row.overhead or 0, draft_length, target)
    exact = required_alpha_geometric(overhead, draft_length, target)
    assert row.geometric_alpha == pytest.approx(exact)
    assert row.simulated_alpha is not None
    assert row.mean_acceptance_length is not None
    assert row.simulated_alpha.value == pytest.approx(exact, abs=5e-4)
    assert row.mean_acceptance_length.value == pytest.approx(target * (1 + overhead), rel=2e-3)


def test_scenario_alpha_above_below_and_inside_the_band() -> None:
    root = row_of(FormulaEvaluator(64)).simulated_alpha
    assert root is not None
    assert root.band is not None
    low, high = root.band
    assert high - low > 0.05
    verdicts = [
        row_of(FormulaEvaluator(64, alpha)).verdict
        for alpha in (low - 0.01, low + 0.01, high - 0.01, high + 0.01)
    ]
    assert verdicts == ["loses", "undecided", "undecided", "pays"]
    assert row_of(FormulaEvaluator(64, alpha=None)).verdict == "undecided"


def test_unreachable_target_says_so_and_has_no_alpha() -> None:
    row = row_of(FormulaEvaluator(64), 1, target=2.0)
    assert row.verdict == "unreachable"
    assert row.simulated_alpha is None
    assert row.geometric_alpha is None
    assert row.linear_acceptance_rate is None
    assert row.note is not None
    answer = break_even_of([FormulaEvaluator(64)], [1], [2.0, 3.0], ["throughput"], replications=3, band=0.1)
    assert [note.partition(":")[0] for note in answer.notes] == [
        f"64 clients, draft length 1, throughput, target {target}×" for target in (2, 3)
    ]


def test_target_that_needs_no_draft_accepted_is_zero() -> None:
    row = row_of(FormulaEvaluator(1), 1, target=0.8)
    assert row.simulated_alpha is not None
    assert row.simulated_alpha.value == 0
    assert row.linear_acceptance_rate == 0
    assert row.verdict == "pays"


def test_an_itl_that_only_grows_is_unreachable() -> None:
    assert row_of(FormulaEvaluator(64), metric="itl_p99").verdict == "unreachable"


def test_rows_say_does_not_fit_saturated_and_what_is_not_defined() -> None:
    assert row_of(FormulaEvaluator(64, fits=False)).verdict == "does-not-fit"
    assert "no room" in str(row_of(FormulaEvaluator(64, fits=False)).note)
    assert row_of(FormulaEvaluator(64, rate=9.0, saturated=True), metric="tpot_mean").verdict == "saturated"
    offered = row_of(FormulaEvaluator(64, rate=9.0))
    assert offered.verdict == "undecided"
    assert "offered rate" in str(offered.note)
    assert row_of(FormulaEvaluator(64), metric="goodput").note == "the scenario sets no SLO"


def test_runs_are_shared_by_targets_and_metrics() -> None:
    once, twice = FormulaEvaluator(64), FormulaEvaluator(64)
    row_of(once)
    break_even_of([twice], [3], [1.0], ["throughput", "tpot_mean"], replications=3, band=0.1)
    around_the_root, plain = 2 * 3, 3
    assert twice.runs <= 2 * once.runs - around_the_root - plain, "in the formula both metrics have one root"


def test_a_draft_length_that_varies_has_a_simulated_root_and_no_closed_form() -> None:
    evaluator = FormulaEvaluator(64)
    evaluator.draft_length_varies = True
    row = row_of(evaluator)
    assert row.simulated_alpha is not None
    assert row.simulated_alpha.value == pytest.approx(row_of(FormulaEvaluator(64)).geometric_alpha, abs=5e-4)
    assert (row.overhead, row.linear_acceptance_rate, row.geometric_alpha) == (None, None, None)


def test_best_draft_length_and_the_cost_ratio_it_rests_on() -> None:
    answer = break_even_of([FormulaEvaluator(32)], [3], [1.0], ["throughput"], replications=2, band=0.1)
    assert answer.cost_ratio == {"32": pytest.approx(0.15)}
    assert answer.best_draft_length == {"32": {"0.5": 2, "0.7": 3, "0.9": 8}}


def test_json_has_the_keys_of_the_contract_and_progress_is_told() -> None:
    calls: list[tuple[int, int]] = []
    answer = break_even_of(
        [FormulaEvaluator(1), FormulaEvaluator(64)],
        [1, 3],
        [1.0],
        ["throughput"],
        replications=2,
        band=0.1,
        progress=lambda done, total, what: calls.append((done, total)),
    )
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]
    document = json.loads(json.dumps(answer.to_json(), allow_nan=False))
    assert set(document) >= {"rows", "best_draft_length", "cost_ratio", "notes"}
    assert set(document["rows"][0]) >= {
        "load",
        "concurrency",
        "draft_length",
        "target_speedup",
        "metric",
        "overhead",
        "linear_acceptance_rate",
        "geometric_alpha",
        "simulated_alpha",
        "mean_acceptance_length",
        "scenario_alpha",
        "verdict",
    }
    assert document["rows"][2]["load"] == {"concurrency": 64}
    assert document["rows"][2]["concurrency"] == 64
    assert set(document["rows"][0]["simulated_alpha"]) == {"value", "ci95", "band"}


def test_all_that_cannot_be_asked_is_said_at_once() -> None:
    with pytest.raises(InputError) as error:
        break_even_of([], [0, 3], [math.nan], ["throughputs"], replications=2, band=0.1)
    assert [problem.field for problem in error.value.problems] == [
        "metric",
        "draft_length",
        "target_speedup",
    ]
    assert "did you mean 'throughput'?" in str(error.value)


def test_a_load_at_which_all_requests_time_out_is_undecided() -> None:
    answer = breakeven(
        small_scenario({"workload.requests": 5, "workload.timeout_s": 1e-9}),
        metrics=["throughput", "tpot_p99"],
    )
    assert {row.verdict for row in answer.rows} == {"undecided"}
    assert all("plain decoding completes no request" in note for note in answer.notes[-2:])
    assert json.loads(json.dumps(answer.to_json(), allow_nan=False))["rows"][0]["geometric_alpha"] is None


def test_each_question_is_answered_once() -> None:
    answer = break_even_of([FormulaEvaluator(4)], [3, 3], [1.0, 1.0], ["throughput", "throughput"], 1, 0.1)
    assert len(answer.rows) == 1


def test_speedups_at_given_acceptances_are_those_of_the_formula_with_the_band_of_the_step_times() -> None:
    asked = (0.0, 0.5, 0.9)
    for metric in ("throughput", "tpot_mean"):
        answer = break_even_of(
            [FormulaEvaluator(64)], [3], [1.0], [metric], replications=3, band=0.1, alphas=asked
        )
        (row,) = answer.rows
        assert row.plain_mean_batch == 64
        assert list(row.speedup_at) == ["0", "0.5", "0.9"]
        for alpha, result in zip(asked, row.speedup_at.values(), strict=True):
            exact = tokens_per_verify(alpha, 3) / 1.6
            assert result is not None
            assert result.band is not None
            assert result.value == pytest.approx(exact)
            assert result.band == pytest.approx((exact / 1.1, exact / 0.9))
        document = json.loads(json.dumps(answer.to_json(), allow_nan=False))["rows"][0]
        assert set(document["speedup_at"]["0.5"]) == {"value", "ci95", "band"}


def test_rows_without_an_answer_have_no_speedups_and_an_acceptance_that_is_none_is_refused() -> None:
    (row,) = break_even_of([FormulaEvaluator(64)], [3], [1.0], ["goodput"], 2, 0.1, alphas=(0.5,)).rows
    assert row.speedup_at == {}
    with pytest.raises(InputError, match=r"1.5.*number from 0 to 1"):
        break_even_of([], [3], [1.0], ["throughput"], 2, 0.1, alphas=(1.5,))
