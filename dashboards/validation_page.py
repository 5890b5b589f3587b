"""The page of `decodesim validate`: predicted against published, errors, misses, what was left out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dashboards.markup import Html, linked, sentence, table, tag
from dashboards.page import Drawings, legend_of, write_page
from simulator.results.catalogue import metric_of, title_of

if TYPE_CHECKING:
    from calibration.text_table import TextTable
    from calibration.validation.row import ComparisonRow
    from calibration.validation.validate import Validation

_PICTURES = ("speedup", "throughput", "tpot_mean", "ttft_mean")
"""Quantities that are drawn."""

_MISSES_SHOWN = 40
_FEWEST_POINTS = 3

_ABOUT = (
    "Every published figure next to the simulated one. Errors are |ln(predicted ÷ published)|; “of sources” "
    "is the median over sources of each source's median, so that no source counts more than another."
)
_CAPTION = (
    "On the line both agree; the dotted lines are {within:.0f} % away. One point per published figure of any "
    "source; hover for the case."
)


def write_validation_page(validation: Validation, path: str | Path, title: str) -> Path:
    """Write the page and return its path; it opens offline. Raises InputError where it cannot be written."""
    drawings = Drawings()
    return write_page(path, f"{title} – decodesim", _body(validation, title, drawings), drawings)


def _body(validation: Validation, title: str, drawings: Drawings) -> Html:
    from calibration.validation import tables
    from calibration.validation.groups import BY
    from calibration.validation.validate import SPEEDUPS_KNOWN

    header = tag(
        "header",
        tag("p", "decodesim validate", cls="brand"),
        tag("h1", title),
        tag("p", f"{validation.extent}.", cls="traffic"),
    )
    speedups = validation.speedups()[SPEEDUPS_KNOWN]
    by = [
        tag("div", tag("h3", f"By {name}"), _table(tables.group_table(name, speedups, of)))
        for name, of in BY.items()
    ]
    return tag(
        "main",
        header,
        *_pictures(validation.rows, drawings),
        _section("Errors by quantity", _ABOUT, tables.quantities_table(validation)),
        _section("Compared with simpler models", _SIMPLER, tables.baselines_table(validation)),
        _section("Targets", "", tables.targets_table(validation)),
        tag("section", tag("h2", f"Speedups in groups, {SPEEDUPS_KNOWN}"), *by) if speedups else "",
        _section("Largest misses", _WORST, tables.largest_errors(validation.rows, _MISSES_SHOWN)),
        _section("Skipped, and why", "", tables.reasons_table(validation)),
        _section("Cases without a simulated figure", "", tables.left_out_table(validation)),
        _choices(validation.rows),
        _all_rows(tables.rows_table(validation.rows)),
        _section("What other simulators claim", _CLAIMS, tables.claims_table()),
    )


_SIMPLER = (
    "The closed form is E / (1 + o) over uniform steps of the same presets; the constant is the median of "
    "what was published. A simulation that beats neither has no reason to exist."
)
_WORST = "The worst figure of each case, tails aside."
_CLAIMS = "For plain serving, in their own words; none publishes errors for speculative decoding."


def _pictures(rows: tuple[ComparisonRow, ...], drawings: Drawings) -> list[Html]:
    """Predicted against published, one picture per main quantity that has some points."""
    from calibration.validation.quantities import PATHS
    from dashboards.figures.predicted import WITHIN, draw, finding, prepare

    sections = []
    for quantity in _PICTURES:
        words, unit, scale = quantity, "", 1.0
        if quantity in PATHS:
            metric = metric_of(PATHS[quantity])
            words, unit, scale = title_of(PATHS[quantity]), metric.label_unit, metric.scale
        points = prepare(rows, quantity, scale)
        if len(points.rows) < _FEWEST_POINTS:
            continue
        picture = draw(points, words, unit)
        place = drawings.place(f"predicted-{quantity}", picture, f"predicted against published {words}")
        sections.append(
            tag(
                "section",
                tag("h2", f"Predicted against published {words}"),
                tag("p", finding(points), cls="finding"),
                legend_of(picture),
                tag("figure", place),
                tag("p", _CAPTION.format(within=100 * WITHIN), cls="caption"),
            )
        )
    return sections


def _section(title: str, text: str, text_table: TextTable) -> Html:
    if not text_table.rows:
        return Html("")
    return tag("section", tag("h2", title), tag("p", text, cls="caption") if text else "", _table(text_table))


def _table(text_table: TextTable) -> Html:
    rows = [[linked(cell) if "https://" in cell else cell for cell in row] for row in text_table.rows]
    return table(text_table.columns, rows, words=text_table.words)


def _choices(rows: tuple[ComparisonRow, ...]) -> Html:
    """What was assumed where sources say nothing, with the number of cases."""
    cases: dict[str, set[str]] = {}
    for row in rows:
        for choice in (*row.choices, *([row.acceptance_note] if row.acceptance_note else [])):
            cases.setdefault(choice, set()).add(row.case_id)
    if not cases:
        return Html("")
    ordered = sorted(cases.items(), key=lambda item: (-len(item[1]), item[0]))
    choice_table = table(["choice", "cases"], [[sentence(text), str(len(named))] for text, named in ordered])
    folded = tag("details", tag("summary", f"{len(ordered)} choices"), choice_table)
    return tag("section", tag("h2", "What was assumed"), folded)


def _all_rows(text_table: TextTable) -> Html:
    folded = tag("details", tag("summary", f"{len(text_table.rows):,} rows"), _table(text_table))
    return tag("section", tag("h2", "Every figure"), folded)
