"""The Dash application of the live page."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from dashboards.app.callbacks import connect
from dashboards.app.guard import HOST, guard
from dashboards.app.layout import page
from dashboards.app.settings import Base

if TYPE_CHECKING:
    from dash import Dash

    from simulator.scenario import Scenario


def make_app(scenario: Scenario, port: int) -> Dash:
    """The application for a scenario, served on loopback at a port."""
    from dash import Dash

    base = Base(scenario)
    app = Dash(
        __name__, title="decodesim", update_title="", serve_locally=True,
        assets_folder=str(Path(__file__).parent / "assets"),
    )  # fmt: skip
    guard(app.server, port)
    app.layout = page(base.values)
    connect(app, base)
    return app


def serve(scenario: Scenario, port: int) -> None:
    """Serve the page until the process is interrupted. Raises OSError where the port is taken."""
    from werkzeug.serving import make_server

    app = make_app(scenario, port)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server(HOST, port, app.server, threaded=True)
    try:
        server.serve_forever()
    finally:
        server.server_close()
