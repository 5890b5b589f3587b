"""The page of `decodesim closure`: what was predicted from a profile against what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dashboards.markup import Html, table, tag
from dashboards.page import Drawings, legend_of, write_page

_ABOUT = (
    "Real plain and speculative decoding of SmolLM2-135M on this device, against the simulator on a profile "
    "that was made between the same rounds. No whole step entered the fit."
)
_STEPS = "On the line both agree; the dotted lines are 10 % away. Hover for the point."
_ALPHAS = (
    "Acceptance was dialled on either side of where speculation breaks even; dotted lines are 0.06 away."
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
    shown = [
        tag("section", tag("h2", one.title), table(one.columns, one.rows)) for one in tables_of(document)
    ]
    return tag("main", header, tag("p", _ABOUT, cls="caption"), *notes, *pictures(document, drawings), *shown)


def pictures(document: Mapping[str, Any], drawings: Drawings) -> list[Html]:
    """Step times and break-even acceptances, as far as there are any."""
    from dashboards.figures import closed_loop

    found = []
    for name, title, prepared, draw, text in (
        ("steps", "Step times", closed_loop.prepare_steps(document), closed_loop.draw_steps, _STEPS),
        (
            "alphas",
            "Break-even acceptance",
            closed_loop.prepare_alphas(document),
            closed_loop.draw_alphas,
            _ALPHAS,
        ),
    ):
        if not prepared.rows:
            continue
        picture = draw(prepared)
        place = drawings.place(f"closure-{name}", picture, f"{title}: predicted against measured")
        found.append(
            tag(
                "section",
                tag("h2", title),
                legend_of(picture),
                tag("figure", place),
                tag("p", text, cls="caption"),
            )
        )
    return found
