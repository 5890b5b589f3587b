"""`decodesim gate`: measured acceptance against the break-even of a scenario, for pipelines."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import click

from experiments.commands.options import check_output, json_option, lines_of, read_scenario, writes_file
from experiments.commands.output import note_compilation, print_json, print_list, print_text, progress_bar
from simulator.results.catalogue import COMPARED_BY_WORD

EXIT_CODES: Mapping[str, int] = {"pass": 0, "fail": 1, "undecided": 3}


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option(
    "--scenario",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The scenario of the deployment, with its load.",
)
@click.option(
    "--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change one field of the scenario."
)
@click.option("--arm", metavar="NAME", help="The variant that was measured; default the first.")
@click.option(
    "--metric",
    metavar="NAME",
    help=f"Default throughput, at rates tpot_mean. One of {', '.join(COMPARED_BY_WORD)}.",
)
@click.option(
    "--junit",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the result as a JUnit test report too; an existing file is replaced.",
)
@json_option
@writes_file
def command(
    files: tuple[str, ...],
    scenario: Path,
    overrides: tuple[str, ...],
    arm: str | None,
    metric: str | None,
    junit: Path | None,
    as_json: bool,
) -> None:
    """Compare the acceptance measured in FILE… with the break-even of a scenario at its load.

    Exit code 0: pass, 1: fail, 3: undecided, 2: bad input.
    """
    from calibration.telemetry.answer import read
    from experiments.gate import gate
    from experiments.measured_variant import require_acceptance
    from simulator.scenario import chosen_variant

    if junit is not None:
        check_output(junit)
    loaded = read_scenario(scenario, overrides, {})
    reading = read(files).to_json()
    require_acceptance(reading)
    note_compilation()
    with lines_of(loaded), progress_bar("gate") as progress:
        variant = chosen_variant(loaded, arm, "gate")
        answer = gate(loaded, variant, reading, metric, progress)
    document = answer.to_json()
    if junit is not None:
        from experiments.junit import junit_xml
        from simulator.files import whole_file

        with whole_file(junit) as part:
            part.write_text(junit_xml(document), encoding="utf-8")
    if as_json:
        print_json(document)
    else:
        load, amount = next(iter(document["break_even"]["load"].items()))
        print_text(f"{document['arm']} at {load.replace('_', ' ')} {amount:g}")
        print_text(f"→ {document['verdict'].upper()}: {document['reason']}")
        print_list("Problems of the measurement", [entry["text"] for entry in document["health"]])
        print_list("Notes", document["notes"])
    sys.stdout.flush()
    click.get_current_context().exit(EXIT_CODES[document["verdict"]])
