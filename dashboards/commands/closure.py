"""`decodesim closure`: compares real plain and speculative decoding with the simulator's prediction."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from experiments.commands.options import check_output, json_option, writes_file
from experiments.commands.output import (
    note,
    note_compilation,
    print_json,
    print_list,
    print_table,
    print_text,
    progress_bar,
)
from simulator.errors import InputError, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

_BUSY = 3


@click.command()
@click.option("--device", type=click.Choice(["cuda", "cpu"]), help="The device to decode on.")
@click.option("--engine", type=click.Choice(["vllm"]), help="A serving engine to start and measure instead.")
@click.option("--quick", is_flag=True, help="Fewer points and shapes: within three minutes on two cores.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="PROFILE",
    help="Keep the profile and its measurements in this file.",
)
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write a page.",
)
@click.option(
    "--engine-python",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="PYTHON",
    help="With --engine: the python that has it. Default: .venv-engine/bin/python.",
)
@click.option(
    "--matrix",
    type=click.Choice(["small", "half-hour", "full"]),
    default="small",
    show_default=True,
    help="With --engine: the variants and loads.",
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("results/engine-loop"),
    show_default=True,
    help="With --engine: where its files go; what is there is not measured again.",
)
@click.option(
    "--limit-minutes",
    type=click.FloatRange(min=1),
    help="With --engine: begin no further cell after this time.",
)
@json_option
@writes_file
@click.pass_context
def command(
    context: click.Context,
    device: str | None,
    engine: str | None,
    quick: bool,
    output: Path | None,
    html: Path | None,
    engine_python: Path | None,
    matrix: str,
    folder: Path,
    limit_minutes: float | None,
    as_json: bool,
) -> None:
    """Decode SmolLM2-135M with and without speculation on this device, and predict both from its profile.

    The profile is measured in the same rounds. Exit code 3: the machine was too busy for a comparison.

    With --engine, vLLM serves it: plain decoding is measured, speculation is predicted, then measured.
    """
    if (device is None) == (engine is None):
        raise InputError(Problem(message="one of --device and --engine is needed", allowed="either of them"))
    if engine is not None:
        _close_engine_loop(engine_python, matrix, folder, limit_minutes, as_json)
        return
    from calibration.optional import need

    assert device is not None
    for path in (output, html):
        if path is not None:
            check_output(path)
    need("torch", "calibration")
    need("gguf", "lm")
    from calibration.closure.closure import close_loop

    note_compilation()
    with progress_bar("closure") as progress:
        document = close_loop(device, quick, output, progress, note).to_json()
    if as_json:
        print_json(document)
    else:
        _print(document)
    if html is not None:
        from dashboards.closure_page import write_closure_page

        note(f"wrote {write_closure_page(document, html)}; opens offline")
    if document["busy"] is not None:
        context.exit(_BUSY)


def _close_engine_loop(
    python: Path | None, matrix: str, folder: Path, limit_minutes: float | None, as_json: bool
) -> None:
    from calibration.engine_loop.engine_python import find_python
    from calibration.engine_loop.evaluate import evaluate
    from calibration.engine_loop.loop import EngineLoop
    from calibration.engine_loop.matrix import MATRICES
    from calibration.engine_loop.tables import tables_of

    limit_s = None if limit_minutes is None else 60 * limit_minutes
    EngineLoop(find_python(python), folder.absolute(), MATRICES[matrix], note, limit_s).run()
    comparison = evaluate(folder)
    if as_json:
        print_json(comparison.to_json())
        return
    for title, table in tables_of(comparison).items():
        print_table(table.columns, table.rows, title=title)


def _print(document: Mapping[str, Any]) -> None:
    from calibration.closure.tables import tables_of

    print_text(document["device"])
    for title, columns, rows in tables_of(document):
        print_table(columns, rows, title=title)
    texts = "equals" if document["texts_equal"] else "DIFFERS FROM"
    print_text(f"Text emitted by speculation {texts} that of plain greedy decoding (fp32).")
    print_list("Notes", document["notes"])
