"""The part of a page that is about the store of a study: what varied, maps, figures, the scenario."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

from dashboards.figures.settings import setting_text, setting_title
from dashboards.markup import Html, table, tag
from dashboards.page import Drawings
from dashboards.sections import figure_section
from dashboards.stored import StoredStudy
from simulator.units import format_number

_MAX_VALUES = 12
"""Values of an axis that are listed; of a longer one the ends."""

_BAND = (
    "Bands add the error of the cost model, ± 10 % on step times, to the 95 % interval of sampling. Every "
    "cell compares all variants on the same requests and random numbers."
)


def findings(study: StoredStudy) -> list[str]:
    """What the pictures say, a line each."""
    from dashboards.figures import STUDY_FIGURES

    tables = [(figure, figure.prepare(study)) for figure in STUDY_FIGURES.values()]
    return [
        line for figure, figure_table in tables if figure_table.rows for line in figure.finding(figure_table)
    ]


def study_article(study: StoredStudy, number: int, drawings: Drawings) -> Html:
    """The article of one store; `number` makes its names unique on the page."""
    from dashboards.figures import STUDY_FIGURES

    header = tag(
        "header",
        tag("p", "decodesim report", cls="brand"),
        tag("h1", study.title),
        tag("p", _state(study), cls="traffic"),
    )
    tables = [(figure, figure.prepare(study)) for figure in STUDY_FIGURES.values()]
    figures = [
        figure_section(figure_table, figure, f"r{number}-{figure.name}", drawings)
        for figure, figure_table in tables
        if figure_table.rows
    ]
    return tag(
        "article",
        header,
        _varied(study),
        *figures,
        _metrics(study),
        *_left_out(study),
        _basis(study),
        id=f"result-{number}",
    )


def _state(study: StoredStudy) -> str:
    """`690 of 700 cells so far: 680 done, 10 does-not-fit · decodesim 0.1.0+…`."""
    counts = ", ".join(f"{count:,} {status}" for status, count in study.counts.items())
    cell_count = sum(study.counts.values())
    missing = study.grid_cells is not None and cell_count < study.grid_cells
    cells = f"{cell_count:,} of {study.grid_cells:,} cells so far" if missing else f"{cell_count:,} cells"
    return f"{cells}: {counts} · decodesim {study.version}"


def _varied(study: StoredStudy) -> Html:
    """The axes with their values; those that go together say so."""
    axes, zips = study.study.get("axes", {}), study.study.get("zip", ())
    rows = []
    for path, values in axes.items():
        others = [other for group in zips if path in group for other in group if other != path]
        goes = f", goes with {', '.join(map(setting_title, others))}" if others else ""
        rows.append([f"{setting_title(path)}{goes}", tag("code", path), _values(values)])
    if study.study.get("seeds", 1) > 1:
        rows.append(["seeds", "", f"{study.study['seeds']:,}"])
    section = [tag("h2", "What varies"), table(["", "Field", "Values"], rows, words=3)]
    conditions = study.study.get("where", ())
    if conditions:
        section.append(tag("p", "Only cells with ", tag("code", " and ".join(conditions)), cls="caption"))
    if study.study.get("refine"):
        refine = study.study["refine"]
        level = "" if refine["level"] is None else f" {refine['level']:g}"
        text = f"Refined along {refine['metric']}{level}: cells away from that contour were not run."
        section.append(tag("p", text, cls="caption"))
    return tag("section", *section)


def _values(values: list[Any]) -> str:
    plain = [value if isinstance(value, int | float | str | None) else str(value) for value in values]
    texts = [setting_text(value) for value in plain]
    if len(texts) <= _MAX_VALUES:
        return ", ".join(texts)
    return f"{texts[0]}, {texts[1]}, … {texts[-1]} ({len(texts)} values)"


def _metrics(study: StoredStudy) -> Html:
    """Every metric with its range over the cells."""
    from experiments.store.columns import METRIC, TEXT

    rows = []
    for column in study.columns:
        values = [row[column.name] for row in study.rows if row[column.name] is not None]
        if column.role != METRIC or column.is_interval or column.kind == TEXT or not values:
            continue
        figures = [format_number(float(figure)) for figure in (min(values), median(values), max(values))]
        unit = f", {column.unit}" if column.unit not in ("", "1") else ""
        rows.append([tag("code", column.name), f"{column.meaning.partition(': ')[2]}{unit}", *figures])
    if not rows:
        return Html("")
    headings = ["Metric", "Meaning", "least", "median", "most"]
    return tag("section", tag("h2", "All figures"), table(headings, rows, words=2))


def _left_out(study: StoredStudy) -> Iterator[Html]:
    if study.reasons:
        rows = [[status, why or "", f"{count:,}"] for status, why, count in study.reasons]
        yield tag("section", tag("h2", "Cells without figures"), table(["", "Why", "Cells"], rows, words=2))


def _basis(study: StoredStudy) -> Html:
    """The scenario that the study rests on, whole."""
    import json

    scenario = json.dumps(study.study.get("scenario", {}), indent=1, ensure_ascii=False)
    return tag(
        "section",
        tag("h2", "What this rests on"),
        tag("p", _BAND),
        tag(
            "details",
            tag("summary", "The scenario, with every axis at its first value"),
            tag("pre", scenario),
        ),
        cls="basis",
    )
