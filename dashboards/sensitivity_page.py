"""The page of `decodesim sensitivity`: what decides the answer, one at a time and all together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dashboards.markup import Html, table, tag
from dashboards.page import Drawings, legend_of, write_page

if TYPE_CHECKING:
    from experiments.sensitivity.sobol import Sobol
    from experiments.sensitivity.tornado import Tornado

_TORNADO = (
    "Each bar turns one input to the ends of its range, the others as they are, on the same random numbers. "
    "The line is the scenario as it is."
)
_SOBOL = (
    "All inputs vary together, every value of a range equally likely. Alone: the share of the variance that "
    "goes when this input is known; with the others: the share that stays when all others are known."
)


def write_sensitivity_page(title: str, tornado: Tornado, found: Sobol | None, path: Path) -> None:
    """Write the page; it opens offline. Raises InputError where it cannot be written."""
    drawings = Drawings()
    write_page(path, f"{title} – decodesim", _body(title, tornado, found, drawings), drawings)


def _body(title: str, tornado: Tornado, found: Sobol | None, drawings: Drawings) -> Html:
    from dashboards.figures import sobol as sobol_figure
    from dashboards.figures import tornado as tornado_figure
    from experiments.sensitivity.words import answer_words, bound

    answer = f"{tornado.variant}: {answer_words(tornado.of)} {tornado.base.value:.2f}"
    header = tag(
        "header",
        tag("p", "decodesim sensitivity", cls="brand"),
        tag("h1", title),
        tag("p", f"{answer}. {tornado.notes[0].capitalize()}.", cls="traffic"),
    )
    bars = tornado_figure.prepare(tornado)
    sections = [_picture("tornado", "One at a time", bars, tornado_figure, _TORNADO, drawings)]
    if found is not None:
        spread = sobol_figure.prepare(found)
        sections.append(_picture("sobol", "All together", spread, sobol_figure, _SOBOL, drawings))
    rows = [
        [one.name, one.source, bound(one, one.low), bound(one, one.nominal), bound(one, one.high)]
        for one in (bar.input for bar in tornado.bars)
    ]
    ranges = table(["input", "where the range comes from", "low", "as it is", "high"], rows, words=2)
    return tag("main", header, *sections, tag("section", tag("h2", "Ranges"), ranges))


def _picture(
    identity: str, title: str, shown: Any, figure: Any, how_to_read: str, drawings: Drawings
) -> Html:
    if not shown.rows:
        return tag("section", tag("h2", title), tag("p", shown.missing, cls="caption"))
    drawn = figure.draw(shown)
    return tag(
        "section",
        tag("h2", title),
        tag("p", figure.finding(shown), cls="finding"),
        legend_of(drawn),
        tag("figure", drawings.place(identity, drawn, title)),
        tag("p", how_to_read, cls="caption"),
    )
