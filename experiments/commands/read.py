"""`decodesim read`: telemetry of engines and benchmark clients, as acceptance, latency, load and health."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from experiments.commands.options import check_new_file, json_option, output_option, writes_file
from experiments.commands.output import note, print_json
from simulator.errors import InputError, Problem

_STDIN = "-"


@click.command()
@click.argument("files", nargs=-1, metavar="FILE…")
@output_option("The acceptance file of a scenario.")
@json_option
@writes_file
def command(files: tuple[str, ...], output: Path | None, force: bool, as_json: bool) -> None:
    """Read FILE…: metrics, server logs, benchmark results, responses; `-` or nothing is standard input.

    The format is found by content, gzip is unpacked. Two scrapes of /metrics are subtracted, several runs are
    added up, and different views of one run are put next to each other. The file that -o writes is an
    acceptance of scenarios: {file: acceptance.json}.
    """
    from calibration.telemetry.answer import read

    if not files and sys.stdin.isatty():
        raise click.UsageError("name the files to read, or pipe one in")
    if output is not None:
        check_new_file(output, force)
    document = read(files or (_STDIN,)).to_json()
    if output is not None:
        _write(output, document)
    if as_json:
        print_json(document)
    else:
        from experiments.commands.read_tables import print_reading

        print_reading(document)
    if output is not None:
        note(f"wrote {output}; in a scenario: acceptance: {{file: {output.name}}}")


def _write(output: Path, document: Mapping[str, Any]) -> None:
    from simulator.files import whole_file
    from simulator.results.result import dump_json

    if document["mean_acceptance_length"] is None:
        message = f"is not written: {' '.join(document['notes']) or 'the files have no acceptance'}"
        raise InputError(Problem(file=str(output), message=message))
    with whole_file(output) as part:
        part.write_text(dump_json(document), encoding="utf-8")
