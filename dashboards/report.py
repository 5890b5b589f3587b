"""The report: one self-contained HTML page about one or more results."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dashboards.change import percent
from dashboards.markup import Html, joined, table, tag
from dashboards.page import Drawings, legend_of, whole_page
from dashboards.subject import Subject, subject_of
from simulator.errors import InputError, Problem

if TYPE_CHECKING:
    from dashboards.figures import Figure
    from dashboards.headline import Headline
    from dashboards.table import Table
    from simulator.results.result import Result

_MOST_ROWS = 30
"""Tables up to this length stand under their figure, folded."""


def write_report(
    results: Sequence[Result | Subject], path: str | Path, png_dir: str | Path | None = None
) -> Path:
    """Write the page of these results and return its path; it opens offline and loads nothing.

    A plain `Result` is studied over the load first, which takes seconds; `subjects_at` keeps studies in
    files. `png_dir`: a picture of the page and one of every figure are written there as well. Raises
    InputError where there is no result, a file cannot be written, or pictures cannot be made.
    """
    subjects = [one if isinstance(one, Subject) else subject_of(one) for one in results]
    if not subjects:
        raise InputError("there is no result to report on")
    drawings = Drawings()
    body = _body(subjects, drawings)
    title = subjects[0].title if len(subjects) == 1 else f"{len(subjects)} scenarios"
    text = whole_page(f"{title} – decodesim", body, drawings)
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(Problem(file=str(path), message=f"cannot be written: {reason}")) from error
    if png_dir is not None:
        from dashboards.images import write_images

        write_images(path, drawings.figures, Path(png_dir))
    return path


def _body(subjects: Sequence[Subject], drawings: Drawings) -> Html:
    articles = [_article(subject, number, drawings) for number, subject in enumerate(subjects, start=1)]
    contents = [_contents(subjects)] if len(subjects) > 1 else []
    return tag("main", *contents, *articles)


def _contents(subjects: Sequence[Subject]) -> Html:
    """The scenarios of a page of several, each with its verdicts."""
    from dashboards.headline import headlines

    rows = [
        [
            tag("a", subject.title, href=f"#result-{number}"),
            joined(*(tag("div", headline.claim) for headline in headlines(subject))) or _ALONE,
        ]
        for number, subject in enumerate(subjects, start=1)
    ]
    return tag("nav", tag("h1", f"{len(subjects)} scenarios"), table(["Scenario", "Answer"], rows, words=2))


def _article(subject: Subject, number: int, drawings: Drawings) -> Html:
    from dashboards.assumptions import assumptions, traffic
    from dashboards.figures import FIGURES
    from dashboards.headline import headlines
    from dashboards.measures import best_draft_lengths, classes_table, measures_table

    header = tag(
        "header",
        tag("p", "decodesim report", cls="brand"),
        tag("h1", subject.title),
        tag("p", traffic(subject), cls="traffic"),
    )
    verdicts = [_verdict(headline) for headline in headlines(subject)]
    if not verdicts:
        verdicts = [tag("p", _ALONE, cls="claim")]
    figures = [
        tag(
            "div",
            *(_figure(subject, figure, f"r{number}-{figure.name}", drawings) for figure in group),
            cls=cls,
        )
        for cls, group in _rows(list(FIGURES.values()))
    ]
    best, classes = best_draft_lengths(subject), classes_table(subject)
    numbers = tag(
        "section",
        tag("h2", "All figures"),
        measures_table(subject),
        tag(
            "p",
            _MEASURES,
            cls="caption",
        ),
        *([tag("h3", "By traffic class"), classes] if classes else []),
        *([best, tag("p", _BEST, cls="caption")] if best else []),
    )
    basis = tag("section", tag("h2", "What this rests on"), assumptions(subject), cls="basis")
    return tag("article", header, *verdicts, *figures, numbers, basis, id=f"result-{number}")


_ALONE = "Plain decoding alone: no speculative arm to judge."
_MEASURES = (
    "± is the 95 % interval of sampling over replications. The last columns say by how much a figure grew "
    "against plain decoding, with the band of the cost model's error."
)
_BEST = (
    "From the price of uniform steps at the mean batch and context, with independent drafts; 0: do not "
    "draft. The last column is what one more draft token costs (a draft pass and a wider verify), as a share "
    "of a plain step."
)


def _verdict(headline: Headline) -> Html:
    tiles = [
        tag(
            "div",
            tag("span", change.label, cls="label"),
            tag("span", percent(change.grown.value), cls=f"ratio {change.direction}"),
            tag("span", f"{change.before} → {change.after}", cls="pair"),
            cls="tile",
        )
        for change in headline.changes
    ]
    return tag(
        "section",
        tag("p", tag("span", headline.outcome, cls=f"word {headline.outcome}"), headline.arm, cls="label"),
        tag("p", headline.claim, cls="claim"),
        *(tag("p", line, cls="support") for line in headline.support),
        tag("div", *tiles, cls="tiles"),
        cls="verdict",
    )


def _rows(figures: Sequence[Figure]) -> list[tuple[str, list[Figure]]]:
    """The figures in order, halves that follow each other in one row: (class, figures)."""
    return [
        ("halves" if half else "whole", list(group)) for half, group in groupby(figures, lambda one: one.half)
    ]


def _figure(subject: Subject, figure: Figure, identity: str, drawings: Drawings) -> Html:
    """A section: heading, finding, picture or pictures, how to read them, and the numbers."""
    found = figure.prepare(subject)
    if not found.rows:
        return tag("section", tag("h2", figure.title), tag("p", found.missing, cls="missing"))
    pictures = [(title, figure.draw(part)) for title, part in figure.pictures(found)]
    legends = [legend_of(picture) for _, picture in pictures]
    common = len(set(legends)) == 1
    places = []
    for at, (title, picture) in enumerate(pictures):
        above = [tag("h3", title)] if len(pictures) > 1 else []
        above += [] if common else [legends[at]]
        label = f"{figure.title}{f', {title}' if title else ''}"
        place = drawings.place(f"{identity}-{at}" if len(pictures) > 1 else identity, picture, label)
        places.append(tag("figure", *above, place))
    return tag(
        "section",
        tag("h2", figure.title),
        *(tag("p", line, cls="finding") for line in figure.finding(found)),
        legends[0] if common else "",
        tag("div", *places, cls="several" if len(pictures) > 1 else None),
        tag("p", figure.caption(found), cls="caption"),
        *_numbers(found),
        id=f"{identity}-section",
    )


def _numbers(found: Table) -> list[Html]:
    if len(found.rows) > _MOST_ROWS:
        return []
    headings = [f"{column.name}, {column.unit}" if column.unit else column.name for column in found.columns]
    rows = [[_number(cell) for cell in row] for row in found.rows]
    shown = table(headings, rows)
    return [tag("details", tag("summary", "The numbers"), shown)]


def _number(cell: Any) -> str:
    from simulator.units import format_number

    if cell is None:
        return "–"
    return (
        format_number(cell)
        if isinstance(cell, float)
        else f"{cell:,}"
        if isinstance(cell, int)
        else str(cell)
    )
