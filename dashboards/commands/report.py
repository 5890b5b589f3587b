"""`decodesim report`: one self-contained page of results."""

from __future__ import annotations

from pathlib import Path

import click

from experiments.commands.options import json_option, writes_file
from experiments.commands.output import note, note_compilation, print_json, progress_bar


@click.command()
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("report.html"),
    show_default=True,
    help="The page to write.",
)
@click.option(
    "--png",
    "png_dir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write PNG images of the page and of every figure, too (needs Chromium and the extra 'images').",
)
@json_option
@writes_file
def command(results: tuple[Path, ...], output: Path, png_dir: Path | None, as_json: bool) -> None:
    """Write one self-contained HTML page of RESULTS: result files, folders of `simulate --out`, or stores of
    `sweep`.

    The page of a result also shows break-even and speedup by load. They are simulated once, which takes some
    seconds, and kept in study.json next to the result. The page of a store shows maps of its cells.
    """
    from dashboards.report import reported_at, write_report

    note_compilation()
    with progress_bar("studying the load") as progress:
        reports = [subject for path in results for subject in reported_at(path, progress)]
    write_report(reports, output, png_dir)
    size_bytes = output.stat().st_size
    note(f"wrote {output} ({size_bytes / 1e6:.1f} MB): one page, opens offline")
    if png_dir is not None:
        note(f"wrote pictures into {png_dir}")
    if as_json:
        print_json({"report": str(output), "bytes": size_bytes, "results": len(reports)})
