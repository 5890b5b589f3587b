"""Every figure of every variant with its interval, and the ratio with its band, as one table for the page."""

from __future__ import annotations

from collections.abc import Mapping

from dashboards.change import after_to_before, direction, percent, percent_range
from dashboards.markup import Html, joined, table, tag, text
from dashboards.subject import PLAIN, ReportedResult
from experiments.commands.output import NOTHING, estimate_text
from simulator.results.catalogue import CLASSES, COMPARED_BY_PATH, label_of, metric_of, paths_shown
from simulator.results.estimate import Estimate
from simulator.results.metric import Detail
from simulator.results.summary import VariantSummary


def measures_table(subject: ReportedResult) -> Html:
    """All variants side by side; `±` is the 95 % interval of sampling, the ratios carry the cost
    model's band.
    """
    result = subject.result
    paths = [
        path
        for path in paths_shown(Detail.PAGE)
        if any(_has(variant, path) for variant in result.variants.values())
    ]
    headings = [
        "",
        *(f"{name} (saturated)" if variant.saturated else name for name, variant in result.variants.items()),
        *(f"{name} ÷ {PLAIN}" for name in result.comparison),
    ]
    rows = [
        [
            _heading(path),
            *(_cell(variant, path) for variant in result.variants.values()),
            *(_ratio(path, comparison.ratios) for comparison in result.comparison.values()),
        ]
        for path in paths
    ]
    return table(headings, rows, cls="measures")


def classes_table(subject: ReportedResult) -> Html | None:
    """The main figures per traffic class; None with a single class."""
    variants = subject.result.variants
    names = dict.fromkeys(
        path.split(".")[1]
        for variant in variants.values()
        for path in variant.estimates
        if path.startswith(f"{CLASSES}.")
    )
    if not names:
        return None
    rows = [
        [
            label_of(path),
            *(_cell(variant, path) for variant in variants.values()),
        ]
        for path in (f"{CLASSES}.{name}.{path}" for name in names for path in paths_shown(Detail.SUMMARY))
        if any(_has(variant, path) for variant in variants.values())
    ]
    return table(["", *variants], rows, cls="measures")


def best_draft_lengths(subject: ReportedResult) -> Html | None:
    """Best K by load and acceptance, with the cost ratio it rests on; None without a study."""
    tables = []
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
        tables.append(
            tag("div", tag("h3", f"Best draft length of {variant}"), table(headings, rows, cls="narrow"))
        )
    return tag("div", *tables, cls="several") if tables else None


def _has(variant: VariantSummary, path: str) -> bool:
    return variant.estimates.get(path) is not None


def _heading(path: str) -> str:
    label = label_of(path)
    return label[0].upper() + label[1:]


def _cell(variant: VariantSummary, path: str) -> Html:
    estimate = variant.estimates.get(path)
    if estimate is None:
        return joined(NOTHING, tag("small"))
    value, _, interval = estimate_text(estimate.to_json(), metric_of(path).scale).partition(" ± ")
    return joined(value, tag("small", f"± {interval}" if interval else ""))


def _ratio(path: str, ratios: Mapping[str, Estimate | None]) -> Html:
    name = COMPARED_BY_PATH[path].name if path in COMPARED_BY_PATH else ""
    ratio = ratios.get(name)
    if ratio is None or ratio.value <= 0:
        return text("")
    ratio_to_plain = after_to_before(name, ratio)
    band = "" if ratio_to_plain.band is None else percent_range(ratio_to_plain.band)
    return joined(
        tag("span", percent(ratio_to_plain.value), cls=direction(name, ratio_to_plain)), tag("small", band)
    )
