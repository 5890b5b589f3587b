"""What happens when something on the page changes.

A change of a control gives settings, or messages at fields. Settings give the point, the curves in closed form,
and then the curves simulated. A newer change makes older answers stale: the browser drops them, and the
simulation of curves stops between two loads.
"""

from __future__ import annotations

import base64
import binascii
import tempfile
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from dash import ALL, Dash, Input, Output, State, dcc, no_update

from dashboards.app import answers, cards
from dashboards.app.controls import CONTROLS, Value
from dashboards.app.layout import CLEARABLE, POINT_PICTURES, STUDY_PICTURES, control_id, error_id
from dashboards.app.settings import Base, FieldError, Settings, from_query
from dashboards.figures import FIGURES
from dashboards.study import LoadStudy
from dashboards.subject import ReportedResult
from simulator.errors import InputError
from simulator.scenario import Scenario

_NAMES = tuple(CONTROLS)
_MOST_PINS = 6


class Answers:
    """The answers to the settings of pages, kept for a while, and which question of a page is its latest."""

    def __init__(self, base: Base) -> None:
        self.base = base
        self.kept = answers.Kept()
        self.latest: dict[str, str] = {}

    def scenario(self, settings: Settings) -> Scenario:
        """The scenario of these settings. Raises FieldError."""
        return self.base.scenario_of(settings)

    def point(self, settings: Settings) -> ReportedResult:
        """The chosen point, simulated. Raises FieldError, InputError."""
        scenario = self.scenario(settings)
        return self.kept.answer("point", scenario, lambda: answers.point(scenario))

    def closed_form(self, settings: Settings) -> LoadStudy:
        """The curves in closed form. Raises FieldError."""
        scenario = self.scenario(settings)
        return self.kept.answer("closed form", scenario, lambda: answers.closed_form(scenario))

    def simulated(self, settings: Settings, page: str) -> LoadStudy | None:
        """The curves, simulated; None where the page has asked for something else since. Raises FieldError."""
        scenario = self.scenario(settings)
        self.latest[page] = scenario.scenario_sha256
        while len(self.latest) > 100:
            self.latest.pop(next(iter(self.latest)))

        def is_stale() -> bool:
            return self.latest.get(page) != scenario.scenario_sha256

        return self.kept.answer("simulated", scenario, lambda: answers.simulated(scenario, is_stale))


def connect(app: Dash, base: Base) -> None:
    """Add all callbacks to an app."""
    asked = Answers(base)
    pages = count(1)

    @app.callback(Output("page-number", "data"), Input("url", "pathname"))  # type: ignore[untyped-decorator]
    def number_page(_: str) -> str:
        return str(next(pages))

    @app.callback(  # type: ignore[untyped-decorator]
        [Output(control_id(name), "value") for name in _NAMES],
        Input("url", "search"),
        Input("reset", "n_clicks"),
        prevent_initial_call=False,
    )
    def fill_in(query: str | None, _: int | None) -> list[Value]:
        from dash import ctx

        settings = {} if ctx.triggered_id == "reset" else from_query(query or "")
        values = {**base.values, **settings}
        return [_for_browser(name, values[name]) for name in _NAMES]

    @app.callback(  # type: ignore[untyped-decorator]
        Output("settings", "data"),
        Output("problems", "children"),
        [Output(error_id(name), "children") for name in _NAMES],
        Input({"control": ALL}, "value"),
        prevent_initial_call=True,
    )
    def read_controls(values: Sequence[Value]) -> list[Any]:
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

    @app.callback(  # type: ignore[untyped-decorator]
        Output("verdict", "children"),
        Output("notes", "children"),
        [Output(f"picture-{name}", "children") for name in POINT_PICTURES],
        Input("settings", "data"),
    )
    def answer_point(settings: Settings) -> list[Any]:
        try:
            subject = asked.point(settings)
        except (InputError, FieldError) as error:
            return [[_refused(error)], "", *([] for _ in POINT_PICTURES)]
        pictures = [cards.picture(FIGURES[name], subject, name) for name in POINT_PICTURES]
        return [cards.verdict_card(subject), " · ".join(subject.result.notes), *pictures]

    def curves(settings: Settings, study: LoadStudy, is_simulated: bool) -> list[Any]:
        subject = ReportedResult(asked.point(settings).result, asked.scenario(settings), study)
        how = "Simulated." if is_simulated else "Closed form, being simulated."
        pictures = [
            [*cards.picture(FIGURES[name], subject, name), cards.html.P(how, className="caption how")]
            for name in STUDY_PICTURES
        ]
        load = getattr(asked.scenario(settings).workload.arrivals, "concurrency", None)
        return [cards.break_even_line(study, load, is_simulated), *pictures]

    shown = [
        Output("break-even-line", "children"),
        *(Output(f"picture-{n}", "children") for n in STUDY_PICTURES),
    ]

    @app.callback(*shown, Input("settings", "data"))  # type: ignore[untyped-decorator]
    def answer_closed_form(settings: Settings) -> list[Any]:
        try:
            return curves(settings, asked.closed_form(settings), is_simulated=False)
        except (InputError, FieldError):
            return ["", *([] for _ in STUDY_PICTURES)]

    @app.callback(  # type: ignore[untyped-decorator]
        *(Output(output.component_id, "children", allow_duplicate=True) for output in shown),
        Input("break-even-line", "children"),
        State("settings", "data"),
        State("page-number", "data"),
        prevent_initial_call=True,
    )
    def answer_simulated(line: str, settings: Settings, page: str) -> list[Any]:
        if "simulated)" in line and "being" not in line or not line:
            return [no_update for _ in shown]
        try:
            study = asked.simulated(settings, page)
        except (InputError, FieldError):
            return [no_update for _ in shown]
        return [no_update for _ in shown] if study is None else curves(settings, study, is_simulated=True)

    @app.callback(  # type: ignore[untyped-decorator]
        Output("pins", "data"),
        Output("pinned", "children"),
        Input("pin", "n_clicks"),
        State("settings", "data"),
        State("pins", "data"),
        prevent_initial_call=True,
    )
    def pin(_: int, settings: Settings, pins: list[dict[str, Any]]) -> list[Any]:
        label = (
            ", ".join(f"{CONTROLS[name].label} {value}" for name, value in settings.items()) or "as opened"
        )
        try:
            pins = [*pins, cards.pinned_row(label, asked.point(settings))][-_MOST_PINS:]
        except (InputError, FieldError):
            return [no_update, no_update]
        return [pins, cards.pinned_table(pins)]

    _downloads(app, asked)
    _uploads(app)
    app.clientside_callback(
        """settings => {
            const query = new URLSearchParams(Object.entries(settings).map(([k, v]) => [k, v ?? ""])).toString();
            history.replaceState(null, "", query ? "?" + query : location.pathname);
            return window.dash_clientside.no_update;
        }""",
        Output("copy-link", "title"),
        Input("settings", "data"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        """clicks => { navigator.clipboard && navigator.clipboard.writeText(location.href); return "Link copied"; }""",
        Output("copy-link", "children"),
        Input("copy-link", "n_clicks"),
        prevent_initial_call=True,
    )


def _downloads(app: Dash, asked: Answers) -> None:
    def download(kind: str, make: Any) -> None:
        @app.callback(  # type: ignore[untyped-decorator]
            Output(f"download-{kind}", "data"),
            Input(f"get-{kind}", "n_clicks"),
            State("settings", "data"),
            prevent_initial_call=True,
        )
        def give(_: int, settings: Settings) -> Any:
            try:
                return make(settings)
            except (InputError, FieldError) as error:
                return {"content": str(error), "filename": "problem.txt"}

    def scenario_file(settings: Settings) -> dict[str, str]:
        from simulator.scenario import scenario_yaml

        return {"content": scenario_yaml(asked.scenario(settings)), "filename": "scenario.yaml"}

    def report_file(settings: Settings) -> Any:
        from dashboards.report import write_report

        with tempfile.TemporaryDirectory(prefix="decodesim-") as folder:
            path = write_report([asked.point(settings).result], Path(folder) / "report.html")
            return dcc.send_bytes(path.read_bytes(), "report.html")

    def flags_file(settings: Settings) -> dict[str, str]:
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


def _uploads(app: Dash) -> None:
    @app.callback(  # type: ignore[untyped-decorator]
        Output("upload-answer", "children"),
        Output("measured", "data"),
        Output("use-alpha", "hidden"),
        Input("upload", "contents"),
        State("upload", "filename"),
        prevent_initial_call=True,
    )
    def read_files(contents: Sequence[str] | None, names: Sequence[str]) -> list[Any]:
        if not contents:
            return [no_update, no_update, no_update]
        try:
            document = read_uploads(names, contents)
        except InputError as error:
            return [str(error), None, True]
        alpha = document["geometric_alpha"]
        lines = measured_lines(document)
        return [[cards.html.P(line) for line in lines], alpha, alpha is None]

    @app.callback(  # type: ignore[untyped-decorator]
        Output(control_id("alpha"), "value", allow_duplicate=True),
        Input("use-alpha", "n_clicks"),
        State("measured", "data"),
        prevent_initial_call=True,
    )
    def use_alpha(_: int, alpha: float | None) -> Any:
        return no_update if alpha is None else round(alpha, 3)


def read_uploads(names: Sequence[str], contents: Sequence[str]) -> dict[str, Any]:
    """What `decodesim read` says of uploaded files. Raises InputError, with the files' own names."""
    from calibration.telemetry.answer import read

    with tempfile.TemporaryDirectory(prefix="decodesim-") as folder:
        paths = []
        for index, (name, content) in enumerate(zip(names, contents, strict=True)):
            path = Path(folder) / str(index) / Path(name.replace("\\", "/")).name.replace("\0", "")[:200]
            path.parent.mkdir()
            path.write_bytes(_decoded(name, content))
            paths.append(str(path))
        try:
            return read(paths).to_json()
        except InputError as error:
            text = str(error)
            for index in range(len(paths)):
                text = text.replace(f"{folder}/{index}/", "")
            raise InputError(text) from None


def _decoded(name: str, content: str) -> bytes:
    try:
        return base64.b64decode(content.partition(",")[2], validate=True)
    except binascii.Error:
        raise InputError(f"{name[:80]}: was not uploaded whole") from None


def measured_lines(document: Mapping[str, Any]) -> list[str]:
    """What a reading says, a line each: acceptance, α, tokens per step, findings, notes."""
    lines = []
    length = document["mean_acceptance_length"]
    if length is not None:
        ends = length.get("ci95")
        bounds = f" ({ends[0]:.2f} to {ends[1]:.2f})" if ends else ""
        lines.append(f"Mean acceptance length {length['value']:.2f}{bounds}.")
    if document["geometric_alpha"] is not None:
        lines.append(f"α {document['geometric_alpha']:.2f}, if it is equal for all drafts.")
    if document["tokens_per_step"] is not None:
        lines.append(f"{document['tokens_per_step']:.2f} tokens per decode step.")
    lines += [f"{finding['severity']}: {finding['text']}" for finding in document["health"]]
    return [*lines, *document["notes"]]


def _for_browser(name: str, value: Value) -> Value:
    control = CONTROLS[name]
    if control.kind == "choice":
        return None if value is None else str(value)
    return control.low if control.kind == "slider" and value is None else value


def _from_browser(name: str, value: Value) -> Value:
    """What a control means: a choice of numbers is a number, an empty choice that may be empty is none."""
    if name == "tensor_parallel" and isinstance(value, str) and value.isdecimal():
        return int(value)
    return None if value == "" and (name in CLEARABLE or CONTROLS[name].kind == "number") else value


def _refused(error: Exception) -> Any:
    return cards.html.P(str(error), className="claim")
