"""What happens when something on the page changes.

A change of a control gives settings, or messages at fields. PageSettings give the point, the curves in closed
form, and then the curves simulated. A newer change makes older answers stale: the browser drops them, and the
simulation of curves stops between two loads.
"""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

from dash import ALL, Dash, Input, Output, State, ctx, html, no_update

from dashboards.app import answers, cards
from dashboards.app.controls import CONTROLS, ControlValue
from dashboards.app.layout import CLEARABLE, POINT_PICTURES, STUDY_PICTURES, control_id, error_id
from dashboards.app.settings import Base, FieldError, PageSettings, from_query
from dashboards.app.uploads import connect_uploads
from dashboards.app.wiring import in_browser, on
from dashboards.figures import FIGURES
from dashboards.study import LoadStudy
from dashboards.subject import ReportedResult
from simulator.errors import InputError
from simulator.scenario import Scenario

_NAMES = tuple(CONTROLS)
_MOST_PINS = 6


class PageAnswers:
    """The answers to the settings of pages, kept for a while, and which question of a page is its latest."""

    def __init__(self, base: Base) -> None:
        self.base = base
        self.cache = answers.AnswerCache()
        self.latest: dict[str, str] = {}

    def scenario(self, settings: PageSettings) -> Scenario:
        """The scenario of these settings. Raises FieldError."""
        return self.base.scenario_of(settings)

    def point(self, settings: PageSettings) -> ReportedResult:
        """The chosen point, simulated. Raises FieldError, InputError."""
        scenario = self.scenario(settings)
        return self.cache.answer("point", scenario, lambda: answers.point(scenario))

    def closed_form(self, settings: PageSettings) -> LoadStudy:
        """The curves in closed form. Raises FieldError."""
        scenario = self.scenario(settings)
        return self.cache.answer("closed form", scenario, lambda: answers.closed_form(scenario))

    def simulated(self, settings: PageSettings, page: str) -> LoadStudy | None:
        """The curves, simulated; None where the page has moved on since. Raises FieldError."""
        scenario = self.scenario(settings)
        self.latest[page] = scenario.scenario_sha256
        while len(self.latest) > 100:
            self.latest.pop(next(iter(self.latest)))

        def is_stale() -> bool:
            return self.latest.get(page) != scenario.scenario_sha256

        return self.cache.answer("simulated", scenario, lambda: answers.simulated(scenario, is_stale))


def connect(app: Dash, base: Base) -> None:
    """Add all callbacks to an app."""
    asked = PageAnswers(base)
    pages = count(1)

    @on(app, Output("page-number", "data"), Input("url", "pathname"))
    def number_page(_: str) -> str:
        return str(next(pages))

    @on(
        app,
        [Output(control_id(name), "value") for name in _NAMES],
        Input("url", "search"),
        Input("reset", "n_clicks"),
        prevent_initial_call=False,
    )
    def fill_in(query: str | None, _: int | None) -> list[ControlValue]:
        settings = {} if ctx.triggered_id == "reset" else from_query(query or "")
        values = {**base.values, **settings}
        return [_for_browser(name, values[name]) for name in _NAMES]

    @on(
        app,
        Output("settings", "data"),
        Output("problems", "children"),
        [Output(error_id(name), "children") for name in _NAMES],
        Input({"control": ALL}, "value"),
        prevent_initial_call=True,
    )
    def read_controls(values: Sequence[ControlValue]) -> list[Any]:
        settings = base.changed(
            {name: _from_browser(name, value) for name, value in zip(_NAMES, values, strict=True)}
        )
        try:
            if settings.get("concurrency", 1) is None and not settings.get("rate", base.values["rate"]):
                raise FieldError({"concurrency": "is empty: give clients, or requests per second"}, ())
            asked.scenario(settings)
        except FieldError as error:
            return [no_update, " ".join(error.others), *(error.messages.get(name, "") for name in _NAMES)]
        return [settings, "", *("" for _ in _NAMES)]

    @on(
        app,
        Output("verdict", "children"),
        Output("notes", "children"),
        [Output(f"picture-{name}", "children") for name in POINT_PICTURES],
        Input("settings", "data"),
        prevent_initial_call=True,
    )
    def answer_point(settings: PageSettings) -> list[Any]:
        try:
            subject = asked.point(settings)
        except (InputError, FieldError) as error:
            return [[_refused(error)], "", *([] for _ in POINT_PICTURES)]
        pictures = [cards.picture(FIGURES[name], subject, name) for name in POINT_PICTURES]
        return [cards.verdict_card(subject), " · ".join(subject.result.notes), *pictures]

    def curves(settings: PageSettings, study: LoadStudy, is_simulated: bool) -> list[Any]:
        subject = ReportedResult(asked.point(settings).result, asked.scenario(settings), study)
        how = "Simulated." if is_simulated else "Closed form, being simulated."
        pictures = [
            [*cards.picture(FIGURES[name], subject, name), html.P(how, className="caption how")]
            for name in STUDY_PICTURES
        ]
        load = getattr(asked.scenario(settings).workload.arrivals, "concurrency", None)
        return [cards.break_even_line(study, load, is_simulated), *pictures]

    shown = [
        Output("break-even-line", "children"),
        *(Output(f"picture-{n}", "children") for n in STUDY_PICTURES),
    ]

    @on(app, *shown, Input("settings", "data"), prevent_initial_call=True)
    def answer_closed_form(settings: PageSettings) -> list[Any]:
        try:
            return curves(settings, asked.closed_form(settings), is_simulated=False)
        except (InputError, FieldError):
            return ["", *([] for _ in STUDY_PICTURES)]

    @on(
        app,
        *(Output(output.component_id, "children", allow_duplicate=True) for output in shown),
        Input("break-even-line", "children"),
        State("settings", "data"),
        State("page-number", "data"),
        prevent_initial_call=True,
    )
    def answer_simulated(line: str, settings: PageSettings, page: str) -> list[Any]:
        if ("simulated)" in line and "being" not in line) or not line:
            return [no_update for _ in shown]
        try:
            study = asked.simulated(settings, page)
        except (InputError, FieldError):
            return [no_update for _ in shown]
        return [no_update for _ in shown] if study is None else curves(settings, study, is_simulated=True)

    @on(
        app,
        Output("pins", "data"),
        Output("pinned", "children"),
        Input("pin", "n_clicks"),
        State("settings", "data"),
        State("pins", "data"),
        prevent_initial_call=True,
    )
    def pin(_: int, settings: PageSettings, pins: list[dict[str, Any]]) -> list[Any]:
        label = (
            ", ".join(f"{CONTROLS[name].label} {value}" for name, value in settings.items()) or "as opened"
        )
        try:
            pins = [*pins, cards.pinned_row(label, asked.point(settings))][-_MOST_PINS:]
        except (InputError, FieldError):
            return [no_update, no_update]
        return [pins, cards.pinned_table(pins)]

    _downloads(app, asked)
    connect_uploads(app)
    in_browser(
        app,
        """settings => {
            const pairs = Object.entries(settings).map(([name, value]) => [name, value ?? ""]);
            const query = new URLSearchParams(pairs).toString();
            history.replaceState(null, "", query ? "?" + query : location.pathname);
            return window.dash_clientside.no_update;
        }""",
        Output("copy-link", "title"),
        Input("settings", "data"),
        prevent_initial_call=True,
    )
    in_browser(
        app,
        """clicks => {
            navigator.clipboard && navigator.clipboard.writeText(location.href);
            return "Link copied";
        }""",
        Output("copy-link", "children"),
        Input("copy-link", "n_clicks"),
        prevent_initial_call=True,
    )


def _downloads(app: Dash, asked: PageAnswers) -> None:
    def download(kind: str, make: Any) -> None:
        @on(
            app,
            Output(f"download-{kind}", "data"),
            Input(f"get-{kind}", "n_clicks"),
            State("settings", "data"),
            prevent_initial_call=True,
        )
        def give(_: int, settings: PageSettings) -> Any:
            try:
                return make(settings)
            except (InputError, FieldError) as error:
                return {"content": str(error), "filename": "problem.txt"}

    def scenario_file(settings: PageSettings) -> dict[str, str]:
        from simulator.scenario import scenario_yaml

        return {"content": scenario_yaml(asked.scenario(settings)), "filename": "scenario.yaml"}

    def report_file(settings: PageSettings) -> Any:
        from dashboards.report import write_report

        with tempfile.TemporaryDirectory(prefix="decodesim-") as folder:
            path = write_report([asked.point(settings).result], Path(folder) / "report.html")
            content = base64.b64encode(path.read_bytes()).decode()
        return {"content": content, "filename": "report.html", "base64": True}

    def flags_file(settings: PageSettings) -> dict[str, str]:
        from calibration.launch.registry import artefacts

        scenario = asked.scenario(settings)
        variant = scenario.speculation[0] if scenario.speculation else None
        parts = []
        for engine, artefact in artefacts(scenario, variant).items():
            parts.append(f"# {engine} {artefact.version}\n{artefact.text}\n")
            parts += [f"# {file}\n{text}\n" for file, text in artefact.files.items()]
            parts += [f"# no option for {option.field}: {option.text}\n" for option in artefact.unstated]
        return {"content": "\n".join(parts), "filename": "engine-flags.txt"}

    for kind, make in (("scenario", scenario_file), ("report", report_file), ("flags", flags_file)):
        download(kind, make)


def _for_browser(name: str, value: ControlValue) -> ControlValue:
    control = CONTROLS[name]
    if control.kind == "choice":
        return None if value is None else str(value)
    return control.low if control.kind == "slider" and value is None else value


def _from_browser(name: str, value: ControlValue) -> ControlValue:
    """What a control means: a choice of numbers is a number, an empty choice that may be empty is none."""
    if name == "tensor_parallel" and isinstance(value, str) and value.isdecimal():
        return int(value)
    return None if value == "" and (name in CLEARABLE or CONTROLS[name].kind == "number") else value


def _refused(error: Exception) -> Any:
    return html.P(str(error), className="claim")
