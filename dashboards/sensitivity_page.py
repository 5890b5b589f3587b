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
    "Each bar moves one input to the ends of its range and keeps the others, on common random numbers. The "
    "line is the scenario as it is."
)
_SOBOL = (
    "All inputs vary together, uniformly over their ranges. Alone: the share of the variance that disappears "
    "when this input is known. With the others: the share that remains when all others are known."
)


def write_sensitivity_page(title: str, tornado: Tornado, sobol: Sobol | None, path: Path) -> None:
    """Write the page; it opens offline. Raises InputError where it cannot be written."""
    drawings = Drawings()
    write_page(path, f"{title} – decodesim", _body(title, tornado, sobol, drawings), drawings)


def _body(title: str, tornado: Tornado, sobol: Sobol | None, drawings: Drawings) -> Html:
    from dashboards.figures import sobol as sobol_figure
    from dashboards.figures import tornado as tornado_figure
    from experiments.sensitivity.texts import answer_text, value_text

    answer = f"{tornado.variant}: {answer_text(tornado.of)} {tornado.base.value:.2f}"
    header = tag(
        "header",
        tag("p", "decodesim sensitivity", cls="brand"),
        tag("h1", title),
        tag("p", f"{answer}. {tornado.notes[0].capitalize()}.", cls="traffic"),
    )
    bars = tornado_figure.prepare(tornado)
    sections = [_picture("tornado", "One at a time", bars, tornado_figure, _TORNADO, drawings)]
    if sobol is not None:
        spread = sobol_figure.prepare(sobol)
        sections.append(_picture("sobol", "All together", spread, sobol_figure, _SOBOL, drawings))
    rows = [
        [
            uncertain_input.name,
            uncertain_input.source,
            value_text(uncertain_input, uncertain_input.low),
            value_text(uncertain_input, uncertain_input.nominal),
            value_text(uncertain_input, uncertain_input.high),
        ]
        for uncertain_input in (bar.input for bar in tornado.bars)
    ]
    ranges = table(["input", "where the range comes from", "low", "as it is", "high"], rows, words=2)
    return tag("main", header, *sections, tag("section", tag("h2", "Ranges"), ranges))


def _picture(
    identity: str, title: str, figure_table: Any, figure: Any, caption: str, drawings: Drawings
) -> Html:
    if not figure_table.rows:
        return tag("section", tag("h2", title), tag("p", figure_table.missing, cls="caption"))
    drawn_figure = figure.draw(figure_table)
    return tag(
        "section",
        tag("h2", title),
        tag("p", figure.finding(figure_table), cls="finding"),
        legend_of(drawn_figure),
        tag("figure", drawings.place(identity, drawn_figure, title)),
        tag("p", caption, cls="caption"),
    )
