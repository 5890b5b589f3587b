"""`decodesim app`: the live what-if page."""

from __future__ import annotations

from pathlib import Path

import click

from experiments.commands.options import json_option, read_scenario
from experiments.commands.output import note, note_compilation, print_json
from simulator.errors import InputError, Problem, reason

_PORT = 8050


@click.command()
@click.option(
    "--scenario", type=click.Path(path_type=Path), metavar="FILE",
    help="The scenario to begin with; default: the example of `init`.",
)  # fmt: skip
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=_PORT,
    show_default=True,
    help="The port on this machine.",
)
@click.option("--open/--no-open", "open_browser", default=False, help="Open the page in a browser.")
@json_option
def command(scenario: Path | None, port: int, open_browser: bool, as_json: bool) -> None:
    """Serve a live page on this machine: change the model, the load, the method or α, and the verdict, P99,
    break-even and map are simulated anew. Ctrl+C ends it.
    """
    try:
        from dashboards.app.server import serve
    except ModuleNotFoundError as error:
        message = f"needs the package {error.name}, which is not installed"
        raise InputError(
            Problem(field="app", message=message, allowed="pip install 'decodesim[dashboard]'")
        ) from None
    from simulator.scenario.flags import EXAMPLE

    base = read_scenario(scenario, (), {} if scenario is not None else EXAMPLE)
    note_compilation()
    address = f"http://127.0.0.1:{port}"
    note(f"open {address} in a browser; Ctrl+C ends")
    if as_json:
        print_json({"address": address})
    if open_browser:
        click.launch(address)
    try:
        serve(base, port)
    except OSError as error:
        raise InputError(
            Problem(field="--port", value=port, message=reason(error), allowed="another port")
        ) from error
