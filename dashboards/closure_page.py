"""The page of `decodesim closure`: what was predicted from a profile against what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dashboards.figures import closure_alphas, closure_steps
from dashboards.markup import Html, table, tag
from dashboards.page import Drawings, write_page
from dashboards.sections import figure_section

FIGURES = (closure_steps.FIGURE, closure_alphas.FIGURE)
_ABOUT = (
    "Real plain and speculative decoding of SmolLM2-135M on this device, against the simulator on a profile "
    "that was made between the same visits. No whole step entered the fit."
)


def write_closure_page(document: Mapping[str, Any], path: str | Path) -> Path:
    """Write the page of a run's JSON document and return its path; it opens offline. Raises InputError."""
    drawings = Drawings()
    return write_page(path, "Closed loop – decodesim", _body(document, drawings), drawings)


def _body(document: Mapping[str, Any], drawings: Drawings) -> Html:
    from calibration.closure.tables import tables_of

    header = tag(
        "header",
        tag("p", "decodesim closure", cls="brand"),
        tag("h1", "Predicted and measured on one device"),
        tag("p", document["device"], cls="traffic"),
    )
    notes = [tag("p", note, cls="finding") for note in document["notes"]]
    table_sections = [
        tag("section", tag("h2", text_table.title), table(text_table.columns, text_table.rows))
        for text_table in tables_of(document)
    ]
    return tag(
        "main",
        header,
        tag("p", _ABOUT, cls="caption"),
        *notes,
        *picture_sections(document, drawings),
        *table_sections,
    )


def picture_sections(document: Mapping[str, Any], drawings: Drawings) -> list[Html]:
    """Step times and break-even acceptances, or why there are none."""
    return [figure_section(figure.prepare(document), figure, figure.name, drawings) for figure in FIGURES]
