"""The page of `decodesim validate`: predicted against published, errors, misses, what was left out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dashboards.markup import Html, linked, sentence, table, tag
from dashboards.page import Drawings, legend_of, write_page

if TYPE_CHECKING:
    from calibration.text_table import TextTable
    from calibration.validation.row import ComparisonRow
    from calibration.validation.validate import Validation

_PICTURES = (
    ("speedup", "speedup", "", 1.0),
    ("throughput", "throughput", "tokens/s", 1.0),
    ("tpot_mean", "mean TPOT", "ms", 1e3),
    ("ttft_mean", "mean TTFT", "ms", 1e3),
)
"""Quantity, its words, its unit, and what SI is multiplied by."""

_MISSES = 40
_FEWEST_POINTS = 3

_ABOUT = (
    "Every published figure beside the simulated one. Errors are |ln(predicted ÷ published)|; “of sources” "
    "is the median over sources of each source's median, so that no source counts more than another."
)
_HOW_TO_READ = (
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
        _section("Beside what is simpler", _SIMPLER, tables.baselines_table(validation)),
        _section("Targets", "", tables.targets_table(validation)),
        tag("section", tag("h2", f"Speedups in groups, {SPEEDUPS_KNOWN}"), *by) if speedups else "",
        _section("Largest misses", _WORST, tables.largest_errors(validation.rows, _MISSES)),
        _section("Skipped, and why", "", tables.reasons_table(validation)),
        _section("Cases without a simulated figure", "", tables.left_out_table(validation)),
        _choices(validation.rows),
        _every_row(tables.rows_table(validation.rows)),
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
    from dashboards.figures.predicted import WITHIN, draw, finding, prepare

    found = []
    for quantity, words, unit, scale in _PICTURES:
        points = prepare(rows, quantity, scale)
        if len(points.rows) < _FEWEST_POINTS:
            continue
        picture = draw(points, words, unit)
        place = drawings.place(f"predicted-{quantity}", picture, f"predicted against published {words}")
        found.append(
            tag(
                "section",
                tag("h2", f"Predicted against published {words}"),
                tag("p", finding(points), cls="finding"),
                legend_of(picture),
                tag("figure", place),
                tag("p", _HOW_TO_READ.format(within=100 * WITHIN), cls="caption"),
            )
        )
    return found


def _section(title: str, text: str, shown: TextTable) -> Html:
    if not shown.rows:
        return Html("")
    return tag("section", tag("h2", title), tag("p", text, cls="caption") if text else "", _table(shown))


def _table(shown: TextTable) -> Html:
    rows = [[linked(cell) if "https://" in cell else cell for cell in row] for row in shown.rows]
    return table(shown.columns, rows, words=shown.words)


def _choices(rows: tuple[ComparisonRow, ...]) -> Html:
    """What was assumed where sources say nothing, with the number of cases."""
    cases: dict[str, set[str]] = {}
    for row in rows:
        for choice in (*row.choices, *([row.acceptance_note] if row.acceptance_note else [])):
            cases.setdefault(choice, set()).add(row.case_id)
    if not cases:
        return Html("")
    ordered = sorted(cases.items(), key=lambda item: (-len(item[1]), item[0]))
    shown = table(["choice", "cases"], [[sentence(text), str(len(named))] for text, named in ordered])
    folded = tag("details", tag("summary", f"{len(ordered)} choices"), shown)
    return tag("section", tag("h2", "What was assumed"), folded)


def _every_row(shown: TextTable) -> Html:
    folded = tag("details", tag("summary", f"{len(shown.rows):,} rows"), _table(shown))
    return tag("section", tag("h2", "Every figure"), folded)
