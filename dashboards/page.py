"""The HTML page around the sections: one file, styles, scripts and figures inside, nothing fetched."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

from dashboards.markup import Html, tag

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "font-src data:; base-uri 'none'; form-action 'none'"
)
"""Content security policy: the page may run what is inside it, and nothing may be fetched or sent."""


class Drawings:
    """The figures of a page: a place in the text for each, and one script that draws them all."""

    def __init__(self) -> None:
        self.figures: dict[str, Any] = {}

    def place(self, identity: str, figure: Any, label: str) -> Html:
        """The element that the figure is drawn into; its height stands from the start: nothing jumps."""
        self.figures[identity] = figure
        height = f"min-height:{figure.layout.height:g}px"
        return tag("div", id=identity, cls="plot", style=height, role="img", aria_label=label)

    def script(self) -> Html:
        """The figures as data; `<` is written so that no text can end the script."""
        import json

        documents = ",".join(
            f"{json.dumps(identity)}:{figure.to_json()}" for identity, figure in self.figures.items()
        )
        data = f"{{{documents}}}".replace("<", "\\u003c")
        return Html(f'<script type="application/json" id="figures">{data}</script>')


_DASHES = {"solid": None, "dash": "7 4", "dot": "2 3"}


def legend_of(figure: Any) -> Html:
    """What the colours and lines of a figure stand for; empty where it names nothing."""
    named_traces = [trace for trace in figure.data if trace.name and trace.showlegend is not False]
    if figure.layout.showlegend is False or not named_traces:
        return Html("")
    return tag("p", *(tag("span", _key(trace), trace.name) for trace in named_traces), cls="legend")


def _key(trace: Any) -> Html:
    """The sign of a trace: a square of its colour, or its line."""
    fill = trace.marker.color if trace.type == "bar" else trace.fillcolor
    if fill is not None:
        return tag("svg", tag("rect", width="12", height="12", fill=fill), width="12", height="12")
    line = {
        "stroke": trace.line.color,
        "stroke_width": "2.4",
        "stroke_dasharray": _DASHES[trace.line.dash or "solid"],
    }
    sign = tag("line", x1="0", y1="6", x2="22", y2="6", **line)
    return tag("svg", sign, width="22", height="12")


def write_page(path: str | Path, title: str, body: Html, drawings: Drawings) -> Path:
    """Write a page and return its path; it opens offline. Raises InputError where it cannot be written."""
    from simulator.errors import InputError, Problem, reason
    from simulator.files import whole_file

    path = Path(path)
    text = whole_page(title, body, drawings)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as part:
            part.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(Problem(file=str(path), message=f"cannot be written: {reason(error)}")) from error
    return path


def whole_page(title: str, body: Html, drawings: Drawings) -> str:
    """The text of the file. The same content gives the same bytes."""
    from plotly.offline import get_plotlyjs

    head = tag(
        "head",
        Html('<meta charset="utf-8">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        Html('<link rel="icon" href="data:,">'),
        tag("title", title),
        Html(f"<style>{_asset('report.css')}</style>"),
    )
    scripts = (
        f"<script>{get_plotlyjs()}</script>\n{drawings.script()}\n<script>{_asset('report.js')}</script>"
    )
    return f'<!doctype html>\n<html lang="en">\n{head}\n<body>\n{body}\n{scripts}\n</body>\n</html>\n'


def _asset(name: str) -> str:
    return resources.files("dashboards").joinpath("assets", name).read_text("utf-8")
