"""The words of the report: verdicts, tails and growth, said as a manager understands them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dashboards.change import BETTER, EVEN, WORSE, after_to_before, direction, percent, percent_range
from dashboards.headline import headlines
from dashboards.markup import linked, sentence, tag, text
from dashboards.stragglers import Stragglers, stragglers
from dashboards.subject import ReportedResult
from simulator.results.estimate import Estimate
from simulator.results.verdict import Verdict
from simulator.step.state import DONE
from tests.subjects import (
    VARIANT,
    break_even_row,
    by_hand,
    estimate,
    small_result,
    with_break_even,
    with_variants_saturated,
)


def headline_of(ratio: Estimate, outcome: str, metric: str = "throughput") -> tuple[str, tuple[str, ...]]:
    name = "throughput_speedup" if metric == "throughput" else "tpot_mean_speedup"
    text = f"{VARIANT}: {outcome}: {metric} × {ratio.value:.2f} (1.00 to 2.00): the reason: in full"
    (headline,) = headlines(by_hand({}, {}, {name: ratio}, Verdict(outcome, text)))
    return headline.claim, headline.support


@pytest.mark.parametrize(
    ("ratio", "outcome", "metric", "claim"),
    [
        (
            Estimate(1.15, (1.14, 1.16), (1.05, 1.28)),
            "pays",
            "throughput",
            f"{VARIANT} pays: the same GPUs serve 15% more tokens per second (5% to 28% with the model's "
            f"error).",
        ),
        (
            Estimate(0.8, (0.79, 0.81), (0.7, 0.9)),
            "loses",
            "throughput",
            f"{VARIANT} does not pay: the same GPUs serve 20% fewer tokens per second "
            "(10% to 30% with the model's error).",
        ),
        (
            Estimate(1.02, (1.01, 1.03), (0.93, 1.12)),
            "undecided",
            "throughput",
            f"{VARIANT} may or may not pay: the same GPUs serve 2% more tokens per second "
            "(between 7% fewer and 12% more with the model's error).",
        ),
        (
            Estimate(1.5, (1.4, 1.6), (1.2, 1.8)),
            "pays",
            "TPOT speedup",
            f"{VARIANT} pays: at the same traffic answers stream 50% faster (20% to 80% with the model's "
            f"error).",
        ),
    ],
)
def test_the_claim_is_a_sentence_that_a_manager_understands(
    ratio: Estimate, outcome: str, metric: str, claim: str
) -> None:
    assert headline_of(ratio, outcome, metric) == (claim, ("The reason: in full.",))


def test_the_tail_is_told_with_its_price() -> None:
    plain = {"tpot_s.p99": 0.02, "itl_s.p99": 0.1, "ttft_s.p99": 0.9}
    fast = {"tpot_s.p99": 0.04, "itl_s.p99": 0.09, "ttft_s.p99": 1.1}
    ratios = {
        "tpot_p99_speedup": estimate(0.5),
        "itl_p99_ratio": estimate(0.9, 0.05),
        "ttft_p99_ratio": estimate(1.22, 0.3),
    }
    (headline,) = headlines(by_hand(plain, fast, ratios))
    text = " ".join(headline.support).replace("\u00a0", " ")
    assert "Tail latency worsens: TPOT P99 20.0 → 40.0 ms" in text
    assert "improves: ITL P99 100 → 90.0 ms" in text
    assert "stays within the error: TTFT P99 900 ms → 1.10 s" in text
    directions = {change.label: change.direction for change in headline.changes}
    assert directions == {"TPOT P99": WORSE, "ITL P99": BETTER, "TTFT P99": EVEN}


def test_the_break_even_stands_beside_the_scenarios_acceptance() -> None:
    rows = [break_even_row(64, 0.5, "pays"), break_even_row(1, 0.1, "pays")]
    (headline,) = headlines(with_break_even(by_hand({}, {}), rows))
    assert (
        "At 64 clients it needs an acceptance α of 0.50 (0.45 to 0.55) to break even; the scenario has 0.70."
        in headline.support
    )


def with_requests(slow: int, without: int, count: int = 2000) -> ReportedResult:
    """A subject of `count` requests of 101 tokens at 10 ms each; the first `slow` of them take 50 ms, and
    the first `without` never draft.
    """
    subject, numbers = by_hand({}, {}), np.arange(count)
    (record, *_) = small_result().records[VARIANT]
    tpot_ns = np.where(numbers < slow, 50_000_000, 10_000_000)
    record = replace(
        record,
        arrival_ns=numbers,
        first_ns=numbers,
        last_ns=numbers + 100 * tpot_ns,
        emitted_tokens=np.full(count, 101),
        decode_rounds=np.full(count, 50),
        draft_rounds=np.where(numbers < without, 0, 50),
        status=np.full(count, DONE),
        first_measured=0,
        end_measured=count,
    )
    return replace(subject, result=replace(subject.result, records={VARIANT: (record,)}))


def test_slow_requests_without_drafts_are_found() -> None:
    result = stragglers(with_requests(slow=100, without=100), VARIANT)
    assert result == Stragglers(1.0, 0.05, pytest.approx(0.01))
    assert result.explain_the_tail
    half = stragglers(with_requests(slow=100, without=60), VARIANT)
    assert half is not None
    assert (half.slowest_fraction, half.overall_fraction) == (0.6, 0.03)


def test_without_a_difference_drafts_do_not_explain_the_tail() -> None:
    evenly = stragglers(with_requests(slow=4000, without=2800, count=4000), VARIANT)
    assert evenly is not None
    assert evenly.slowest_fraction == evenly.overall_fraction == 0.7
    assert not evenly.explain_the_tail
    none = stragglers(with_requests(slow=100, without=0), VARIANT)
    assert none is not None
    assert not none.explain_the_tail


def test_too_few_requests_or_saturation_tell_nothing_of_the_tail() -> None:
    subject = with_requests(slow=100, without=100)
    assert stragglers(with_requests(slow=10, without=10, count=900), VARIANT) is None
    assert stragglers(with_requests(slow=100, without=1900), VARIANT) is None
    assert stragglers(with_variants_saturated(subject, VARIANT), VARIANT) is None
    assert stragglers(by_hand({}, {}), VARIANT) is None


def test_the_verdict_says_who_is_slow_and_why() -> None:
    subject = with_requests(slow=100, without=100)
    (headline,) = headlines(subject)
    assert (
        "All of the slowest 1% by TPOT decode without drafts (5.0% of all do); "
        "the P99 of those that draft is 10.0 ms."
    ) in headline.support
    note = f"{VARIANT}: 4.5% of the requests outgrow the drafter's 4,096 tokens, and go on without drafts"
    (headline,) = headlines(replace(subject, result=replace(subject.result, notes=(note,))))
    assert any(
        "(4.5% of the requests outgrow the drafter's 4,096 tokens)" in line for line in headline.support
    )


def test_an_acceptance_that_nobody_gave_is_said() -> None:
    subject = by_hand({}, {})
    provenance = replace(subject.result.provenance, defaults_used={f"speculation.{VARIANT}.acceptance": {}})
    (headline,) = headlines(replace(subject, result=replace(subject.result, provenance=provenance)))
    assert headline.support[-1].startswith("The acceptance is a default, not a measurement")


@pytest.mark.parametrize(("saturated", "who"), [(("plain",), "plain"), (("plain", VARIANT), "both variants")])
def test_a_load_above_capacity_is_said(saturated: tuple[str, ...], who: str) -> None:
    (headline,) = headlines(with_variants_saturated(by_hand({}, {}), *saturated))
    assert any(f"more than {who} can serve" in line for line in headline.support)


def test_speedups_of_times_are_turned_round() -> None:
    ratio = Estimate(0.5, (0.4, 0.6), (0.25, 0.8))
    assert after_to_before("tpot_p99_speedup", ratio) == Estimate(2.0, (1 / 0.6, 2.5), (1.25, 4.0))
    assert after_to_before("itl_p99_ratio", ratio) == ratio
    assert after_to_before("throughput_speedup", ratio) == ratio
    assert direction("tpot_p99_speedup", after_to_before("tpot_p99_speedup", ratio)) == WORSE
    assert direction("throughput_speedup", ratio) == WORSE
    assert direction("itl_p99_ratio", ratio) == BETTER
    assert direction("itl_p99_ratio", Estimate(0.9, (0.8, 1.0), (0.7, 1.1))) == EVEN
    assert direction("itl_p99_ratio", Estimate(0.9)) == EVEN


def test_growth_reads_as_percent_until_it_is_large() -> None:
    assert [percent(x) for x in (1.15, 0.62, 1.0, 1.004, 2.04, 19.2)] == [
        "+15%",
        "−38%",
        "0%",
        "0%",
        "+104%",
        "× 19.2",
    ]
    assert percent_range((0.94, 1.28)) == "−6% to +28%"


def test_markup_escapes_all_but_markup() -> None:
    assert tag("b", "<i>", tag("u", "&"), cls="a", aria_label='"', title=None) == (
        '<b class="a" aria-label="&quot;">&lt;i&gt;<u>&amp;</u></b>'
    )
    assert text("a<b") == "a&lt;b"
    assert sentence("mixed Case") == "Mixed Case."
    assert sentence("Done!") == "Done!"


def test_addresses_become_links_without_their_punctuation() -> None:
    assert linked("see (https://a.b/c), or <d>") == (
        'see (<a href="https://a.b/c" rel="noreferrer">a.b/c</a>), or &lt;d&gt;'
    )
