"""`decodesim report`: one self-contained page of results."""

from __future__ import annotations

from pathlib import Path

import click

from experiments.commands.options import json_option, writes_file
from experiments.commands.output import note, print_json


@click.command()
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("report.html"),
    show_default=True,
    help="The page.",
)
@json_option
@writes_file
def command(results: tuple[Path, ...], output: Path, as_json: bool) -> None:
    """One self-contained HTML page of RESULTS: result files, or folders that `simulate --out` wrote."""
    from dashboards.report import write_report
    from simulator.result import read_results

    found = [result for path in results for result in read_results(path)]
    write_report(found, output)
    size_bytes = output.stat().st_size
    note(f"wrote {output} ({size_bytes / 1e6:.1f} MB): one page, opens offline")
    if as_json:
        print_json({"report": str(output), "bytes": size_bytes, "results": len(found)})
