"""`decodesim closure`: real plain and speculative decoding here, against the simulator's prediction."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from experiments.commands.options import check_output, json_option, writes_file
from experiments.commands.output import (
    note,
    print_json,
    print_list,
    print_table,
    print_text,
    progress_bar,
    say_when_compiling,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_BUSY = 3


@click.command()
@click.option("--device", type=click.Choice(["cuda", "cpu"]), required=True, help="What to decode on.")
@click.option("--quick", is_flag=True, help="Fewer points and shapes: within three minutes on two cores.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="PROFILE",
    help="Keep the profile and its measurements here.",
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
    """Decode SmolLM2-135M plainly and speculatively on this device, and predict the same from its profile.

    The profile is made on the way, between the same rounds. Exit code 3: the machine was too busy to say.
    """
    from calibration.optional import need

    for path in (output, html):
        if path is not None:
            check_output(path)
    need("torch", "calibration")
    need("gguf", "lm")
    from calibration.closure.closure import close_loop

    say_when_compiling()
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
