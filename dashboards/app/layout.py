"""The live page: controls on the left, the verdict and its pictures on the right."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from dash import dcc, html

from dashboards.app.controls import CONTROLS, Control, ControlValue


def aria(name: str, value: str) -> dict[str, Any]:
    """An ARIA attribute, whose hyphen no keyword argument has."""
    return {name: value}


POINT_PICTURES = ("tails", "step-time")
"""Figures of the chosen point."""
STUDY_PICTURES = ("break-even", "speedup-map")
"""Figures over the load."""


def page(values: Mapping[str, ControlValue]) -> Any:
    """The page, with the values that its controls begin with."""
    return html.Div(
        [
            dcc.Location(id="url", refresh=False),
            dcc.Store(id="settings"),
            dcc.Store(id="pins", data=[]),
            dcc.Store(id="page-number"),
            html.Header(
                [
                    html.H1("decodesim"),
                    html.P(
                        "Does speculation pay here? Every answer on this page is simulated as you change it."
                    ),
                    html.Nav(_actions(), **aria("aria-label", "Take away")),
                ]
            ),
            html.Div([_controls(values), _answers()], className="columns"),
            *(dcc.Download(id=f"download-{kind}") for kind in ("scenario", "report", "flags")),
        ],
        className="app",
    )


def _actions() -> list[Any]:
    return [
        html.Button("Pin this answer", id="pin"),
        html.Button("Scenario (YAML)", id="get-scenario"),
        html.Button("Report (HTML)", id="get-report"),
        html.Button("Engine flags", id="get-flags"),
        html.Button("Copy link", id="copy-link"),
        html.Button("Reset", id="reset"),
    ]


def _controls(values: Mapping[str, ControlValue]) -> Any:
    groups = [
        html.Fieldset([html.Legend(group), *(_field(control, values[control.name]) for control in controls)])
        for group, controls in groupby(CONTROLS.values(), key=lambda control: control.group)
    ]
    upload = html.Fieldset(
        [
            html.Legend("Your own data"),
            dcc.Upload(
                html.Button("Read metrics, a log or a benchmark result", id="upload-button"),
                id="upload",
                multiple=True,
                max_size=24_000_000,
            ),
            html.Div(id="upload-answer", role="status"),
            html.Button("Use this acceptance", id="use-alpha", hidden=True),
            dcc.Store(id="measured"),
        ]
    )
    return html.Div([*groups, upload], className="controls", role="form", **aria("aria-label", "Scenario"))


def _field(control: Control, value: ControlValue) -> Any:
    identity = control_id(control.name)
    helps = [html.Small(control.help)] if control.help else []
    label, control_input = (
        html.Span(control.label, id=f"label-{control.name}"),
        _input(control, identity, value),
    )
    labelled = (
        [html.Label([label, control_input])]  # a label names the input inside it
        if control.kind == "slider"
        else [html.Label(label, htmlFor=_dom(identity)), control_input]
    )
    message = html.P("", id=error_id(control.name), className="error", role="alert")
    return html.Div([*labelled, *helps, message], className=f"field {control.kind}")


def _input(control: Control, identity: dict[str, str], value: ControlValue) -> Any:
    if control.kind == "choice":
        options = [str(option) for option in control.options()]
        text = None if value is None else str(value)
        if text is not None and text not in options:
            options = [text, *options]
        return dcc.Dropdown(
            id=identity, options=options, value=text, clearable=control.name in CLEARABLE, searchable=True,
            maxHeight=320,
        )  # fmt: skip
    if control.kind == "slider":
        return dcc.Slider(
            id=identity, min=control.low, max=control.high, step=control.step, value=_level(control, value),
            marks=None, updatemode="drag", tooltip={"placement": "bottom", "always_visible": True},
        )  # fmt: skip
    return dcc.Input(
        id=identity, type="number", value=value, step="any", debounce=0.4,
    )  # fmt: skip


def _level(control: Control, value: ControlValue) -> float:
    return float(value) if isinstance(value, int | float) else control.low


CLEARABLE = ("weights", "kv_cache", "draft")
"""Choices that may be empty."""


def control_id(name: str) -> dict[str, str]:
    """The identity of a control."""
    return {"control": name}


def error_id(name: str) -> dict[str, str]:
    """The identity of the message at a control."""
    return {"error": name}


def _dom(identity: dict[str, str]) -> str:
    """The id that Dash gives an element in the document."""
    import json

    return json.dumps(identity, separators=(",", ":"), sort_keys=True)


def _answers() -> Any:
    parts = [
        html.Div("", id="problems", className="problems", role="alert"),
        html.Section(
            [
                html.Div(id="verdict", **aria("aria-live", "polite")),
                html.P("", id="break-even-line", className="support"),
                html.P("", id="notes", className="caption"),
            ],
            className="verdict",
            id="verdict-section",
        ),
        html.Section(html.Div(id="pinned"), id="pinned-section"),
        *(html.Section(id=f"picture-{name}") for name in (*STUDY_PICTURES, *POINT_PICTURES)),
    ]
    return html.Main(parts)
