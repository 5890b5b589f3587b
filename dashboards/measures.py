"""Every figure of every variant with its interval, and the ratio with its band, as one table for the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dashboards.change import direction, growth, percent, percent_range
from dashboards.markup import Html, joined, table, tag, text
from dashboards.subject import PLAIN, Subject
from experiments.commands.output import NOTHING, in_unit
from simulator.results.estimate import Estimate
from simulator.results.summary import VariantSummary


class Measure(NamedTuple):
    """A row: words with the unit, path of the figure, what multiplies it, and the comparison beside it."""

    title: str
    path: str
    scale: float = 1.0
    ratio: str | None = None


MEASURES = (
    Measure("Throughput, tokens/s", "throughput_tokens_per_s", 1, "throughput_speedup"),
    Measure("Requests served, 1/s", "request_rate_per_s"),
    Measure("TTFT mean, ms", "ttft_s.mean", 1e3),
    Measure("TTFT P99, ms", "ttft_s.p99", 1e3, "ttft_p99_ratio"),
    Measure("TPOT mean, ms", "tpot_s.mean", 1e3, "tpot_mean_speedup"),
    Measure("TPOT P50, ms", "tpot_s.p50", 1e3),
    Measure("TPOT P99, ms", "tpot_s.p99", 1e3, "tpot_p99_speedup"),
    Measure("ITL mean, ms", "itl_s.mean", 1e3, "itl_mean_ratio"),
    Measure("ITL P99, ms", "itl_s.p99", 1e3, "itl_p99_ratio"),
    Measure("ITL per token mean, ms", "itl_token_s.mean", 1e3),
    Measure("ITL per token P99, ms", "itl_token_s.p99", 1e3),
    Measure("Worst gap of a request, P99, ms", "worst_gap_s.p99", 1e3),
    Measure("End to end mean, s", "e2e_s.mean", 1, "e2e_mean_speedup"),
    Measure("End to end P99, s", "e2e_s.p99"),
    Measure("Tokens per verify", "mean_acceptance_length"),
    Measure("Tokens per round that reach the client", "tokens_per_round"),
    Measure("Requests decoding together, mean", "mean_batch"),
    Measure("Step mean, ms", "step_s.mean", 1e3),
    Measure("KV memory in use at the peak, %", "kv_peak_fraction", 100),
    Measure("Preemptions", "preemptions"),
    Measure("Requests within the SLO, %", "slo_attainment", 100),
    Measure("Good requests (within the SLO), 1/s", "goodput_requests_per_s", 1, "goodput_speedup"),
)

_OF_CLASS = (
    Measure("TTFT P99, ms", "ttft_s.p99", 1e3),
    Measure("TPOT mean, ms", "tpot_s.mean", 1e3),
    Measure("TPOT P99, ms", "tpot_s.p99", 1e3),
    Measure("Tokens per verify", "mean_acceptance_length"),
)


def measures_table(subject: Subject) -> Html:
    """All variants side by side; `±` is the 95 % interval of sampling, the ratios carry the cost
    model's band.
    """
    result = subject.result
    shown = [row for row in MEASURES if any(_has(variant, row.path) for variant in result.variants.values())]
    headings = [
        "",
        *(f"{name} (saturated)" if variant.saturated else name for name, variant in result.variants.items()),
        *(f"{name} ÷ {PLAIN}" for name in result.comparison),
    ]
    rows = [
        [
            row.title,
            *(_cell(variant, row) for variant in result.variants.values()),
            *(_ratio(row, compared.ratios) for compared in result.comparison.values()),
        ]
        for row in shown
    ]
    return table(headings, rows, cls="measures")


def classes_table(subject: Subject) -> Html | None:
    """The main figures per traffic class; None with a single class."""
    variants = subject.result.variants
    names = dict.fromkeys(
        path.split(".")[1]
        for variant in variants.values()
        for path in variant.estimates
        if path.startswith("classes.")
    )
    if not names:
        return None
    rows = [
        [
            f"{name}: {row.title}",
            *(
                _cell(variant, row._replace(path=f"classes.{name}.{row.path}"))
                for variant in variants.values()
            ),
        ]
        for name in names
        for row in _OF_CLASS
        if any(_has(variant, f"classes.{name}.{row.path}") for variant in variants.values())
    ]
    return table(["", *variants], rows, cls="measures")


def best_draft_lengths(subject: Subject) -> Html | None:
    """Best K by load and acceptance, with the cost ratio it rests on; None without a study."""
    found = []
    for variant, document in subject.study.break_even.items():
        best, ratios = document["best_draft_length"], document["cost_ratio"]
        if not best:
            continue
        alphas = list(next(iter(best.values())))
        rows = [
            [f"{int(load):,}", *(by_alpha[alpha] for alpha in alphas), f"{ratios[load]:.3f}"]
            for load, by_alpha in best.items()
        ]
        headings = ["Clients", *(f"α = {alpha}" for alpha in alphas), "One more draft ÷ plain step"]
        found.append(
            tag("div", tag("h3", f"Best draft length of {variant}"), table(headings, rows, cls="narrow"))
        )
    return tag("div", *found, cls="several") if found else None


def _has(variant: VariantSummary, path: str) -> bool:
    return variant.estimates.get(path) is not None


def _cell(variant: VariantSummary, row: Measure) -> Html:
    estimate = variant.estimates.get(row.path)
    if estimate is None:
        return joined(NOTHING, tag("small"))
    value, _, interval = in_unit(estimate.to_json(), row.scale).partition(" ± ")
    return joined(value, tag("small", f"± {interval}" if interval else ""))


def _ratio(row: Measure, ratios: Mapping[str, Estimate | None]) -> Html:
    ratio = ratios.get(row.ratio) if row.ratio is not None else None
    if ratio is None or row.ratio is None or ratio.value <= 0:
        return text("")
    grown = growth(row.ratio, ratio)
    band = "" if grown.band is None else percent_range(grown.band)
    return joined(tag("span", percent(grown.value), cls=direction(row.ratio, grown)), tag("small", band))
