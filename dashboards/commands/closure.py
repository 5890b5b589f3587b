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

if TYPE_CHECKING:
    from collections.abc import Mapping

_BUSY = 3


@click.command()
@click.option("--device", type=click.Choice(["cuda", "cpu"]), required=True, help="The device to decode on.")
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
@json_option
@writes_file
@click.pass_context
def command(
    context: click.Context, device: str, quick: bool, output: Path | None, html: Path | None, as_json: bool
) -> None:
    """Decode SmolLM2-135M with and without speculation on this device, and predict both from its profile.

    The profile is measured in the same rounds. Exit code 3: the machine was too busy for a comparison.
    """
    from calibration.optional import need

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


def _print(document: Mapping[str, Any]) -> None:
    from calibration.closure.tables import tables_of

    print_text(document["device"])
    for title, columns, rows in tables_of(document):
        print_table(columns, rows, title=title)
    texts = "equals" if document["texts_equal"] else "DIFFERS FROM"
    print_text(f"Text emitted by speculation {texts} that of plain greedy decoding (fp32).")
    print_list("Notes", document["notes"])
